"""The clients of the metrics APIs and of scales, against recorded exchanges."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import unquote

import msgspec

from conformance.compare import differences
from conformance.registry import suite
from kubetide.api.objects.meta import CrossVersionObjectReference
from kubetide.api.objects.metrics import MetricIdentifier
from kubetide.api.values.codec import convert
from kubetide.clock import SystemClock
from kubetide.errors import KubetideError
from kubetide.hpa.core.describe import selector_text
from kubetide.hpa.core.samples import PodReading, external_reading, object_reading, pods_reading, resource_reading
from kubetide.kube.client.client import Client
from kubetide.kube.client.discovery import DiscoveredResource
from kubetide.kube.client.transport import Response
from kubetide.kube.metrics import CustomMetrics, ExternalMetrics, ResourceMetrics
from kubetide.kube.scale import ScaleClient, ScaleTarget

# What the recorded client knew about kinds without asking.
KINDS = {
    ("", "v1"): {"Service": "services", "Pod": "pods", "ReplicationController": "replicationcontrollers"},
    ("apps", "v1"): {"Deployment": "deployments", "StatefulSet": "statefulsets", "ReplicaSet": "replicasets"},
    ("networking.k8s.io", "v1"): {"Ingress": "ingresses"},
    ("example.com", "v1"): {"Widget": "widgets"},
}
DISCOVERY = {"/api", "/apis"}


@suite("hpa/http")
def http(case: dict[str, Any]) -> Iterable[str]:
    transport = Replay(case["exchanges"])
    result: dict[str, Any] | None = None
    error: str | None = None
    try:
        result = asyncio.run(_call(case["op"], case["args"], transport))
    except KubetideError as failure:
        error = str(failure)
    if (case["error"] is None) != (error is None):
        yield f"error: expected {case['error']!r}, got {error!r}"
    elif case["error"] is None:
        yield from differences(case["result"], result, path="result")
    yield from transport.differences()


class Replay:
    """A transport that answers from recorded exchanges and remembers what it was asked."""

    def __init__(self, exchanges: list[dict[str, Any]]) -> None:
        self._exchanges = exchanges
        self._asked: list[dict[str, Any]] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        path = unquote(path)
        if _is_discovery(path):
            return self._discover(path)
        asked: dict[str, Any] = {"method": method, "path": path, "query": dict(query or {})}
        if body is not None:
            asked["body"] = msgspec.json.decode(body)
        self._asked.append(asked)
        for exchange in self._exchanges:
            if exchange["request"]["path"] == path and exchange["request"]["method"] == method:
                return _response(exchange["response"]["status"], exchange["response"]["body"])
        return _response(404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not recorded"})

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError("nothing is watched")

    async def close(self) -> None:
        return None

    def differences(self) -> Iterator[str]:
        wanted = [one["request"] for one in self._exchanges if not _is_discovery(one["request"]["path"])]
        yield from differences(wanted, self._asked, drop_empty=True, path="requests")

    def _discover(self, path: str) -> Response:
        recorded = next((one["response"] for one in self._exchanges if one["request"]["path"] == path), None)
        if path == "/api":
            return _response(200, {"kind": "APIVersions", "versions": ["v1"]})
        if path == "/apis":
            groups = list(recorded["body"]["groups"]) if recorded else []
            known = {one["name"] for one in groups}
            for group, version in KINDS:
                if group and group not in known:
                    one = {"groupVersion": f"{group}/{version}", "version": version}
                    groups.append({"name": group, "versions": [one], "preferredVersion": one})
            return _response(200, {"kind": "APIGroupList", "groups": groups})
        if recorded is not None:
            return _response(recorded["status"], recorded["body"])
        group, _, version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")
        kinds = KINDS.get((group, version), {})
        resources = [{"name": plural, "kind": kind, "namespaced": True} for kind, plural in kinds.items()]
        return _response(200, {"kind": "APIResourceList", "resources": resources})


async def _call(op: str, args: dict[str, Any], transport: Replay) -> dict[str, Any]:
    client = Client(transport, clock=SystemClock())
    namespace = args["namespace"]
    match op:
        case "resource_metric":
            items = await ResourceMetrics(client).pods(namespace, args["podSelector"])
            return _samples(resource_reading(items, args["resource"], args.get("container", "")))
        case "pods_metric":
            values = await CustomMetrics(client).for_pods(
                namespace, args["metric"], pod_selector=args["podSelector"], metric_selector=_metric_selector(args)
            )
            return _samples(pods_reading(values))
        case "object_metric":
            described = convert(args["objectRef"], CrossVersionObjectReference)
            value = await CustomMetrics(client).for_object(
                namespace, described, args["metric"], metric_selector=_metric_selector(args)
            )
            return {"value": object_reading((value,)).usage}
        case "external_metric":
            found = await ExternalMetrics(client).values(namespace, args["metric"], selector=_metric_selector(args))
            return {"values": list(external_reading(found).values)}
        case "scale_get":
            return _scale(await ScaleClient(client).read(_resource(args), namespace, args["name"]))
        case _:
            meta = {"name": args["name"], "namespace": namespace, "resourceVersion": "77", "uid": "u-1"}
            raw = {"metadata": meta, "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "app=web"}}
            target = ScaleTarget(
                resource=_resource(args),
                namespace=namespace,
                name=args["name"],
                spec_replicas=3,
                status_replicas=2,
                selector="app=web",
                raw=raw,
            )
            return _scale(await ScaleClient(client).set(target, args["replicas"]))


def _samples(reading: PodReading) -> dict[str, Any]:
    return {
        "podMetrics": {
            name: {
                "value": sample.value,
                "timestamp": f"{sample.timestamp:%Y-%m-%dT%H:%M:%SZ}",
                "windowSeconds": sample.window.total_seconds(),
            }
            for name, sample in reading.samples.items()
        }
    }


def _scale(target: ScaleTarget) -> dict[str, Any]:
    return {
        "selector": target.selector,
        "specReplicas": target.spec_replicas,
        "statusReplicas": target.status_replicas,
    }


def _metric_selector(args: dict[str, Any]) -> str:
    return selector_text(convert({"name": args["metric"], "selector": args.get("metricSelector")}, MetricIdentifier))


def _resource(args: dict[str, Any]) -> DiscoveredResource:
    plural, _, group = args["resource"].partition(".")
    kind = next(kind for kind, name in KINDS[group, "v1"].items() if name == plural)
    return DiscoveredResource(group=group, version="v1", plural=plural, kind=kind, namespaced=True)


def _is_discovery(path: str) -> bool:
    return path in DISCOVERY or path == "/api/v1" or (path.startswith("/apis/") and path.count("/") <= 3)


def _response(status: int, body: Any) -> Response:
    return Response(status=status, headers={}, body=msgspec.json.encode(body))
