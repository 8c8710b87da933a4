"""Laws of the QoS strategies: choosing CPUs, bursting, ordering of writes, cache masks, evictions."""

import contextlib
from dataclasses import dataclass
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.values.cpuset import CpuSet
from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.evictions.features import cpu_order, memory_order
from kubetide.node.core.evictions.pods import EvictablePod
from kubetide.node.core.evictions.selection import planned
from kubetide.node.core.plan import Batch, Counted, Eviction, EvictionTask, Plan, Target, Write
from kubetide.node.core.qos.burst_limiter import Bucket
from kubetide.node.core.qos.burst_quota import Operation, ceiling_us, target_us
from kubetide.node.core.qos.cpu_pick import pick
from kubetide.node.core.qos.cpu_suppress import choose, cpu_count, pools, quota_target
from kubetide.node.core.qos.l3_cache import l3_mask
from nodeworld import START, MemoryHost, World


@dataclass(frozen=True)
class Cpu:
    cpu: int
    core: int
    socket: int
    node: int


@st.composite
def machines(draw: st.DrawFn) -> list[Cpu]:
    sockets, cores = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    threads = draw(st.sampled_from([1, 2]))
    every = [
        Cpu(cpu=(s * cores + c) * threads + t, core=s * cores + c, socket=s, node=s)
        for s in range(sockets)
        for c in range(cores)
        for t in range(threads)
    ]
    return [cpu for cpu in every if draw(st.booleans()) or draw(st.booleans())]


@given(machines(), st.integers(0, 70))
def test_a_pick_is_that_many_different_cpus_of_the_machine_or_nothing(machine: list[Cpu], count: int) -> None:
    picked = pick(count, machine)
    assert len(picked) in (0, count)
    assert len(set(picked)) == len(picked)
    assert set(picked) <= {cpu.cpu for cpu in machine}
    assert len(picked) == count or len(machine) < count or count == 0


@given(machines(), st.integers(2, 40))
def test_whole_cores_are_taken_before_single_threads(machine: list[Cpu], count: int) -> None:
    picked = pick(count, machine)
    core = {cpu.cpu: cpu.core for cpu in machine}
    free = set(core) - set(picked)
    torn = [cpu for cpu in picked if any(core[other] == core[cpu] for other in free)]
    whole = {core[one] for one in free if sum(core[two] == core[one] for two in free) == 2}
    assert len(torn) <= 1 or not whole


@given(machines(), st.data(), st.integers(-4000, 70000), st.integers(0, 64))
def test_exclusive_and_reserved_cpus_are_never_given_away(
    machine: list[Cpu], data: st.DataObject, left: int, current: int
) -> None:
    from kubetide.node.core.formats.processors import Processor

    processors = [Processor(cpu=c.cpu, core=c.core, socket=c.socket, node=c.node) for c in machine]
    owners = {c.cpu: data.draw(st.sampled_from(["LSE", "LSR", "LS", ""])) for c in machine}
    excluded = CpuSet.of(c.cpu for c in machine if data.draw(st.integers(0, 9)) == 0)
    chosen = choose(cpu_count(left, current, len(machine)), pools(processors, owners, excluded))
    assert not chosen.ids & excluded.ids
    assert not any(owners[cpu] == "LSE" for cpu in chosen)


@given(st.integers(-100_000, 1_000_000), st.integers(1, 512), st.integers(-1, 60_000_000))
def test_the_quota_never_grows_by_more_than_a_tenth_and_never_falls_below_the_minimum(
    left: int, cpus: int, current: int
) -> None:
    target = quota_target(left, cpus, current)
    if target is not None:
        assert target >= 2000 or target >= current
        if current >= 0:
            assert target - current <= cpus * 10_000


@given(
    st.integers(10, 64_000),
    st.integers(0, 1000),
    st.integers(-1, 20_000_000),
    st.lists(st.sampled_from(list(Operation)), max_size=20),
)
def test_a_bursting_quota_stays_between_base_and_ceiling(
    limit_milli: int, percent: int, current: int, operations: list[Operation]
) -> None:
    base = max(limit_milli * 100, 1000)
    ceiling = ceiling_us(base, percent)
    for operation in operations:
        current = target_us(current, base, ceiling, operation)
        assert base <= current <= ceiling


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(0, 400)), max_size=40), st.integers(0, 100), st.integers(100, 400)
)
def test_a_bucket_never_leaves_its_bounds_and_loses_no_time(
    steps: list[tuple[float, int]], period: int, percent: int
) -> None:
    bucket = Bucket(period, percent, 0, START)
    now = START
    for seconds, usage in steps:
        now += timedelta(seconds=seconds)
        bucket.step(usage, now)
        assert abs(bucket.tokens) <= bucket.capacity
        assert timedelta(0) <= now - bucket.updated_at < timedelta(seconds=1)


