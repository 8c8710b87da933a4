"""The write fails, then decide again: no strategy takes a wish for the truth, and one refusal delays, never decides."""

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubetide.clock import Clock
from kubetide.kube.client.client import Client
from kubetide.node.agent import NodeAgent
from kubetide.node.core.evictions.evictors import CpuEvict, MemoryEvict
from kubetide.node.core.features import parse_gates
from kubetide.node.core.outcomes import failures
from kubetide.node.core.qos.burst_limiter import Limiters
from kubetide.node.core.qos.cpu_burst import CpuBurst
from kubetide.node.core.qos.extensions import Extensions
from kubetide.node.core.qos.memory import MemoryQos
from kubetide.node.core.qos.strategy import Strategy
from kubetide.node.core.qos.suppress import RECOVERED, USING, CpuSuppress
from kubetide.node.enforcement import make_strategies
from kubetide.node.executor.evictor import NodeEvictor
from kubetide.node.settings import NodeSettings
from kubetide.node.strategy_runner import QosController
from kubetide.telemetry import Telemetry
from nodeworld import START, TestClock, World
from unit.node.core.evictions.test_evictors import full_node, raw, starve
from unit.node.executor.test_evictor import FakeApi
from unit.node.qos import scenes
from unit.node.qos.scenes import SCENES, quota_of_tier

EVICTING = {"cpu-evict", "memory-evict"}


def test_every_strategy_is_looked_at() -> None:
    agent = cast(
        "NodeAgent", SimpleNamespace(clock=TestClock(), gates=parse_gates("BECPUEvict=true,BEMemoryEvict=true"))
    )
    made = make_strategies(NodeSettings(), agent, cast("Any", SimpleNamespace(random=lambda: 0.5)), Extensions())
    assert {one.name for one in made} == SCENES.keys() | EVICTING


@dataclass
class Story:
    """How a scene went: the files at the end of every phase, who was written in which sync, what failed."""

    ends: list[dict[str, str]] = field(default_factory=list)
    written: list[set[str]] = field(default_factory=list)
    failed: Mapping[str, str] = field(default_factory=dict)


def told(name: str, version: int, *, refused_in: int = -1, refused: str = "") -> Story:
    """Play a scene; in one sync the kernel refuses to write one file."""
    scene, story = SCENES[name](version), Story()
    world, strategy = scene.world, scene.strategy
    for phase in scene.phases:
        phase(world)
        for _ in range(scene.syncs):
            world.clock.advance(1)
            world.host.writes.clear()
            if len(story.written) == refused_in:
                world.host.refused[refused] = errno.EBUSY
            outcomes = world.apply(world.decide(strategy), strategy)
            if len(story.written) == refused_in:
                story.failed = failures(outcomes)
            world.host.refused.clear()
            story.written.append({path for path, _ in world.host.writes})
        story.ends.append(dict(world.host.files))
    return story


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", SCENES)
def test_whichever_write_the_kernel_refuses_once_the_end_is_the_same(name: str, version: int) -> None:
    best = told(name, version)
    if (name, version) == ("blkio", 2):
        assert not any(best.written)
        return
    syncs = SCENES[name](version).syncs
    refusals = [(index, path) for index, paths in enumerate(best.written) for path in paths]
    assert refusals
    for index, path in refusals:
        assert index % syncs < syncs - 1, f"{path} is still written at the end of a phase"
        story = told(name, version, refused_in=index, refused=path)
        assert story.failed, f"the refusal of {path} in sync {index} is not among the outcomes"
        for phase, (expected, actual) in enumerate(zip(best.ends, story.ends, strict=True)):
            different = {key: actual[key] for key in expected if expected[key] != actual[key]}
            assert not different, f"{path} refused in sync {index}, end of phase {phase}"


