"""Laws of the kernel model: nobody gets more than allowed, nothing is wasted, counters only grow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.embedded.sim.node.groups import CGroup
from kubetide.embedded.sim.node.kernel import Kernel, Machine

CPUS = 8


@st.composite
def machines(draw: st.DrawFn) -> tuple[Kernel, Machine]:
    """A node with tiers, pods and containers under random quotas, shares, cpusets and demands."""
    kernel = Kernel()
    machine = kernel.add_machine("node", cpus=CPUS, memory_bytes=2.0**34)
    for tier in draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True)):
        for pod in range(draw(st.integers(1, 3))):
            for container in range(draw(st.integers(1, 2))):
                row = kernel.start(machine, f"{tier}/{pod}/{container}")
                kernel.demand[row] = draw(st.floats(0, 10))
                kernel.anon[row] = draw(st.floats(0, 2**30))
                kernel.cache_goal[row] = draw(st.floats(0, 2**33))
    for group in machine.tree.root.walk():
        if group is machine.tree.root:
            continue
        group.shares = draw(st.integers(2, 4096))
        if draw(st.booleans()):
            group.quota_us = draw(st.integers(1000, 800_000))
        if draw(st.integers(0, 3)) == 0:
            group.cpus = frozenset(draw(st.sets(st.integers(0, CPUS - 1), min_size=1)))
    kernel.changed(machine)
    kernel.settle()
    return kernel, machine


def granted(kernel: Kernel, group: CGroup) -> float:
    return sum(float(kernel.granted[leaf.row]) for leaf in group.leaves() if leaf.row is not None)


@given(machines())
def test_no_group_gets_more_than_its_limits(world: tuple[Kernel, Machine]) -> None:
    kernel, machine = world
    for group in machine.tree.root.walk():
        got = granted(kernel, group)
        assert got <= len(machine.cpus) + 1e-6
        assert group.quota_cores is None or got <= group.quota_cores + 1e-6
        assert got <= len(group.effective_cpus(machine.cpus)) + 1e-6
    for leaf in machine.tree.root.leaves():
        assert leaf.row is not None
        assert -1e-9 <= kernel.granted[leaf.row] <= kernel.demand[leaf.row] + 1e-9


@given(machines())
def test_without_limits_nothing_is_wasted(world: tuple[Kernel, Machine]) -> None:
    kernel, machine = world
    for group in machine.tree.root.walk():
        group.quota_us = None
        group.cpus = None
    kernel.changed(machine)
    kernel.settle()
    wanted = sum(
        min(float(kernel.demand[leaf.row]), CPUS) for leaf in machine.tree.root.leaves() if leaf.row is not None
    )
    assert granted(kernel, machine.tree.root) == pytest.approx(min(CPUS, wanted), abs=1e-6)


@given(machines(), st.lists(st.floats(0.1, 100), min_size=2, max_size=5))
def test_counters_only_grow_and_add_up(world: tuple[Kernel, Machine], steps: list[float]) -> None:
    kernel, machine = world
    now, before = 0.0, 0.0
    for seconds in steps:
        now += seconds
        kernel.advance(now)
        usage = kernel.usage_of(machine.tree.root)
        assert usage >= before
        assert usage <= CPUS * now + 1e-6
        assert usage == pytest.approx(kernel.totals(kernel.usage)[machine.index][0])
        before = usage
        for group in machine.tree.root.walk():
            periods, throttled, _ = kernel.throttling_of(group)
            assert 0 <= throttled <= periods + 1e-6
            assert all(0 <= average <= 1 for average in kernel.pressure_of(group, "cpu")[:3])


@given(machines())
def test_page_cache_never_pushes_the_node_over_its_memory(world: tuple[Kernel, Machine]) -> None:
    kernel, machine = world
    anon, file = kernel.memory_of(machine.tree.root)
    assert file >= 0
    assert anon + file <= max(machine.memory_bytes, anon) + 1
