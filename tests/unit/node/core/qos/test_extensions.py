"""Extensions of the strategies: who may answer for whom, what is refused at the start, what is survived."""

import errno
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.api.qos.slo_strategies import (
    CPUBurstConfig,
    CPUBurstStrategy,
    MemoryQOS,
    NodeSLOSpec,
    PodMemoryQOS,
    ResourceQOS,
    ResourceQOSStrategy,
)
from kubetide.api.values.codec import convert
from kubetide.errors import SettingsError
from kubetide.node.core.evictions.selection import Selection
from kubetide.node.core.plan import Plan
from kubetide.node.core.qos.burst_limiter import Limiters
from kubetide.node.core.qos.cpu_burst import CpuBurst
from kubetide.node.core.qos.extensions import GROUP, Extension, Extensions, switched_on
from kubetide.node.core.qos.memory import MemoryQos
from kubetide.node.core.qos.strategy import Strategy
from kubetide.node.core.series import kinds
from kubetide.node.core.snapshot import PodState, Snapshot
from kubetide.node.enforcement import installed_extensions
from kubetide.node.strategy_runner import QosController
from kubetide.telemetry import Telemetry
from nodeworld import World, processors_of

EXAMPLE = Path(__file__).parents[5] / "examples" / "qos-extension"


class Burst(Extension):
    """Gives every pod burst."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def cpu_burst(self, pod: PodState) -> CPUBurstConfig | None:
        self.asked.append(pod.name)
        return CPUBurstConfig(policy="auto", cpu_burst_percent=50)


class Protect(Extension):
    """Protects the memory of every pod."""

    def memory_qos(self, pod: PodState) -> PodMemoryQOS | None:
        return PodMemoryQOS(min_limit_percent=50)


class Broken(Extension):
    """Fails whatever it is asked."""

    def cpu_burst(self, pod: PodState) -> CPUBurstConfig | None:
        raise ZeroDivisionError("oh")

    def memory_qos(self, pod: PodState) -> PodMemoryQOS | None:
        return MemoryQOS()  # type: ignore[return-value]  # a mistake that no checker of ours sees


@dataclass
class Probe:
    name: str = "probe"
    interval: timedelta = timedelta(seconds=5)

    def decide(self, snapshot: Snapshot) -> Plan:
        return Plan()


class Bringing(Extension):
    """Has a strategy of its own."""

    def strategies(self) -> Sequence[Strategy]:
        return (Probe(),)


def world_with(**annotations: str) -> World:
    """Return a node with one latency-sensitive pod; the NodeSLO has burst off and no memory protection."""
    world = World()
    world.processors = processors_of([{"cpu": 0}, {"cpu": 1}])
    world.node = convert({"status": {"allocatable": {"memory": "8Gi"}}}, Node)
    world.slo = NodeSLOSpec(
        cpu_burst_strategy=CPUBurstStrategy(policy="none", cpu_burst_percent=1000),
        resource_qos_strategy=ResourceQOSStrategy(ls_class=ResourceQOS(memory_qos=MemoryQOS(min_limit_percent=0))),
    )
    pod = world.add_pod(
        {
            "metadata": {
                "name": "web",
                "namespace": "default",
                "uid": "web",
                "labels": {qos.LABEL_QOS: "LS"},
                "annotations": annotations,
            },
            "spec": {
                "containers": [
                    {"name": "main", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1", "memory": "1Gi"}}}
                ]
            },
            "status": {
                "phase": "Running",
                "qosClass": "Burstable",
                "containerStatuses": [{"name": "main", "containerID": "containerd://main"}],
            },
        }
    )
    for directory in (world.paths.kube_root, pod.directory, pod.containers[0].directory):
        world.cgroup("cpu", directory, {"cpu.cfs_quota_us": "100000", "cpu.cfs_burst_us": "0"})
        world.cgroup("memory", directory, {"memory.min": "0"})
    return world


def container_burst(world: World, extensions: Extensions) -> tuple[int, Plan]:
    plan = world.decide(CpuBurst(Limiters(lambda: 0.0), extensions=extensions))
    world.apply(plan)
    return int(world.text("cpu", world.pods[0].containers[0].directory, "cpu.cfs_burst_us")), plan


def pod_minimum(world: World, extensions: Extensions) -> tuple[int, Plan]:
    plan = world.decide(MemoryQos(extensions=extensions))
    world.apply(plan)
    return int(world.text("memory", world.pods[0].directory, "memory.min")), plan


def test_an_answer_acts_as_the_annotation_would() -> None:
    said = world_with(**{qos.ANNOTATION_CPU_BURST: '{"policy":"auto","cpuBurstPercent":50}'})
    assert container_burst(world_with(), Extensions())[0] == 0
    assert container_burst(world_with(), Extensions({"burst": Burst()}))[0] == 50_000
    assert container_burst(said, Extensions())[0] == 50_000
    assert pod_minimum(world_with(), Extensions())[0] == 0
    assert pod_minimum(world_with(), Extensions({"protect": Protect()}))[0] == 2**29


@pytest.mark.parametrize("annotation", ['{"policy":"none"}', "{}", "broken"])
def test_a_pod_that_speaks_for_itself_is_not_asked_about(annotation: str) -> None:
    extension = Burst()
    world = world_with(**{qos.ANNOTATION_CPU_BURST: annotation, qos.ANNOTATION_MEMORY_QOS: annotation})
    assert container_burst(world, Extensions({"burst": extension}))[0] == 0
    assert extension.asked == []
    assert pod_minimum(world, Extensions({"protect": Protect()}))[0] == 0


def test_a_failing_extension_is_told_and_the_next_one_answers() -> None:
    both = Extensions({"broken": Broken(), "burst": Burst(), "protect": Protect()})
    value, plan = container_burst(world_with(), both)
    assert value == 50_000
    assert plan.trace["extensions"] == {"broken.cpu_burst": "default/web: ZeroDivisionError: oh"}
    value, plan = pod_minimum(world_with(), both)
    assert value == 2**29
    assert "MemoryQOS is not PodMemoryQOS" in plan.trace["extensions"]["broken.memory_qos"]


def test_memory_is_decided_anew_each_sync_while_an_extension_is_asked() -> None:
    class Rising(Extension):
        percent = 0

        def memory_qos(self, pod: PodState) -> PodMemoryQOS | None:
            self.percent += 25
            return PodMemoryQOS(min_limit_percent=self.percent)

    world = world_with()
    strategy = MemoryQos(extensions=Extensions({"rising": Rising()}))
    values = []
    for _ in range(2):
        world.sync(strategy)
        values.append(int(world.text("memory", world.pods[0].directory, "memory.min")))
        world.clock.advance(1)
    assert values == [2**28, 2**29]


def documented_strategy(name: str = "IdleTier") -> Any:
    """Return a strategy that the documentation shows."""
    page = (EXAMPLE.parents[1] / "docs" / "node" / "qos.md").read_text(encoding="utf-8")
    block = next(part.partition("```")[0] for part in page.split("```python\n") if f"class {name}" in part)
    space: dict[str, Any] = {}
    exec(compile(block, "docs/node/qos.md", "exec"), space)
    return space[name]()


async def test_a_strategy_of_others_sees_what_it_needs_and_hears_what_became_of_it() -> None:
    class Brings(Extension):
        def strategies(self) -> Sequence[Strategy]:
            return (documented_strategy(), Probe())

    world = World()
    tier = world.paths.tier(BEST_EFFORT)
    idle, probe = Extensions({"brings": Brings()}).strategies()
    controller = QosController(
        [idle, probe],
        snapshot=world.snapshot,
        read=world.reader.read,
        executor=world.executor,
        evictor=None,
        clock=world.clock,
        telemetry=Telemetry(),
        node_name="n",
        gates={},
    )
    plan = await controller.round(idle)
    assert plan is not None
    assert "No such file" in plan.trace["skipped"]
    world.cgroup("cpu", tier, {"cpu.shares": "1024"})
    path = f"{world.layout.cgroup_dir('cpu', tier)}/cpu.shares"
    world.host.refused[path] = errno.EBUSY
    await controller.round(idle)
    assert "refused" in controller.decisions["idle-tier"]["notWritten"][f"{tier}/cpu.shares"]
    world.host.refused.clear()
    for _ in range(2):
        await controller.round(idle)
    assert (world.host.files[path], cast("Any", idle).repaired) == ("2", 1)
    assert controller.decisions["idle-tier"]["notWritten"] == {}
    assert await controller.round(probe) == Plan()


def test_the_documented_eviction_asks_for_the_largest_pods_until_the_surplus_is_gone() -> None:
    world = World()
    strategy = documented_strategy("NoisyNeighbours")
    for name, cores in (("small", 1.0), ("large", 3.0), ("medium", 2.0), ("elsewhere", 9.0)):
        space = "other" if name == "elsewhere" else "labs"
        meta = {"name": name, "namespace": space, "uid": name}
        world.add_pod({"metadata": meta, "status": {"phase": "Running", "qosClass": "BestEffort"}})
        world.metrics.set(kinds.POD_CPU, cores, {kinds.POD_UID: name})
    plan = strategy.decide(world.snapshot())
    selection, asked = Selection(plan.tasks, plan.pending), []
    while (eviction := selection.next()) is not None:
        asked.append(eviction.name)
        selection.accepted(eviction)
    assert asked == ["large"]  # 2 of 6 cores are too much
    world.metrics.set(kinds.POD_CPU, 0.5, {kinds.POD_UID: "large"})
    assert strategy.decide(world.snapshot()).tasks == ()


def test_the_flag_switches_by_name_and_strategies_come_along() -> None:
    installed = {"burst": Burst, "bringing": Bringing}
    chosen = switched_on("bringing=true, burst=false", installed)
    assert list(chosen.active) == ["bringing"]
    assert [one.name for one in chosen.strategies()] == ["probe"]
    assert not switched_on("", installed).active


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("nobody=true", "unknown extension 'nobody'; installed: burst, fails, wrong", id="unknown"),
        pytest.param("nobody=false", "unknown extension 'nobody'", id="unknown-and-off"),
        pytest.param("burst", "extension burst must be true or false", id="no-value"),
        pytest.param("burst=maybe", "extension burst must be true or false", id="bad-value"),
        pytest.param("fails=true", "extension 'fails' cannot be loaded: no module", id="does-not-load"),
        pytest.param("wrong=true", "extension 'wrong' gives a object, no Extension", id="no-extension"),
    ],
)
def test_a_wrong_flag_is_a_clear_error(text: str, message: str) -> None:
    def fails() -> Extension:
        raise ImportError("no module")

    installed: dict[str, Any] = {"burst": Burst, "fails": fails, "wrong": object}
    with pytest.raises(SettingsError, match=message) as caught:
        switched_on(text, installed)
    assert caught.value.field == "qos-extension-plugins"


def test_the_example_is_found_by_its_entry_point_and_bursts_some_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [f"[{GROUP}]", *(f"{name} = {where}" for name, where in project["entry-points"][GROUP].items())]
    installed = tmp_path / "gradual_burst-0.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: gradual-burst\nVersion: 0.1\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("GRADUAL_BURST_PERCENT", "50")
    chosen = switched_on("gradual-burst=true", installed_extensions())
    world = World()
    for number in range(100):
        world.add_pod({"metadata": {"name": f"p{number}", "namespace": "default", "uid": f"uid-{number}"}})
    world.add_pod({"metadata": {"name": "other", "namespace": "kube-system", "uid": "uid-1"}})
    answers = [chosen.cpu_burst(pod) for pod in world.pods]
    assert 30 < sum(answer is not None for answer in answers) < 70
    assert answers[-1] is None
    assert chosen.problems == {}
