"""Laws of the updater that no table can exhaust."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import Quantity
from kubetide.testing.builders import make_pod
from kubetide.vpa.core.safety import fit, fits_somewhere, hold_memory, largest, memory_floor
from kubetide.vpa.updater.core.breaker import CLOSED, after_replacement
from kubetide.vpa.updater.core.budget import BudgetRules, Creator, build_budget
from kubetide.vpa.updater.core.disruption import DisruptionBudget
from kubetide.vpa.updater.core.inplace import may_evict

START = datetime(2026, 1, 5, tzinfo=UTC)
RS = Creator("default", "ReplicaSet", "web")
OWNER = {"kind": "ReplicaSet", "name": "web", "controller": True}

phases = st.lists(st.sampled_from(["Running", "Pending", "Unknown"]), min_size=1, max_size=12)
byte_counts = st.integers(0, 2**40)


def pods_in(given_phases: list[str]) -> list[Pod]:
    result = []
    for number, phase in enumerate(given_phases):
        raw: dict[str, Any] = make_pod(f"web-{number}", phase=phase)
        raw["metadata"]["ownerReferences"] = [OWNER]
        result.append(convert(raw, Pod))
    return result


@given(phases, st.integers(0, 15), st.floats(0, 1), st.integers(1, 5), st.data())
def test_evictions_of_running_pods_never_exceed_the_tolerance(
    given_phases: list[str], configured: int, tolerance: float, minimum: int, data: st.DataObject
) -> None:
    pods = pods_in(given_phases)
    budget = build_budget(pods, {RS: configured}, BudgetRules(min_replicas=minimum, tolerance=tolerance))
    running = [pod for pod in pods if pod.status.phase != "Pending"]
    gone = 0
    for pod in data.draw(st.permutations(pods)):
        if may_evict(pod, budget.group_of(pod), waited=timedelta()):
            budget.record_eviction(pod)
            gone += pod.status.phase != "Pending"
    if len(pods) < minimum or not configured:
        assert gone == 0
    else:
        left = len(running) - gone
        assert gone <= 1 or left >= configured - int(configured * tolerance)


@given(st.integers(1, 120), st.integers(1, 30), st.lists(st.floats(0, 90), max_size=200))
def test_no_minute_ever_sees_more_disruptions_than_the_budget(per_minute: int, burst: int, pauses: list[float]) -> None:
    budget = DisruptionBudget(per_minute=per_minute, burst=burst, started=START)
    now, times = START, []
    for pause in pauses:
        now = budget.next_at(now + timedelta(seconds=pause))
        budget.record(now)
        times.append(now)
    for index, begin in enumerate(times):
        within = sum(at - begin < timedelta(minutes=1) for at in times[index:])
        assert within <= per_minute
    assert all(at - START >= timedelta(minutes=1) for at in times)


@given(byte_counts, byte_counts, st.none() | byte_counts)
def test_memory_is_never_shrunk_below_what_is_in_use(target: int, request: int, used: int | None) -> None:
    kept, _ = hold_memory(Quantity.of(target), Quantity.of(request), used)
    assert kept >= min(Quantity.of(target), Quantity.of(request))
    if target < request:
        assert kept <= Quantity.of(request)
        assert used is not None or kept == Quantity.of(request)
        assert used is None or kept >= min(memory_floor(used), Quantity.of(request))
    else:
        assert kept == Quantity.of(target)


amounts = st.builds(
    lambda cpu, memory: {"cpu": Quantity.of_milli(cpu), "memory": Quantity.of(memory)},
    st.integers(1, 10**6),
    st.integers(1, 2**40),
)


@given(st.dictionaries(st.sampled_from("abcd"), amounts, min_size=1), st.lists(amounts, min_size=1, max_size=5))
def test_a_pod_that_starts_from_nothing_always_fits_afterwards(
    wanted: dict[str, dict[str, Quantity]], nodes: list[dict[str, Quantity]]
) -> None:
    fitted, scaled = fit(wanted, {}, {}, nodes)
    total = {name: Quantity(sum(each[name].nanos for each in fitted.values())) for name in ("cpu", "memory")}
    assert fits_somewhere(total, nodes)
    for name, each in fitted.items():
        for resource, amount in each.items():
            assert amount <= wanted[name][resource]
            assert resource in scaled or amount == wanted[name][resource]


containers = st.dictionaries(st.sampled_from("abcd"), amounts, min_size=1)


@given(containers, containers, st.just({}) | amounts, st.lists(amounts, min_size=1, max_size=5))
def test_a_pod_that_fits_today_always_fits_afterwards(
    wanted: dict[str, dict[str, Quantity]],
    today: dict[str, dict[str, Quantity]],
    beside: dict[str, Quantity],
    nodes: list[dict[str, Quantity]],
) -> None:
    fitted, _ = fit(wanted, today, beside, nodes)

    def total(requests: dict[str, dict[str, Quantity]]) -> dict[str, Quantity]:
        parts = [*requests.values(), beside]
        return {name: Quantity(sum(each[name].nanos for each in parts if each)) for name in ("cpu", "memory")}

    assert fits_somewhere(total(fitted), nodes) or not fits_somewhere(total(today), nodes)
    for name, each in fitted.items():
        for resource, amount in each.items():
            least = min(today.get(name, {}).get(resource, amount), wanted[name][resource])
            assert least <= amount <= wanted[name][resource]


@given(st.lists(amounts, max_size=8), amounts)
def test_leaving_out_smaller_nodes_changes_no_answer(
    nodes: list[dict[str, Quantity]], total: dict[str, Quantity]
) -> None:
    assert fits_somewhere(total, nodes) == fits_somewhere(total, largest(nodes))


@given(st.lists(st.booleans(), max_size=20))
def test_a_workload_is_paused_exactly_after_two_bad_replacements_in_a_row(carried: list[bool]) -> None:
    state = CLOSED
    pod = convert(make_pod("web"), Pod)
    for good in carried:
        if state.paused:
            break
        state = after_replacement(state, pod, carries=good, now=START)
    first_pair = next((i for i in range(len(carried) - 1) if not carried[i] and not carried[i + 1]), None)
    assert state.paused is (first_pair is not None)
