"""The hook reconciler: its loop, the switch of the kernel, and the cookies it reports."""

import asyncio
from datetime import timedelta
from typing import Any

from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.clock import LoopClock
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.rules import CORE_SCHED, OOM_SCORE, Plugins
from kubetide.node.hook_reconciler import HookReconciler
from kubetide.telemetry import Telemetry
from nodeworld import START, MemoryCookies, World

IDENTITY = {"resourceQOSStrategy": {"lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}}}}
SWITCH = "/proc/sys/kernel/sched_group_identity_enabled"


def reconciler(world: World, plugins: Plugins, **options: Any) -> HookReconciler:
    return HookReconciler(
        HookDecider(plugins),
        snapshot=world.snapshot,
        read=world.reader.read,
        executor=world.executor,
        clock=options.pop("clock", world.clock),
        telemetry=options.pop("telemetry", None) or Telemetry(),
        node_name="n",
        **options,
    )


def web(world: World, **annotations: str) -> Any:
    meta = {"name": "web", "namespace": "d", "uid": "web", "labels": {"koordinator.sh/qosClass": "LS"}}
    pod = world.add_pod(
        {
            "metadata": {**meta, "annotations": annotations},
            "spec": {"containers": [{"name": "main"}]},
            "status": {
                "phase": "Running",
                "qosClass": "Burstable",
                "containerStatuses": [{"name": "main", "containerID": "containerd://main"}],
            },
        }
    )
    world.cgroup("cpu", pod.directory, {"cpu.bvt_warp_ns": "0"})
    world.cgroup("cpu", world.paths.kube_root, {"cpu.bvt_warp_ns": "0", "cpu.idle": "0"})
    return pod


def test_wake_ups_collapse_and_the_interval_repairs_without_any() -> None:
    world = World()

    async def main() -> int:
        hooks = reconciler(world, Plugins(), clock=LoopClock(START), interval=timedelta(seconds=10))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(hooks.run())
            await asyncio.sleep(1)
            for _ in range(5):
                hooks.wake()
            await asyncio.sleep(1)
            await asyncio.sleep(10)
            running.cancel()
        return hooks.passes

    assert run_virtual(main()) == 3


async def test_the_kernels_switch_is_set_before_the_first_value_and_never_back() -> None:
    world = World()
    world.slo = convert(IDENTITY, NodeSLOSpec)
    pod = web(world)
    world.host.files[SWITCH] = "0"
    hooks = reconciler(world, Plugins())
    await hooks.reconcile()
    assert world.host.writes[0] == (SWITCH, "1")
    assert world.text("cpu", pod.directory, "cpu.bvt_warp_ns") == "2"


async def test_nothing_is_written_while_the_switch_cannot_be_set() -> None:
    world = World()
    world.slo = convert(IDENTITY, NodeSLOSpec)
    pod = web(world)
    world.host.files[SWITCH] = "0"
    world.host.refused[SWITCH] = 13
    hooks = reconciler(world, Plugins())
    await hooks.reconcile()
    assert world.text("cpu", pod.directory, "cpu.bvt_warp_ns") == "0"
    del world.host.refused[SWITCH]
    await hooks.reconcile()
    assert world.text("cpu", pod.directory, "cpu.bvt_warp_ns") == "2"


async def test_a_failing_pass_is_survived() -> None:
    world = World()
    hooks = reconciler(world, Plugins())
    good, hooks._snapshot = hooks._snapshot, lambda: (_ for _ in ()).throw(RuntimeError("gone"))
    await hooks.reconcile()
    explained = hooks.explain("node", "n")
    assert explained is not None
    assert explained["failing"] == "RuntimeError: gone"
    hooks._snapshot = good
    await hooks.reconcile()
    assert hooks.explain("node", "n") != explained


def test_a_new_group_identity_is_named_as_the_reason_of_its_values() -> None:
    world = World()
    world.slo = convert(IDENTITY, NodeSLOSpec)
    web(world)
    decider = HookDecider(Plugins())

    def reasons() -> set[str]:
        plan = world.pass_of(decider)
        return {write.reason for batch in plan.batches for level in batch.levels for write in level}

    assert reasons() == {"GroupIdentity"}
    assert reasons() == {"runtime-hooks"}


async def test_the_reconciler_gives_pods_their_cookies() -> None:
    world = World()
    pod = web(world)
    spec = {
        "resourceQOSStrategy": {
            "policies": {"cpuPolicy": "coreSched"},
            "lsClass": {"cpuQOS": {"enable": True, "schedIdle": 0, "coreExpeller": True}},
            "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}},
        }
    }
    world.slo = convert(spec, NodeSLOSpec)
    for tier in world.paths.tiers():
        world.cgroup("cpu", tier, {"cpu.idle": "0"})
    world.cgroup("cpu", pod.containers[0].directory, {"cgroup.procs": "11\n12\n"})
    kernel = MemoryCookies({11: 0, 12: 0})
    hooks = reconciler(world, Plugins(gates={CORE_SCHED: True}), cookies=kernel)
    await hooks.reconcile()
    assert kernel.cookies == {11: 100, 12: 100}
    labels = {
        "node": "n",
        "pod_namespace": "d",
        "pod_name": "web",
        "pod_uid": "web",
        "container_name": "main",
        "container_id": "containerd://main",
        "core_sched_group": "-expeller",
        "core_sched_cookie": "100",
    }
    (sample,) = [one for metric in hooks._cookie_gauge.collect() for one in metric.samples]
    assert (sample.labels, sample.value) == (labels, 100.0)
    assert list(hooks.decider.cookies.groups) == ["-expeller"]
    assert [world.text("cpu", tier, "cpu.idle") for tier in world.paths.tiers()] == ["0", "0", "1"]


async def test_scores_of_containers_are_gauges_as_long_as_they_are_in_force() -> None:
    world, telemetry = World(version=2), Telemetry()
    pod = web(world, **{qos.ANNOTATION_OOM_SCORE_ADJ: "300"})
    world.cgroup("cpu", pod.containers[0].directory, {"cgroup.procs": "11\n"})
    world.host.files["/proc/11/oom_score_adj"] = "0"
    hooks = reconciler(world, Plugins(gates={OOM_SCORE: True}), telemetry=telemetry)

    def shown() -> list[tuple[str, str, float]]:
        found = (one for metric in telemetry.registry.collect() for one in metric.samples)
        of_scores = (one for one in found if one.name == "koordlet_container_oom_score_adj")
        return [(one.labels["pod_name"], one.labels["container_name"], one.value) for one in of_scores]

    for _ in range(2):  # written at first, found unchanged afterwards
        await hooks.reconcile()
        assert shown() == [("web", "main", 300.0)]
    world.pods.clear()
    await hooks.reconcile()
    assert shown() == []