@pytest.mark.parametrize("version", [1, 2])
def test_a_quota_counts_as_lifted_once_the_kernel_lifted_it(version: int) -> None:
    scene = scenes.suppress(version)
    world, strategy = scene.world, CpuSuppress()
    scene.phases[0](world)
    world.sync(strategy)
    assert (strategy.quota_status, quota_of_tier(world)) == (USING, 70000)
    path = next(path for path, _ in world.host.writes if path.endswith(("cpu.cfs_quota_us", "cpu.max")))
    scenes.threshold(enable=False)(world)
    world.host.refused[path] = errno.EBUSY
    for _ in range(3):
        world.sync(strategy)
        assert (strategy.quota_status, quota_of_tier(world)) == (USING, 70000)
    world.host.refused.clear()
    world.sync(strategy)
    assert (strategy.quota_status, quota_of_tier(world)) == (RECOVERED, -1)


@pytest.mark.parametrize("version", [1, 2])
def test_a_quota_that_was_never_taken_is_not_in_use_and_one_found_is(version: int) -> None:
    scene = scenes.suppress(version)
    world, strategy = scene.world, CpuSuppress()
    scene.phases[0](world)
    tier = world.paths.tier("BestEffort")
    name = "cpu.cfs_quota_us" if version == 1 else "cpu.max"
    path = f"{world.layout.cgroup_dir('cpu', tier)}/{name}"
    world.host.refused[path] = errno.EBUSY
    world.sync(strategy)
    assert strategy.quota_status != USING
    assert world.release(strategy).is_empty
    world.host.files[path] = "170000" if version == 1 else "170000 100000"  # an agent before this one left it
    assert not world.decide(strategy).trace.get("skipped")
    assert strategy.quota_status == USING
    world.host.refused.clear()
    world.release(strategy)
    assert quota_of_tier(world) == -1


@pytest.mark.parametrize("version", [1, 2])
def test_cpus_count_as_given_back_once_every_directory_has_them(version: int) -> None:
    scene = scenes.suppress(version)
    world, strategy = scene.world, CpuSuppress()
    scenes.threshold(enable=True, cpu_suppress_policy="cpuset")(world)
    world.sync(strategy)
    assert strategy.cpuset_status == USING
    place = world.pods[1].containers[0].directory
    path = f"{world.layout.cgroup_dir('cpuset', place)}/cpuset.cpus"
    assert world.host.files[path] == "0-1"
    scenes.threshold(enable=False)(world)
    world.host.refused[path] = errno.EBUSY
    world.sync(strategy)
    assert (strategy.cpuset_status, world.host.files[path]) == (USING, "0-1")
    world.host.refused.clear()
    world.release(strategy)
    assert (strategy.cpuset_status, world.host.files[path]) == (RECOVERED, "0-7")


