"""From which CPUs best-effort work grows: the fewest that the tier or any container below it has."""

import pytest

from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.node.core.compat import parse_compat
from kubetide.node.core.qos.suppress import CpuSuppress
from nodeworld import World
from unit.node.qos.scenes import node, threshold, use


def suppressed(
    compat: str, cpus: dict[str, str], *, version: int = 1, used: float = 0.5
) -> tuple[World, dict[str, object]]:
    world = node(version)
    world.compat = parse_compat(compat)
    use(total=used, web=0.1)(world)
    threshold(enable=True, cpu_suppress_policy="cpuset")(world)
    name = "cpuset.cpus" if version == 1 else "cpuset.cpus.effective"
    job = world.pods[1]
    places = {"tier": world.paths.tier(BEST_EFFORT), "pod": job.directory, "main": job.containers[0].directory}
    for place, text in cpus.items():
        world.cgroup("cpuset", places[place], {name: text})
    return world, world.decide(CpuSuppress()).trace


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("compat", "current"),
    [pytest.param("1.4", "0-7", id="the-tier-before-1.5"), pytest.param("1.8", "0-1", id="the-smallest-since")],
)
def test_a_container_that_was_narrowed_counts_although_tier_and_sandbox_have_all_cpus(
    version: int, compat: str, current: str
) -> None:
    _, trace = suppressed(compat, {"main": "0-1"}, version=version)
    assert trace["currentCpus"] == current


def test_growth_starts_at_the_containers() -> None:
    # About six of eight CPUs are left; a tenth of the node, at least one, is added per sync.
    assert suppressed("1.8", {"main": "0-1"})[1]["count"] == 3
    assert suppressed("1.4", {"main": "0-1"})[1]["count"] == 6


def test_the_cpus_of_pods_do_not_count_and_an_empty_list_says_nothing() -> None:
    assert suppressed("1.8", {"pod": "0", "main": ""})[1]["currentCpus"] == "0-7"


def test_a_directory_that_vanishes_does_not_fail_the_sync() -> None:
    world, _ = suppressed("1.8", {})
    gone = world.layout.cgroup_dir("cpuset", world.pods[1].containers[0].directory)
    del world.host.files[f"{gone}/cpuset.cpus"]
    world.host.files[f"{gone}/tasks"] = ""  # listed, but without CPUs to be read
    trace = world.decide(CpuSuppress()).trace
    assert trace["currentCpus"] == "0-7"
    assert "skipped" not in trace


def test_a_tier_that_cannot_be_read_skips_the_sync() -> None:
    world, _ = suppressed("1.8", {})
    del world.host.files[f"{world.layout.cgroup_dir('cpuset', world.paths.tier(BEST_EFFORT))}/cpuset.cpus"]
    assert "cannot be read" in str(world.decide(CpuSuppress()).trace["skipped"])
