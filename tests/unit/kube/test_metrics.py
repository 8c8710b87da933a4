"""The three metrics APIs: which request, in which version, and what counts as an answer."""

import json
from typing import Any

import pytest

from faulty_api import FaultyApi, FaultyTransport
from kubetide.api.objects.meta import ObjectReference
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.errors import DecodeError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.kube.client.transport import Response
from kubetide.kube.metrics import (
    CustomMetrics,
    ExternalMetrics,
    MetricsNotRegistered,
    NoKnownMetricsVersion,
    NotExactlyOne,
    ResourceMetrics,
    UnknownMetricObject,
)


class Server(FaultyTransport):
    """Serves discovery, and one answer for everything else."""

    def __init__(self, answer: Any, versions: tuple[str, ...] = ("v1beta2", "v1beta1")) -> None:
        super().__init__(FaultyApi())
        self._answer = answer
        self._versions = versions
        self.sent: list[tuple[str, dict[str, str]]] = []

    async def request(self, method: str, path: str, **options: Any) -> Response:
        body = self._discovery(path)
        if body is None:
            self.sent.append((path, dict(options.get("query") or {})))
            body = self._answer
        return Response(200, {}, json.dumps(body).encode())

    def _discovery(self, path: str) -> Any:
        entries = [{"version": version} for version in self._versions]
        groups = [{"name": "networking.k8s.io", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}}]
        if entries:
            groups.append({"name": "custom.metrics.k8s.io", "versions": entries, "preferredVersion": entries[0]})
        ingresses = {"name": "ingresses", "kind": "Ingress", "namespaced": True}
        services = {"name": "services", "kind": "Service", "namespaced": True}
        return {
            "/api": {"versions": ["v1"]},
            "/apis": {"groups": groups},
            "/api/v1": {"resources": [services]},
            "/apis/networking.k8s.io/v1": {"resources": [ingresses]},
        }.get(path)


def ask(server: Server, question: Any) -> Any:
    async def main() -> Any:
        return await question(Client(server, clock=virtual_clock()))

    return run_virtual(main())


def test_usage_is_asked_for_by_namespace_and_selector() -> None:
    containers = [{"name": "app", "usage": {"cpu": "156340871n", "memory": "21364Ki"}}]
    item = {"metadata": {"name": "web-0"}, "timestamp": "2024-12-31T23:59:48Z", "window": "15.2s"}
    server = Server({"kind": "PodMetricsList", "items": [{**item, "containers": containers}]})
    (found,) = ask(server, lambda kube: ResourceMetrics(kube).pods("shop", "app=web"))
    assert found.metadata.name == "web-0"
    assert server.sent == [("/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods", {"labelSelector": "app=web"})]


def test_usage_of_the_whole_cluster() -> None:
    server = Server({"items": None})
    assert ask(server, lambda kube: ResourceMetrics(kube).pods()) == ()
    assert [path for path, _ in server.sent] == ["/apis/metrics.k8s.io/v1beta1/pods"]
    assert all(query == {} for _, query in server.sent)


def test_a_broken_sample_is_an_error_and_not_a_missing_one() -> None:
    server = Server({"items": [{"metadata": {"name": "web-0"}, "containers": "none"}]})
    with pytest.raises(DecodeError, match="web-0"):
        ask(server, lambda kube: ResourceMetrics(kube).pods())


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param(("v1beta2", "v1beta1"), "v1beta2", id="preferred"),
        pytest.param(("v1beta1", "v1beta2"), "v1beta1", id="preferred-older"),
        pytest.param(("v7", "v1beta1"), "v1beta1", id="first-known-after-an-unknown-one"),
    ],
)
def test_the_version_of_custom_metrics(versions: tuple[str, ...], expected: str) -> None:
    assert ask(Server({}, versions), lambda kube: CustomMetrics(kube).version()) == expected


def test_no_custom_metrics_api_and_no_known_version_are_told_apart() -> None:
    with pytest.raises(MetricsNotRegistered):
        ask(Server({}, ()), lambda kube: CustomMetrics(kube).version())
    with pytest.raises(NoKnownMetricsVersion):
        ask(Server({}, ("v7",)), lambda kube: CustomMetrics(kube).version())


