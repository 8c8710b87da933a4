"""What holds for every strategy and every way in: bare kernels are survived, and all doors lead to the same values."""

import logging
from pathlib import Path
from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import CgroupDriver
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.node.core.evictions.evictors import CpuEvict, MemoryEvict
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.formats.storage import StorageFacts
from kubetide.node.core.hooks.context import HookResponse
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.rules import DEFAULT_GATES, Plugins
from kubetide.node.core.hooks.stages import Stage
from kubetide.node.core.qos.blkio import BlkIo
from kubetide.node.core.qos.burst_limiter import Limiters
from kubetide.node.core.qos.cpu_burst import CpuBurst
from kubetide.node.core.qos.memory import MemoryQos
from kubetide.node.core.qos.resctrl import Resctrl
from kubetide.node.core.qos.suppress import CpuSuppress
from kubetide.node.core.qos.system import SystemConfig
from kubetide.node.core.series import kinds
from kubetide.node.core.slo import complete
from kubetide.node.runtime.hook_service import HookService
from nodeworld import START, World

EVERYTHING_ON: dict[str, Any] = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressPolicy": "cfsQuota",
        "cpuEvictBESatisfactionLowerPercent": 30,
        "cpuEvictBESatisfactionUpperPercent": 40,
    },
    "cpuBurstStrategy": {"policy": "auto"},
    "resourceQOSStrategy": {
        name: {block: {"enable": True} for block in ("cpuQOS", "memoryQOS", "resctrlQOS")}
        for name in ("lsrClass", "lsClass", "beClass")
    },
    "hostApplications": [{"name": "app", "qos": "LS"}],
}
BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}


def pod(name: str, label: str, kube: str, resources: dict[str, Any]) -> dict[str, Any]:
    spec = '{"containers":{"main":{"requests":%s,"limits":%s}}}'
    text = '{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"}'
    return {
        "metadata": {
            "name": name,
            "namespace": "d",
            "uid": name,
            "labels": {qos.LABEL_QOS: label},
            "annotations": {qos.ANNOTATION_EXTENDED_RESOURCES: spec % (text, text)} if label == "BE" else {},
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": resources, "limits": resources}}]},
        "status": {
            "phase": "Running",
            "qosClass": kube,
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{name}"}],
        },
    }


def busy_world(version: int, driver: CgroupDriver) -> World:
    """A node with everything switched on, and a kernel that has none of the files."""
    world = World(version=version, driver=driver)
    amounts = {"cpu": "4", "memory": "8Gi"}
    raw = {"metadata": {"name": "n"}, "status": {"capacity": amounts, "allocatable": amounts}}
    world.node = convert(raw, Node)
    world.slo = convert(complete(EVERYTHING_ON), NodeSLOSpec)
    world.topology = {qos.ANNOTATION_LS_SHARE_POOLS: '[{"socket":0,"node":0,"cpuset":"0-2"}]'}
    world.processors = tuple(Processor(cpu=n, core=n, socket=0, node=0) for n in range(4))
    world.storage = StorageFacts(disk_number={"/dev/vda": "253:0"})
    world.add_pod(pod("web", "LS", "Burstable", {"cpu": "1", "memory": "1Gi"}))
    world.add_pod(pod("job", "BE", "BestEffort", BATCH))
    world.metrics.set(kinds.NODE_CPU, 3.0)
    world.metrics.set(kinds.NODE_MEMORY, 7.9 * 2**30)
    world.clock.advance(60)
    return world


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("driver", list(CgroupDriver))
def test_a_kernel_without_any_of_the_files_is_survived_quietly(
    version: int, driver: CgroupDriver, caplog: pytest.LogCaptureFixture
) -> None:
    world = busy_world(version, driver)
    deciders: list[Any] = [
        CpuSuppress(),
        CpuBurst(Limiters(lambda: 0.5)),
        CpuEvict(START),
        MemoryEvict(),
        MemoryQos(),
        BlkIo(),
        Resctrl(),
        SystemConfig(),
    ]
    hooks = HookDecider(Plugins(gates=dict.fromkeys(DEFAULT_GATES, True)))
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            for decider in deciders:
                world.sync(decider)
            world.pass_of(hooks)
            world.clock.advance(15)
    assert world.host.writes == []
    assert world.executor.counts.failed == 0
    assert caplog.records == []


@pytest.mark.parametrize("name", ["web", "job"])
def test_every_way_in_gives_a_pod_the_same_values(name: str) -> None:
    world = busy_world(1, CgroupDriver.SYSTEMD)
    plugins = Plugins()
    HookDecider(plugins).refresh(world.snapshot())
    state = next(one for one in world.pods if one.name == name)
    from kubetide.node.core.hooks.requests import container_request, pod_request

    known = pod_request(state)
    service = HookService(plugins, world.executor, world.layout)
    told = service.pod(
        namespace="d",
        name=name,
        uid=name,
        labels=state.pod.metadata.labels or {},
        annotations=state.pod.metadata.annotations or {},
        cgroup_parent=f"/{state.directory}",
    )
    by_runtime = service.run_pod(Stage.PRE_RUN_POD_SANDBOX, told).response
    assert by_runtime == _together(ask() for _, ask in plugins.pod(known))
    asked = service.container(told, name="main", container_id=name, env={})
    assert asked.cgroup_parent == state.containers[0].directory
    repaired = _together(ask() for _, ask in plugins.container(container_request(known, state.containers[0])))
    for stage in (Stage.PRE_CREATE_CONTAINER, Stage.PRE_UPDATE_CONTAINER_RESOURCES):
        assert service.run_container(stage, asked).response == repaired


def _together(responses: Any) -> HookResponse:
    merged = HookResponse()
    for response in responses:
        merged = response.over(merged)
    return merged


def test_the_generated_messages_are_those_of_the_proto_files() -> None:
    from kubetide.node.runtime.protos import cri_pb2, hooks_pb2, nri_pb2, ttrpc_pb2

    folder = Path(cri_pb2.__file__).parent
    for module in (cri_pb2, hooks_pb2, nri_pb2, ttrpc_pb2):
        text = (folder / module.DESCRIPTOR.name).read_text(encoding="utf-8")
        declared = {line.split()[1] for line in text.splitlines() if line.startswith("message ")}
        assert declared == set(module.DESCRIPTOR.message_types_by_name)
