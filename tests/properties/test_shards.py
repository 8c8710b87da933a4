"""No two replicas own a range, whatever the network does, and no more ranges move than must."""

import asyncio
import random
from collections import Counter
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from faulty_api import FaultyApi
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.kube.control.core.membership import DRIFT_SECONDS, Member, claims_of, claims_texts, see, shares
from kubetide.kube.control.core.ranges import (
    ALL_RANGES,
    RANGES,
    Division,
    owners,
    parse_ranges,
    range_of,
    ranges_text,
    selector_of,
)
from kubetide.kube.control.core.slots import MOST_SLOTS, slot_owners
from kubetide.kube.control.shards import ShardMembership
from kubetide.vpa.updater.core.disruption import Limits
from properties.test_kube_leader import Network, SlowTransport
from simulated.replicas import SkewedClock

REPLICAS, SLOTS = 3, 5
names = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=20)
members = st.lists(names, min_size=1, max_size=12, unique=True)
some_ranges = st.frozensets(st.integers(0, RANGES - 1))


@given(members, st.randoms(use_true_random=False))
def test_every_process_finds_the_same_owners(found: list[str], rng: random.Random) -> None:
    mixed = found.copy()
    rng.shuffle(mixed)
    assert owners(mixed) == owners([*found, found[0]])
    assert set(owners(found)) <= set(found)


@given(members, names)
def test_a_member_that_joins_or_leaves_moves_only_its_own_ranges(found: list[str], joining: str) -> None:
    without = [name for name in found if name != joining]
    if not without:
        return
    before, after = owners(without), owners([*without, joining])
    assert all(old == new or new == joining for old, new in zip(before, after, strict=True))


@given(st.integers(2, 16), st.integers(0, 10_000))
def test_members_own_about_as_much_as_each_other(count: int, seed: int) -> None:
    shared = Counter(owners([f"replica-{seed}-{number}" for number in range(count)]))
    fair = RANGES / count
    # Five standard deviations of a fair draw.
    slack = 5 * (fair * (1 - 1 / count)) ** 0.5
    assert all(abs(shared[f"replica-{seed}-{number}"] - fair) <= slack for number in range(count))


@given(some_ranges)
def test_ranges_survive_being_written_down(ranges: frozenset[int]) -> None:
    assert parse_ranges(ranges_text(ranges)) == ranges


@given(some_ranges, st.frozensets(names, max_size=5), names, st.uuids().map(str))
def test_the_owner_of_an_object_reads_it_and_of_split_namespaces_everything(
    ranges: frozenset[int], split: frozenset[str], namespace: str, uid: str
) -> None:
    division = Division(split=split)
    reads = division.selector(ranges).matches(uid, namespace)
    assert reads or division.range_of(namespace, uid) not in ranges
    assert reads == bool(ranges and (namespace in split or range_of(namespace) in ranges))
    assert division.selector(ALL_RANGES).covers(division.selector(ranges))


@given(some_ranges, st.frozensets(st.integers(0, MOST_SLOTS - 1)))
def test_claims_of_ranges_and_slots_survive_being_written_down(ranges: frozenset[int], slots: frozenset[int]) -> None:
    claims = ranges | {RANGES + number for number in slots}
    written, slots_written = claims_texts(claims)
    assert claims_of(written, left=False, slots=slots_written) == claims
    assert claims_of(written, left=False, slots="garbage") >= set(range(RANGES, RANGES + MOST_SLOTS))


@given(members, st.integers(1, 40), st.integers(0, 5))
def test_members_have_as_many_slots_as_each_other(found: list[str], slots: int, turn: int) -> None:
    shared = Counter(slot_owners(found, slots, turn=turn))
    counts = [shared[member] for member in found]
    assert sum(counts) == slots
    assert max(counts) - min(counts) <= 1
    assert slot_owners([*reversed(found)], slots, turn=turn) == slot_owners(found, slots, turn=turn)


@given(members, st.integers(1, 4))
def test_everybody_has_a_turn_where_there_are_fewer_slots_than_members(found: list[str], slots: int) -> None:
    turns = [slot_owners(found, slots, turn=turn) for turn in range(len(found))]
    assert set().union(*turns) == set(found)


@given(members, st.integers(1, 40), st.integers(1, 1000))
def test_the_parts_of_a_limit_are_never_more_than_the_limit(found: list[str], slots: int, limit: int) -> None:
    shared = Counter(slot_owners(found, slots))
    limits = Limits(per_minute=limit, burst=limit, rate=float(limit), rate_burst=limit, at_once=limit)
    parts = [limits.part(shared[member], slots) for member in found]
    assert sum(part.per_minute for part in parts) <= limit
    assert sum(part.at_once for part in parts) <= limit
    assert sum(part.rate for part in parts) <= limit + 1e-6
    assert limits.part(slots, slots) == limits


@given(some_ranges, names)
def test_the_selector_of_ranges_matches_their_namespaces(ranges: frozenset[int], namespace: str) -> None:
    assert selector_of(ranges).matches("", namespace) == (range_of(namespace) in ranges)
    assert selector_of(ALL_RANGES).matches("", namespace)