def test_a_metric_of_pods() -> None:
    value = {"describedObject": {"name": "web-0"}, "metricName": "rps", "value": "500m"}
    server = Server({"items": [value]})
    question = {"pod_selector": "app=web", "metric_selector": "verb=GET"}
    (found,) = ask(server, lambda kube: CustomMetrics(kube).for_pods("shop", "rps:5m", **question))
    assert (found.described_object.name, found.value) == ("web-0", "500m")
    path, query = server.sent[0]
    assert path == "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/rps%3A5m"
    assert query == {"labelSelector": "app=web", "metricLabelSelector": "verb=GET"}


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        pytest.param(("networking.k8s.io/v1beta7", "Ingress"), "ingresses.networking.k8s.io/main/hits", id="group"),
        pytest.param(("v1", "Service"), "services/main/hits", id="core"),
        pytest.param(("v1", "Namespace"), "metrics/hits", id="namespace-is-the-path"),
    ],
)
def test_a_metric_of_an_object(described: tuple[str, str], expected: str) -> None:
    server = Server({"items": [{"value": "7"}]})
    target = ObjectReference(api_version=described[0], kind=described[1], name="main")
    found = ask(server, lambda kube: CustomMetrics(kube).for_object("shop", target, "hits"))
    assert found.value == "7"
    assert server.sent == [(f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/{expected}", {})]


def test_a_metric_of_an_object_is_exactly_one() -> None:
    target = ObjectReference(api_version="v1", kind="Service", name="main")
    server = Server({"items": [{"value": "1"}, {"value": "2"}]})
    with pytest.raises(NotExactlyOne, match="2 results"):
        ask(server, lambda kube: CustomMetrics(kube).for_object("shop", target, "hits"))


def test_a_metric_of_an_unknown_kind() -> None:
    target = ObjectReference(api_version="example.com/v1", kind="Gadget", name="g")
    with pytest.raises(UnknownMetricObject, match=r"Gadget\.example\.com"):
        ask(Server({}), lambda kube: CustomMetrics(kube).for_object("shop", target, "hits"))


def test_an_external_metric_with_a_bar_in_its_name() -> None:
    server = Server({"items": [{"metricName": "a|b", "value": 3, "window": 60}]})
    (found,) = ask(server, lambda kube: ExternalMetrics(kube).values("shop", "a|b", selector="q=1"))
    assert found.value == 3
    path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/a%7Cb"
    assert server.sent == [(path, {"labelSelector": "q=1"})]


class OneVersion(FaultyTransport):
    """Serves usage in one version of metrics.k8s.io."""

    def __init__(self, version: str) -> None:
        super().__init__(FaultyApi())
        self.version = version
        self.asked: list[str] = []

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if path == "/api":
            return Response(200, {}, b'{"versions": ["v1"]}')
        if path == "/apis":
            entry = {"version": self.version, "groupVersion": f"metrics.k8s.io/{self.version}"}
            group = {"name": "metrics.k8s.io", "versions": [entry], "preferredVersion": entry}
            return Response(200, {}, json.dumps({"groups": [group]}).encode())
        self.asked.append(path)
        if path.startswith(f"/apis/metrics.k8s.io/{self.version}/"):
            return Response(200, {}, b'{"items": []}')
        return Response(404, {}, b'{"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}')


@pytest.mark.parametrize(
    ("version", "asked"),
    [
        pytest.param("v1beta1", ["v1beta1", "v1beta1"], id="asks-for-the-old-one-first"),
        pytest.param("v1", ["v1beta1", "v1", "v1"], id="nothing-else-is-served"),
        pytest.param("v2", ["v1beta1", "v1beta1"], id="unknown-versions-are-not-tried"),
    ],
)
def test_usage_is_read_in_v1_where_nothing_else_is_served(version: str, asked: list[str]) -> None:
    server = OneVersion(version)

    async def main() -> None:
        metrics = ResourceMetrics(Client(server, clock=virtual_clock()))
        for read in (metrics.pods, metrics.readable_pods):
            if version == "v2":
                with pytest.raises(NotFound):
                    await read("shop")
            else:
                await read("shop")

    run_virtual(main())
    assert [path.split("/")[3] for path in server.asked] == asked