@given(st.integers(1, 32), st.integers(0, 100), st.integers(0, 100))
def test_a_cache_mask_is_one_run_of_ways_and_neighbours_do_not_overlap(ways: int, middle: int, end: int) -> None:
    cbm = (1 << ways) - 1

    def mask(start: int, stop: int) -> int:
        try:
            return int(l3_mask(cbm, start, stop), 16)
        except InvalidInput:
            return 0

    low, high = mask(0, middle), mask(middle, end)
    assert low & high == 0
    for one in (low, high):
        assert one & ~cbm == 0
        run = one // (one & -one) if one else 0
        assert run & (run + 1) == 0


amounts = st.one_of(st.none(), st.integers(0, 100))


@st.composite
def best_effort(draw: st.DrawFn) -> EvictablePod:
    name = draw(st.text("abc", min_size=1, max_size=4))
    return EvictablePod(
        uid=name,
        namespace="d",
        name=name,
        priority=draw(st.one_of(st.none(), st.integers(0, 3))),
        request_milli=draw(st.integers(0, 100)),
        used_milli=draw(st.integers(0, 100)),
        memory_used=draw(amounts),
        terminating_since=draw(st.sampled_from([None, None, START - timedelta(seconds=5), START - timedelta(hours=1)])),
    )


@given(st.lists(best_effort(), unique_by=lambda pod: pod.name, max_size=12), st.integers(0, 400))
def test_evictions_take_no_more_than_needed_and_nobody_who_leaves_already(pods: list[EvictablePod], need: int) -> None:
    amounts = {pod.uid: pod.memory_used or 0 for pod in pods}
    candidates = tuple(
        Eviction(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            reason="r",
            message="m",
            releases={Counted.USAGE: {"memory": amounts[pod.uid]}},
        )
        for pod in memory_order(pod for pod in pods if not pod.terminating)
    )
    task = EvictionTask(feature="f", counted=Counted.USAGE, amounts={"memory": need}, candidates=candidates)
    chosen, after = planned((task,), {})
    assert len({one.uid for one in chosen}) == len(chosen)
    assert all(amounts[one.uid] > 0 for one in chosen)
    released = sum(amounts[one.uid] for one in chosen)
    if chosen:
        assert released - amounts[chosen[-1].uid] < need
    if after.missing(task):
        assert released == sum(amounts[one.uid] for one in candidates)


@given(st.lists(best_effort(), unique_by=lambda pod: pod.name, max_size=12), st.randoms())
def test_the_order_of_victims_does_not_depend_on_the_order_of_the_list(pods: list[EvictablePod], rng: object) -> None:
    shuffled = sorted(pods, key=lambda pod: hash((pod.name, id(rng))))
    assert cpu_order(shuffled) == cpu_order(pods)
    assert memory_order(shuffled) == memory_order(pods)


class Crash(Exception):
    """The agent was killed."""


class FragileHost(MemoryHost):
    """A host whose agent is killed before one of its writes."""

    left = 10**9

    def write(self, path: str, value: str) -> None:
        if self.left <= 0:
            raise Crash
        self.left -= 1
        super().write(path, value)


quotas = st.one_of(st.just(-1), st.integers(1000, 500_000))


@st.composite
def trees(draw: st.DrawFn) -> dict[str, tuple[int, int]]:
    """A tier, pods and containers with quotas before and after; parents at least as large as their children."""
    tree: dict[str, tuple[int, int]] = {}

    def inside(limit: int) -> int:
        value = draw(quotas)
        return value if limit == -1 else limit if value == -1 else min(value, limit)

    tree["t"] = (draw(quotas), draw(quotas))
    for pod in ("t/a", "t/b"):
        tree[pod] = (inside(tree["t"][0]), inside(tree["t"][1]))
        for name in ("x", "y"):
            tree[f"{pod}/{name}"] = (inside(tree[pod][0]), inside(tree[pod][1]))
    return tree


@settings(max_examples=150)
@given(trees(), st.integers(0, 12))
def test_an_interrupted_update_of_quotas_leaves_parents_above_their_children(
    tree: dict[str, tuple[int, int]], crash_after: int
) -> None:
    host = FragileHost()
    world = World(host=host)
    for directory, (before, _) in tree.items():
        world.cgroup("cpu", f"kubepods.slice/{directory}", {"cpu.cfs_quota_us": str(before)})
    levels: list[list[Write]] = [[], [], []]
    for directory, (_, after) in tree.items():
        place = f"kubepods.slice/{directory}"
        levels[directory.count("/")].append(
            Write(file=files.CPU_QUOTA, value=str(after), directory=place, target=Target.TIER)
        )
    host.left = crash_after
    with contextlib.suppress(Crash):
        world.apply(Plan(batches=(Batch(levels=tuple(map(tuple, levels)), leveled=True),)))

    def quota(directory: str) -> float:
        value = int(world.text("cpu", f"kubepods.slice/{directory}", "cpu.cfs_quota_us"))
        return float("inf") if value == -1 else value

    for directory in tree:
        if "/" in directory:
            assert quota(directory.rpartition("/")[0]) >= quota(directory)
