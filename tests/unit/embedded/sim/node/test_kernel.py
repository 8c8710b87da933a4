"""The kernel model: fair shares, quotas, bursts, cpusets, pressure, page cache and the OOM killer."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.embedded.sim.node.groups import CGroup
from kubetide.embedded.sim.node.kernel import Kernel, Machine
from kubetide.embedded.sim.node.sharing import water_fill

GIB = float(2**30)


def make_machine(cpus: int = 4, memory: float = 8 * GIB) -> tuple[Kernel, Machine]:
    kernel = Kernel(rows=2)
    return kernel, kernel.add_machine("node-1", cpus=cpus, memory_bytes=memory)


def busy(kernel: Kernel, machine: Machine, path: str, demand: float, *, shares: int = 1024) -> int:
    row = kernel.start(machine, path)
    kernel.group_of(row).shares = shares
    kernel.demand[row] = demand
    kernel.changed(machine)
    return row


@pytest.mark.parametrize(
    ("capacity", "wants", "weights", "expected"),
    [
        pytest.param(10, [1, 2], [1, 1], [1, 2], id="enough-for-all"),
        pytest.param(4, [4, 4], [1, 1], [2, 2], id="equal-weights-share-equally"),
        pytest.param(4, [4, 4], [3, 1], [3, 1], id="weights-divide"),
        pytest.param(4, [0.5, 4], [3, 1], [0.5, 3.5], id="what-one-leaves-another-takes"),
        pytest.param(0, [1, 1], [1, 1], [0, 0], id="nothing-to-share"),
    ],
)
def test_cpu_is_shared_by_weight_and_never_above_the_want(
    capacity: float, wants: Sequence[float], weights: Sequence[float], expected: Sequence[float]
) -> None:
    assert water_fill(capacity, wants, weights) == pytest.approx(expected)


@given(
    st.floats(0.1, 64),
    st.lists(st.tuples(st.floats(0, 16), st.integers(2, 262144)), min_size=1, max_size=12),
)
def test_sharing_wastes_nothing_and_gives_nobody_too_much(capacity: float, tasks: list[tuple[float, int]]) -> None:
    wants = [want for want, _ in tasks]
    parts = water_fill(capacity, wants, [float(weight) for _, weight in tasks])
    assert sum(parts) == pytest.approx(min(capacity, sum(wants)))
    assert all(0 <= part <= want + 1e-9 for part, want in zip(parts, wants, strict=True))


def test_usage_is_demand_while_there_is_room() -> None:
    kernel, machine = make_machine()
    row = busy(kernel, machine, "kubepods/a", 1.5)
    kernel.advance(10)
    assert kernel.usage[row] == pytest.approx(15)
    assert kernel.stall[row] == 0


def test_a_crowded_node_shares_by_tier_then_by_pod() -> None:
    kernel, machine = make_machine(cpus=4)
    web = busy(kernel, machine, "kubepods/burstable/web", 8)
    one = busy(kernel, machine, "kubepods/besteffort/one", 8)
    two = busy(kernel, machine, "kubepods/besteffort/two", 8)
    for path, shares in (("kubepods/burstable", 3072), ("kubepods/besteffort", 1024)):
        machine.tree.make(path).shares = shares
    kernel.changed(machine)
    kernel.advance(1)
    assert [kernel.granted[row] for row in (web, one, two)] == pytest.approx([3, 0.5, 0.5])


def test_a_quota_slows_a_pod_and_counts_throttled_periods() -> None:
    kernel, machine = make_machine()
    row = busy(kernel, machine, "kubepods/pod/app", 2)
    kernel.advance(10)
    kernel.group_of(row).quota_us = 50_000
    kernel.changed(machine)
    kernel.advance(20)
    assert kernel.usage[row] == pytest.approx(20 + 5)
    periods, throttled, seconds = kernel.throttling_of(kernel.group_of(row))
    assert periods == pytest.approx(100)
    assert throttled == pytest.approx(100)
    assert seconds == pytest.approx(7.5)


def test_a_quota_on_the_pod_binds_its_containers_together() -> None:
    kernel, machine = make_machine()
    rows = [busy(kernel, machine, f"kubepods/pod/{name}", 2) for name in "ab"]
    machine.tree.make("kubepods/pod").quota_us = 100_000
    kernel.changed(machine)
    kernel.advance(10)
    assert [kernel.usage[row] for row in rows] == pytest.approx([5, 5])
    assert kernel.throttling_of(machine.tree.make("kubepods/pod"))[1] == pytest.approx(100)


def test_a_burst_allowance_absorbs_peaks_but_not_steady_overload() -> None:
    kernel, machine = make_machine()
    row = busy(kernel, machine, "kubepods/pod/app", 0.95)
    group = kernel.group_of(row)
    group.quota_us = 100_000
    kernel.changed(machine)
    kernel.settle()
    without = float(kernel.throttle_rate[row])
    group.burst_us = 50_000
    kernel.changed(machine)
    kernel.settle()
    assert without > 0
    assert kernel.throttle_rate[row] < without
    kernel.demand[row] = 3
    kernel.demand_changed()
    kernel.settle()
    assert kernel.granted[row] == pytest.approx(1)
    assert kernel.throttle_rate[row] == pytest.approx(10)


def test_a_cpuset_confines_a_pod_and_leaves_the_rest_to_others() -> None:
    kernel, machine = make_machine(cpus=4)
    pinned = [busy(kernel, machine, f"kubepods/pinned/{name}", 2) for name in "ab"]
    free = busy(kernel, machine, "kubepods/free/app", 4)
    machine.tree.make("kubepods/pinned").cpus = frozenset({0})
    kernel.changed(machine)
    kernel.advance(1)
    assert [kernel.granted[row] for row in pinned] == pytest.approx([0.5, 0.5])
    assert kernel.granted[free] == pytest.approx(3)


def test_an_idle_group_gets_what_nobody_else_wants() -> None:
    kernel, machine = make_machine(cpus=2)
    busy_row = busy(kernel, machine, "kubepods/ls", 2)
    idle_row = busy(kernel, machine, "kubepods/be", 2)
    machine.tree.make("kubepods/be").idle = 1
    kernel.changed(machine)
    kernel.advance(1)
    assert kernel.granted[busy_row] > 1.99
    kernel.demand[busy_row] = 0.5
    kernel.demand_changed()
    kernel.advance(2)
    assert kernel.granted[idle_row] == pytest.approx(1.5)


def test_pressure_rises_with_waiting_and_fades_after() -> None:
    kernel, machine = make_machine(cpus=1)
    row = busy(kernel, machine, "kubepods/app", 2)
    kernel.advance(30)
    high = kernel.pressure_of(machine.tree.root, "cpu")
    assert high[0] == pytest.approx(0.5, abs=0.05)
    assert high[0] > high[1] > high[2]
    kernel.demand[row] = 0.5
    kernel.advance(31)
    kernel.demand_changed()
    kernel.advance(90)
    assert kernel.pressure_of(machine.tree.root, "cpu")[0] < 0.01


def test_counters_of_the_dead_stay_with_the_group() -> None:
    kernel, machine = make_machine()
    row = busy(kernel, machine, "kubepods/pod/app", 1)
    kernel.advance(5)
    kernel.stop(row)
    again = busy(kernel, machine, "kubepods/pod/app2", 1)
    kernel.advance(10)
    assert again == row, "a row is used again"
    machine.tree.remove(machine.tree.make("kubepods/pod/app"))
    assert kernel.usage_of(machine.tree.make("kubepods/pod")) == pytest.approx(10)


def test_the_table_grows_with_its_processes() -> None:
    kernel, machine = make_machine(cpus=64)
    rows = [busy(kernel, machine, f"kubepods/{number}", 0.1) for number in range(50)]
    kernel.advance(10)
    assert [float(kernel.usage[row]) for row in rows] == pytest.approx([1.0] * 50)


def test_page_cache_gives_way_to_processes_before_anybody_is_killed() -> None:
    kernel, machine = make_machine(memory=4 * GIB)
    a, b = (busy(kernel, machine, f"kubepods/{name}", 0.1) for name in "ab")
    kernel.cache_goal[[a, b]] = 2 * GIB
    kernel.anon[[a, b]] = [1 * GIB, 2 * GIB]
    kernel.demand_changed()
    kernel.advance(1)
    assert kernel.file[[a, b]].tolist() == pytest.approx([0.5 * GIB, 0.5 * GIB])
    assert kernel.out_of_memory() == []


def test_a_process_above_its_limit_is_killed() -> None:
    kernel, machine = make_machine()
    row = busy(kernel, machine, "kubepods/pod/app", 0.1)
    kernel.group_of(row).memory_limit = 2**20
    kernel.anon[row] = 2**21
    kernel.changed(machine)
    kernel.settle()
    assert [(kill.row, kill.scope) for kill in kernel.out_of_memory()] == [(row, "container")]


def test_a_pod_limit_kills_its_largest_container() -> None:
    kernel, machine = make_machine()
    small, large = (busy(kernel, machine, f"kubepods/pod/{name}", 0.1) for name in "ab")
    kernel.anon[[small, large]] = [2**20, 2**22]
    machine.tree.make("kubepods/pod").memory_limit = 2**22
    kernel.changed(machine)
    kernel.settle()
    assert [(kill.row, kill.scope) for kill in kernel.out_of_memory()] == [(large, "group")]


def test_a_full_node_kills_the_most_expendable() -> None:
    kernel, machine = make_machine(memory=2 * GIB)
    guaranteed, best_effort = (busy(kernel, machine, f"kubepods/{name}", 0.1) for name in "ab")
    kernel.anon[[guaranteed, best_effort]] = [1.5 * GIB, 0.6 * GIB]
    kernel.oom_adjust[[guaranteed, best_effort]] = [-997, 1000]
    kernel.demand_changed()
    assert [(kill.row, kill.scope) for kill in kernel.out_of_memory()] == [(best_effort, "node")]


def test_memory_is_looked_at_again_only_after_it_changed() -> None:
    kernel, machine = make_machine()
    row = busy(kernel, machine, "kubepods/pod/app", 0.1)
    kernel.group_of(row).memory_limit = 2**20
    kernel.cache_goal[row] = 2**18
    assert kernel.out_of_memory() == []
    kernel.anon[row] = 2**21
    kernel.demand_changed(memory=False)
    assert kernel.out_of_memory() == []
    assert kernel.file[row] == 2**18
    kernel.demand_changed()
    assert [kill.row for kill in kernel.out_of_memory()] == [row]
    assert kernel.file[row] == 0
    assert [kill.row for kill in kernel.out_of_memory()] == [row], "as long as it is there"
    kernel.stop(row)
    assert kernel.out_of_memory() == []


def test_averages_are_kept_from_the_first_stall_on() -> None:
    kernel, machine = make_machine(cpus=1)
    row = busy(kernel, machine, "kubepods/a", 0.5)
    kernel.advance(10)
    pressed = [kernel.pressed]
    kernel.demand[row] = 2.0
    kernel.demand_changed(memory=False)
    kernel.advance(20)
    assert [*pressed, kernel.pressed] == [False, True]
    assert kernel.some10[row] == pytest.approx(0.5 * (1 - math.exp(-1)))
    kernel.demand[row] = 0.5
    kernel.demand_changed(memory=False)
    kernel.advance(30)
    assert kernel.some10[row] == pytest.approx(0.5 * (1 - math.exp(-1)) * math.exp(-1))


def test_a_group_with_children_cannot_be_removed() -> None:
    _, machine = make_machine()
    group: CGroup = machine.tree.make("kubepods/pod")
    assert group.path == "kubepods/pod"
    with pytest.raises(OSError, match="busy"):
        machine.tree.remove(machine.tree.make("kubepods"))
