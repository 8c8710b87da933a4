"""Upstream's components, as far as a hand-over needs them: what they read, decide and write, from their description.

Each stands for a process. It waits for upstream's Lease, acts while it holds it, and either gives it back (`stop`) or
leaves it to run out (`kill`). They share no code with kubetide beyond the client, so that a format that kubetide alone
understands is found out.
"""

import asyncio
from abc import ABC, abstractmethod
from base64 import b64encode
from collections import defaultdict
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from drills.stage import MASTERS, Scene
from kubetide.api.objects.scheme import LEASES, MUTATING_WEBHOOKS, NODE_METRICS, NODE_SLOS, NODES
from kubetide.api.values.patch import MergePatch
from kubetide.api.values.quantity import parse_quantity
from kubetide.embedded.apiserver.rest.requests import User
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError, Conflict, NotFound

Raw = dict[str, Any]
STEP = 2.0


def stamp(at: datetime) -> str:
    """Write a time as objects carry it."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


class Upstream(ABC):
    """A component of which one process acts: the one that holds the Lease."""

    name: ClassVar[str]
    lease: ClassVar[str]
    namespace: ClassVar[str] = "kube-system"
    period: ClassVar[float] = 60.0

    def __init__(self, scene: Scene, number: int) -> None:
        self.scene = scene
        self.client: Client = scene.cluster.client(User(f"system:serviceaccount:{self.namespace}:{self.name}", MASTERS))
        self.identity = f"{self.name}_{number}"
        self.leading = False
        self._seen: tuple[str, float] = ("", 0.0)
        self._stopped: asyncio.Event = asyncio.Event()
        self._killed = False

    def stop(self) -> None:
        """End it, as SIGTERM does: the Lease is given back."""
        self._stopped.set()

    def kill(self) -> None:
        """End it without a last word."""
        self._killed = True
        self._stopped.set()

    async def run(self) -> None:
        """Wait for the Lease and act once a period."""
        due = 0.0
        while not self._stopped.is_set():
            self.leading = await self._claim()
            if self.leading and (now := self._now()) >= due:
                due = now + self.period
                await self.act()
            try:
                async with asyncio.timeout(STEP):
                    await self._stopped.wait()
            except TimeoutError:
                continue
        if self.leading and not self._killed:
            await self._write(await self.client.get_raw(LEASES, self.lease, namespace=self.namespace), holder="")
        self.leading = False

    @abstractmethod
    async def act(self) -> None:
        """Do what is due once a period."""

    def _now(self) -> float:
        return self.scene.cluster.clock.monotonic()

    async def _claim(self) -> bool:
        try:
            raw = await self.client.get_raw(LEASES, self.lease, namespace=self.namespace)
        except NotFound:
            raw = None
        if raw is not None:
            holder, version = raw["spec"].get("holderIdentity") or "", raw["metadata"]["resourceVersion"]
            if version != self._seen[0]:
                self._seen = (version, self._now())
            alive = self._now() < self._seen[1] + raw["spec"].get("leaseDurationSeconds", 15)
            if holder not in ("", self.identity) and alive:
                return False
        try:
            await self._write(raw, holder=self.identity)
        except ApiError:
            return False
        return True

    async def _write(self, raw: Raw | None, *, holder: str) -> None:
        at = f"{self.scene.now:%Y-%m-%dT%H:%M:%S.%fZ}"
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15 if holder else 1, "renewTime": at}
        if raw is not None:
            body = {**raw, "spec": {**raw["spec"], **spec}}
            await self.client.update(LEASES, self.lease, body, namespace=self.namespace)
            return
        meta = {"name": self.lease, "namespace": self.namespace}
        made = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
        await self.client.create(LEASES, made, namespace=self.namespace)

    async def items(self, path: str) -> list[Raw]:
        """List what is at a path."""
        found: list[Raw] = msgspec.json.decode((await self.client.request("GET", path)).body)["items"]
        return found


PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
VPA_LIST = "/apis/autoscaling.k8s.io/v1/namespaces/default/verticalpodautoscalers"


def recommendations(vpas: list[Raw]) -> dict[str, Raw]:
    """Return the recommendation for the only container of each target."""
    found = {}
    for vpa in vpas:
        given = ((vpa.get("status") or {}).get("recommendation") or {}).get("containerRecommendations")
        if given:
            found[vpa["spec"]["targetRef"]["name"]] = given[0]
    return found


class UpstreamUpdater(Upstream):
    """Evicts pods whose size is outside of the bounds, half of a workload at a time, once a minute."""

    name, lease = "vpa-updater", "vpa-updater"

    async def act(self) -> None:
        bounds = recommendations(await self.items(VPA_LIST))
        configured = {one["metadata"]["name"]: int(one["spec"]["replicas"]) for one in await self.items(DEPLOYMENTS)}
        groups: dict[str, list[Raw]] = defaultdict(list)
        for pod in await self.items(PODS):
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
                groups[pod["metadata"]["labels"]["app"]].append(pod)
        for name, pods in groups.items():
            free = len(pods) - (configured[name] - configured[name] // 2)
            wrong = [one for one in pods if name in bounds and _outside(one, bounds[name])]
            for pod in wrong[: max(free, 0)]:
                await self.client.evict(pod["metadata"]["name"], namespace="default")


def _outside(pod: Raw, bounds: Raw) -> bool:
    for name, text in pod["spec"]["containers"][0]["resources"]["requests"].items():
        low, high = (parse_quantity(bounds[bound][name]).nanos for bound in ("lowerBound", "upperBound"))
        if not low <= parse_quantity(text).nanos <= high:
            return True
    return False


class UpstreamWebhook:
    """Registers itself by deleting the configuration and making it anew, ten seconds after its start; has no leader."""

    CONFIGURATION, LOCAL, LEASE = "vpa-webhook-config", "upstream", "vpa-admission-controller"

    def __init__(self, scene: Scene, number: int) -> None:
        self._scene = scene
        self._host = f"vpa-admission-controller-{number}"
        self._client = scene.cluster.client(User("system:serviceaccount:kube-system:vpa-admission-controller", MASTERS))
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """End it: nobody answers at its address any more."""
        self._stopped.set()
        self._scene.cluster.api.admission._local.pop(self.LOCAL, None)

    async def run(self) -> None:
        """Serve, register, and renew the Lease every ten seconds."""
        self._scene.cluster.api.admission.register_local(self.LOCAL, self._review)
        # Not on the second, when pods are created: between its two requests nobody is registered, which is its own gap.
        await asyncio.sleep(10.5)
        with suppress(NotFound):
            await self._client.delete(MUTATING_WEBHOOKS, self.CONFIGURATION)
        await self._client.create(MUTATING_WEBHOOKS, self._configuration())
        while not self._stopped.is_set():
            await self._renew()
            try:
                async with asyncio.timeout(10):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    def _configuration(self) -> Raw:
        pods = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        vpas = {"operations": ["CREATE", "UPDATE"], "apiGroups": ["autoscaling.k8s.io"], "apiVersions": ["*"]}
        hook = {
            "name": "vpa.k8s.io",
            "rules": [pods, {**vpas, "resources": ["verticalpodautoscalers"]}],
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30,
            "clientConfig": {"url": f"local://{self.LOCAL}"},
        }
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
        return {**kind, "metadata": {"name": self.CONFIGURATION}, "webhooks": [hook]}

    async def _renew(self) -> None:
        spec = {"holderIdentity": self._host, "renewTime": f"{self._scene.now:%Y-%m-%dT%H:%M:%S.%fZ}"}
        try:
            raw = await self._client.get_raw(LEASES, self.LEASE, namespace="kube-system")
            body = {**raw, "spec": {**raw["spec"], **spec}}
            await self._client.update(LEASES, self.LEASE, body, namespace="kube-system")
        except NotFound:
            kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.LEASE}}
            made = {**kind, "spec": {**spec, "leaseDurationSeconds": 10}}
            await self._client.create(LEASES, made, namespace="kube-system")
        except Conflict:
            pass

    async def _review(self, review: Raw) -> Raw:
        request = review["request"]
        response: Raw = {"uid": request["uid"], "allowed": True}
        if request["resource"]["resource"] == "pods":
            vpas = msgspec.json.decode((await self._client.request("GET", VPA_LIST)).body)["items"]
            labels = request["object"]["metadata"].get("labels") or {}
            if found := recommendations(vpas).get(labels.get("app", "")):
                response |= {"patchType": "JSONPatch", "patch": b64encode(_patch(request["object"], found)).decode()}
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _patch(pod: Raw, found: Raw) -> bytes:
    told = {"vpaUpdates": "Pod resources updated by web: container 0: cpu request, memory request"}
    notes = {**(pod["metadata"].get("annotations") or {}), **told}
    where = "/spec/containers/0/resources"
    return msgspec.json.encode(
        [
            {"op": "add", "path": "/metadata/annotations", "value": notes},
            {"op": "add", "path": where, "value": {"requests": found["target"]}},
        ]
    )


EXTENSIONS = {"Object": {"other": {"kept": 1}}}
"""What somebody else keeps in a NodeSLO."""


class UpstreamManager(Upstream):
    """Koordinator's manager: the objects of every node, and what of its CPU is overcommitted."""

    name, lease, namespace, period = "koord-manager", "koordinator-manager", "koordinator-system", 2.0
    RECLAIMED = 0.6

    async def act(self) -> None:
        metrics = {one["metadata"]["name"]: one for one in await self.items(NODE_METRICS.path())}
        slos = {one["metadata"]["name"] for one in await self.items(NODE_SLOS.path())}
        for node in await self.items(NODES.path()):
            name = node["metadata"]["name"]
            kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "metadata": {"name": name}}
            if name not in slos:
                await self.client.create(NODE_SLOS, {**kind, "kind": "NodeSLO", "spec": {"extensions": EXTENSIONS}})
            if name not in metrics:
                await self.client.create(NODE_METRICS, {**kind, "kind": "NodeMetric", "spec": {}})
            elif usage := ((metrics[name].get("status") or {}).get("nodeMetric") or {}).get("systemUsage"):
                await self._overcommit(node, usage["resources"])

    async def _overcommit(self, node: Raw, used: Raw) -> None:
        capacity = node["status"]["capacity"]
        cpu = parse_quantity(capacity["cpu"]).milli * self.RECLAIMED - parse_quantity(used["cpu"]).milli
        memory = int(parse_quantity(capacity["memory"]).value * 0.65) - parse_quantity(used["memory"]).value
        wanted = {"kubernetes.io/batch-cpu": str(int(cpu)), "kubernetes.io/batch-memory": str(memory)}
        status = {part: {**node["status"][part], **wanted} for part in ("capacity", "allocatable")}
        if status != {part: node["status"][part] for part in status}:
            patch = MergePatch({"status": status})
            await self.client.patch(NODES, node["metadata"]["name"], patch, subresource="status")