@given(some_ranges, st.floats(0, 100), st.booleans())
def test_what_a_live_member_claims_is_free_for_nobody(claims: frozenset[int], age: float, left: bool) -> None:
    other = Member(lease="b", version="1", claims=claims, duration=15.0, seen_at=0.0, left=left)
    found = shares("a", [other], now=age)
    alive = age < 15.0 + DRIFT_SECONDS and not left
    assert other.alive(age) is alive
    assert not (found.free & claims) if alive else found.free == ALL_RANGES
    assert found.free <= found.wanted


def test_a_lease_that_somebody_deleted_counts_until_it_would_have_run_out() -> None:
    other = Member(lease="b", version="1", claims=frozenset({7}), duration=15.0, seen_at=0.0)
    assert see([other], [], now=15.0) == (other,)
    assert see([other], [], now=16.0) == ()


def test_a_state_keeps_the_time_it_was_first_seen() -> None:
    first = Member(lease="b", version="1", claims=frozenset({7}), duration=15.0, seen_at=0.0)
    again = Member(lease="b", version="1", claims=frozenset({7}), duration=15.0, seen_at=9.0)
    renewed = Member(lease="b", version="2", claims=frozenset({7}), duration=15.0, seen_at=9.0)
    assert see([first], [again], now=9.0) == (first,)
    assert see([first], [renewed], now=9.0) == (renewed,)


def test_a_claim_that_cannot_be_read_claims_everything() -> None:
    assert claims_of("garbage", left=False) == ALL_RANGES
    assert claims_of("", left=False) == ALL_RANGES
    assert claims_of("garbage", left=True) == frozenset()


class Work:
    """Owns ranges, and takes its time to end the work on them."""

    def __init__(self, membership: ShardMembership) -> None:
        self.membership = membership
        self.ranges: set[int] = set()

    async def take_ranges(self, ranges: frozenset[int]) -> None:
        await asyncio.sleep(0.5)
        self.ranges |= ranges

    async def give_up_ranges(self, ranges: frozenset[int]) -> None:
        await asyncio.sleep(1.0)
        self.ranges -= ranges

    async def lead(self) -> None:
        try:
            await asyncio.sleep(10_000)
        finally:
            self.ranges.clear()


steps = st.lists(
    st.tuples(
        st.sampled_from(("cut", "heal", "slow", "fast", "lose", "keep", "stop")),
        st.integers(0, REPLICAS - 1),
        st.integers(0, 25),
    ),
    max_size=20,
)


@settings(max_examples=25)
@given(plan=steps, seed=st.integers(0, 1000))
def test_no_two_replicas_own_a_range_at_the_same_time(plan: list[tuple[str, int, int]], seed: int) -> None:
    overlaps: list[frozenset[int]] = []

    async def main() -> None:
        api, clock = FaultyApi(), virtual_clock()
        networks = [Network() for _ in range(REPLICAS)]
        transports = [SlowTransport(api, network) for network in networks]
        works: list[Work] = []
        for index, transport in enumerate(transports):
            skewed = SkewedClock(clock, timedelta(hours=index - 1), 1.0 + 0.02 * (index - 1))
            client = Client(transport, clock=skewed, rng=random.Random(seed + index))
            membership = ShardMembership(
                client,
                clock=skewed,
                group="hpa",
                namespace="kube-system",
                identity=f"replica-{index}",
                rng=random.Random(seed + index),
                slots=SLOTS,
            )
            works.append(Work(membership))
            membership.owner = works[-1]

        async def check() -> None:
            while True:
                # Slots of a limit are owned as ranges are.
                held = [work.membership._held if work.membership.is_leader else frozenset() for work in works]
                overlaps.extend(
                    both for one in range(REPLICAS) for other in range(one) if (both := held[one] & held[other])
                )
                await asyncio.sleep(0.25)

        async with asyncio.TaskGroup() as group:
            checking = group.create_task(check())
            tasks = [group.create_task(work.membership.run(work.lead)) for work in works]
            for step, index, seconds in plan:
                match step:
                    case "cut" | "heal":
                        networks[index].cut = step == "cut"
                    case "slow" | "fast":
                        transports[index].delay = 4.0 if step == "slow" else 0.0
                    case "lose" | "keep":
                        transports[index].lose_answers = step == "lose"
                    case _:
                        tasks[index].cancel()
                await asyncio.sleep(seconds)
            for network, transport in zip(networks, transports, strict=True):
                network.cut, transport.delay, transport.lose_answers = False, 0.0, False
            await asyncio.sleep(60)
            # Once everything is well again, every range has an owner that works on it, if anybody is left.
            alive = [work for work, task in zip(works, tasks, strict=True) if not task.done()]
            held = [work.membership.held for work in alive]
            assert frozenset().union(*held) == (ALL_RANGES if alive else frozenset())
            assert all(work.ranges == work.membership.held for work in alive)
            assert sum(work.membership.share().slots for work in alive) == (SLOTS if alive else 0)
            for task in (checking, *tasks):
                task.cancel()

    run_virtual(main())
    assert not overlaps, overlaps