@pytest.mark.parametrize("version", [1, 2])
def test_cpus_are_neither_taken_nor_given_back_below_a_directory_that_cannot_be_listed(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scenes.suppress(version)
    world, strategy = scene.world, CpuSuppress()
    scenes.threshold(enable=True, cpu_suppress_policy="cpuset")(world)
    world.sync(strategy)
    job = world.layout.cgroup_dir("cpuset", world.pods[1].directory)
    listed = world.host.list_dirs

    def fails(path: str) -> list[str]:
        if path == job:
            raise OSError(errno.EIO, "Input/output error", path)
        return listed(path)

    monkeypatch.setattr(world.host, "list_dirs", fails)
    assert "not known" in world.decide(strategy).trace["skipped"]
    scenes.threshold(enable=False)(world)
    world.sync(strategy)
    assert (strategy.cpuset_status, strategy.quota_status) == (USING, RECOVERED)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("refuses", ["pod", "container"])
def test_a_pod_neither_throttles_nor_outgrows_containers_whose_quota_is_refused_for_long(
    version: int, refuses: str
) -> None:
    scene = scenes.burst(version)
    world, strategy = scene.world, CpuBurst(Limiters(lambda: 0.5))
    scene.phases[0](world)
    web = world.pods[0]
    name = "cpu.cfs_quota_us" if version == 1 else "cpu.max"
    pod, container = (
        f"{world.layout.cgroup_dir('cpu', place)}/{name}" for place in (web.directory, web.containers[0].directory)
    )

    def quotas() -> tuple[int, int]:
        return int(world.host.files[pod].split()[0]), int(world.host.files[container].split()[0])

    world.host.refused[pod if refuses == "pod" else container] = errno.EBUSY
    for _ in range(6):
        world.clock.advance(1)
        world.sync(strategy)
    assert quotas() == ((100000, 298598) if refuses == "pod" else (120000, 100000))
    world.host.refused.clear()
    for _ in range(8):
        world.clock.advance(1)
        world.sync(strategy)
    assert quotas() == (300000, 300000)
    world.release(strategy)
    assert quotas() == (100000, 100000)


@pytest.mark.parametrize("version", [1, 2])
def test_only_the_memory_values_that_were_refused_are_wanted_again(version: int) -> None:
    scene = scenes.memory(version)
    world, strategy = scene.world, MemoryQos()
    scene.phases[0](world)
    web = world.pods[0]
    path = f"{world.layout.cgroup_dir('memory', web.directory)}/memory.low"
    world.host.refused[path] = errno.EBUSY
    world.sync(strategy)
    world.clock.advance(1)
    again = world.sync(strategy)
    assert [
        (write.directory, write.file.name) for batch in again.batches for level in batch.levels for write in level
    ] == [(web.directory, "memory.low")]
    world.host.refused.clear()
    world.clock.advance(1)
    world.sync(strategy)
    assert world.host.files[path] == str(2**30 * 60 // 100)
    assert world.decide(strategy).is_empty


@pytest.mark.parametrize("version", [1, 2])
def test_the_protection_of_a_tier_is_taken_back_however_long_the_kernel_refuses_it(version: int) -> None:
    scene = scenes.memory(version)
    world, strategy = scene.world, MemoryQos()
    scene.phases[0](world)
    world.sync(strategy)
    path = f"{world.layout.cgroup_dir('memory', world.paths.tier('Burstable'))}/memory.min"
    assert world.host.files[path] == str(2**29)
    world.pods.clear()
    world.host.refused[path] = errno.EBUSY
    for _ in range(25):  # longer than values stand without a second look
        world.clock.advance(1)
        world.sync(strategy)
    world.host.refused.clear()
    world.sync(strategy)
    assert world.host.files[path] == "0"
    world.clock.advance(25)
    written = [write for batch in world.decide(strategy).batches for level in batch.levels for write in level]
    assert not [write for write in written if write.file.name == "memory.min"], "it is taken back once"


class _Evicting:
    """A strategy that evicts, run by the agent's controller against an API server that may refuse."""

    def __init__(self, world: World, strategy: Strategy) -> None:
        self.api = FakeApi()
        clock: Clock = world.clock
        telemetry = Telemetry()
        evictor = NodeEvictor(
            Client(self.api, clock=clock), clock=clock, node_name="n", publish=lambda event: None, telemetry=telemetry
        )
        self.controller = QosController(
            [strategy],
            snapshot=world.snapshot,
            read=world.reader.read,
            executor=world.executor,
            evictor=evictor,
            clock=clock,
            telemetry=telemetry,
            node_name="n",
            gates={"BECPUEvict": True, "BEMemoryEvict": True},
        )
        self.strategy = strategy

    async def sync(self) -> list[str]:
        assert await self.controller.round(self.strategy) is not None
        return [one["metadata"]["name"] for one in self.api.evictions]


@pytest.mark.parametrize("name", sorted(EVICTING))
@pytest.mark.parametrize("refusal", ["failing", "protected"])
async def test_an_eviction_that_was_refused_is_asked_for_again_and_only_an_accepted_one_cools(
    name: str, refusal: str
) -> None:
    world = full_node(75, a=4, b=5)
    world.add_pods([raw("a"), raw("b")])
    starve(world)
    world.clock.advance(60)
    strategy: CpuEvict | MemoryEvict = MemoryEvict() if name == "memory-evict" else CpuEvict(START)
    evicting = _Evicting(world, strategy)
    names = {pod.name for pod in world.pods}
    getattr(evicting.api, refusal).update(names)
    for _ in range(2):
        assert await evicting.sync() == []
        world.clock.advance(1)
    getattr(evicting.api, refusal).clear()
    assert strategy.last_eviction is None
    assert await evicting.sync() != []
    assert strategy.last_eviction == world.clock.now()
