"""The SLO controller against a real kube-apiserver, with the permissions of its manifests and no more."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from e2e.controlplane import ControlPlane, connected
from e2e.programs import PATIENCE
from kubetide import crds
from kubetide.api.objects.scheme import CONFIG_MAPS, CRDS, EVENTS, NAMESPACES, NODE_METRICS, NODES, untyped
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.errors import KubetideError
from kubetide.install.rbac import CLUSTER, LOCAL
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, Conflict
from kubetide.kube.control.recorder import EventRecorder
from kubetide.slo.cluster_view import RAW_NODE_SLOS, RAW_TOPOLOGIES
from kubetide.slo.controller import SloController
from kubetide.slo.node_objects import replaced_spec
from kubetide.slo.settings import SloSettings
from kubetide.telemetry import Telemetry

CLOCK = SystemClock()
USER, NODE, SYSTEM = "kubetide-slo", "lender", "koordinator-system"
CONFIG = "slo-controller-config"
ROLES = untyped("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = untyped("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
SETTINGS = SloSettings(
    leader_elect_lease_duration=timedelta(seconds=4),
    leader_elect_renew_deadline=timedelta(seconds=3),
    leader_elect_retry_period=timedelta(seconds=1),
)
OWN = {"cpu": "8", "memory": "16Gi", "pods": "110", "example.com/theirs": "3"}
ZONES = [
    {
        "name": f"node-{number}",
        "type": "Node",
        "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}],
    }
    for number in range(2)
]
Raw = dict[str, Any]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(KubetideError):
                if await condition():
                    return
            await asyncio.sleep(0.2)


async def install(admin: Client) -> None:
    """Create the kinds, the permissions that the manifests would give, and a node with two zones."""
    for name in ("nodeslos", "nodemetrics", "noderesourcetopologies", "devices"):
        with suppress(AlreadyExists):
            await admin.create(CRDS, crds.load(name))
    rules = [right.rule() for right in CLUSTER["slo"]]
    rules += [local.right.rule() for local in LOCAL["slo"]]
    await admin.create(ROLES, {"metadata": {"name": USER}, "rules": rules})
    subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    await admin.create(BINDINGS, {"metadata": {"name": USER}, "roleRef": reference, "subjects": [subject]})
    with suppress(AlreadyExists):
        await admin.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
    await admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    status = MergePatch({"status": {"capacity": OWN, "allocatable": OWN}})
    await admin.patch(NODES, NODE, status, subresource="status")

    async def zoned() -> bool:
        made = {"metadata": {"name": NODE}, "topologyPolicies": ["None"], "zones": ZONES}
        kind = {"apiVersion": RAW_TOPOLOGIES.api_version, "kind": RAW_TOPOLOGIES.kind}
        with suppress(AlreadyExists):
            await admin.create(RAW_TOPOLOGIES, {**kind, **made})
        return True

    await until(zoned)


async def configure(admin: Client, **keys: Raw | str) -> None:
    data = {
        name.replace("_", "-"): value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in keys.items()
    }
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG, "namespace": SYSTEM}, "data": data}
    try:
        await admin.create(CONFIG_MAPS, body, namespace=SYSTEM)
    except AlreadyExists:
        await admin.patch(CONFIG_MAPS, CONFIG, MergePatch({"data": data}), namespace=SYSTEM)


@pytest.fixture
async def admin(control_plane: ControlPlane) -> AsyncIterator[Client]:
    """An administrator beside a running controller that has only its own permissions."""
    async with connected(control_plane, "admin") as admin, connected(control_plane, USER) as client:
        await install(admin)
        recorder = EventRecorder(client, clock=CLOCK, component="nodeslo-controller")
        made = SloController(client, CLOCK, SETTINGS, Telemetry(), recorder, random.Random(2))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(made.run()), group.create_task(recorder.run())]
            try:
                yield admin
            finally:
                for task in tasks:
                    task.cancel()
        await admin.delete(NODES, NODE)
        await admin.delete(RAW_TOPOLOGIES, NODE)
        await admin.delete(CONFIG_MAPS, CONFIG, namespace=SYSTEM)
        for resource in (BINDINGS, ROLES):
            await admin.delete(resource, USER)


async def report(admin: Client) -> None:
    usage = {"resources": {"cpu": "500m", "memory": "1Gi"}}
    status = {
        "updateTime": f"{CLOCK.now():%Y-%m-%dT%H:%M:%SZ}",
        "nodeMetric": {"nodeUsage": usage, "systemUsage": usage},
    }
    await admin.patch(NODE_METRICS, NODE, MergePatch({"status": status}), subresource="status")


async def allocatable(admin: Client) -> Raw:
    return dict((await admin.get(NODES, NODE)).status.allocatable or {})


async def test_a_real_server_takes_what_is_overcommitted_and_every_nodeslo(admin: Client) -> None:
    await configure(admin, colocation_config={"enable": True, "cpuReclaimThresholdPercent": 50})

    async def reported() -> bool:
        await report(admin)
        return True

    await until(reported)

    async def lends() -> bool:
        return "kubernetes.io/batch-cpu" in await allocatable(admin)

    await until(lends)
    assert await allocatable(admin) == {
        **OWN,
        # Half of 8 cores, less the system; 65 % of 16Gi, less the system.
        "kubernetes.io/batch-cpu": "3500",
        "kubernetes.io/batch-memory": "10093173146",
        # Nothing of what prod pods requested is predicted to stay unused.
        "kubernetes.io/mid-cpu": "0",
        "kubernetes.io/mid-memory": "0",
    }
    node = await admin.get(NODES, NODE)
    assert "3500" in (node.metadata.annotations or {})["node.koordinator.sh/originExtendedAllocatable"]

    async def zoned() -> bool:
        zones = (await admin.get(RAW_TOPOLOGIES, NODE)).zones or []
        return all("kubernetes.io/batch-cpu" in {each["name"] for each in zone["resources"]} for zone in zones)

    await until(zoned)
    zones = (await admin.get(RAW_TOPOLOGIES, NODE)).zones or []
    assert [each["name"] for each in zones[0]["resources"]] == [
        "cpu",
        "kubernetes.io/batch-cpu",
        "kubernetes.io/batch-memory",
    ]

    kept = {"labels": {"theirs": "yes"}, "finalizers": ["example.com/theirs"]}
    await admin.patch(RAW_NODE_SLOS, NODE, MergePatch({"metadata": kept}))
    stale = await admin.get(RAW_NODE_SLOS, NODE)
    await configure(admin, resource_threshold_config={"clusterStrategy": {"enable": True}})

    async def told() -> bool:
        spec = (await admin.get(RAW_NODE_SLOS, NODE)).spec or {}
        return spec["resourceUsedThresholdWithBE"]["enable"] is True

    await until(told)
    found = await admin.get(RAW_NODE_SLOS, NODE)
    assert (found.metadata.labels, list(found.metadata.finalizers or ())) == (kept["labels"], kept["finalizers"])
    with pytest.raises(Conflict):
        await admin.patch(RAW_NODE_SLOS, NODE, replaced_spec(stale, {}))
    await admin.patch(RAW_NODE_SLOS, NODE, MergePatch({"metadata": {"finalizers": None}}))

    await configure(admin, resource_threshold_config="broken")

    async def heard() -> bool:
        events = await admin.list(EVENTS, namespace=SYSTEM)
        return any(event.reason == "SLOCfgUnmarshalFailed" for event in events.items)

    await until(heard)
    assert await told()

    await configure(admin, colocation_config={"enable": False})

    async def gone() -> bool:
        return await allocatable(admin) == OWN

    await until(gone)
