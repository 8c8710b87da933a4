"""Laws of the horizontal autoscaler that hold whatever the cluster looks like."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.hpa import ScalingPolicy, ScalingRules
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.selectors import Selector, parse_selector
from kubetide.hpa.core.behavior import Rules, ScaleEvent, limit_by_rules, limit_plain, remember_event
from kubetide.hpa.core.claims import Claims
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.decide import decide
from kubetide.hpa.core.observation import Memory, Options, memory_for
from kubetide.hpa.core.quick.filing import NamespaceSamples
from kubetide.hpa.core.replicas import Tolerance, propose_average
from kubetide.hpa.core.samples import ErrorKind, MetricFailure, PodReading, Reading, Sample
from kubetide.hpa.core.stabilization import Recommendation, stabilize, stabilize_both_ways
from kubetide.hpa.core.trace import trace_of
from unit.hpa.worlds import QUEUE, hpa, observation, pod, value

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

counts = st.integers(0, 200)
ages = st.integers(0, 4000).map(lambda seconds: NOW - timedelta(seconds=seconds))
recommendations = st.lists(st.builds(Recommendation, counts, ages), max_size=20).map(tuple)
windows = st.integers(0, 3600).map(lambda seconds: timedelta(seconds=seconds))
scale_events = st.lists(st.builds(ScaleEvent, st.integers(1, 50), ages, st.booleans()), max_size=10).map(tuple)
policies = st.builds(
    lambda kind, amount, period: ScalingPolicy(type=kind, value=amount, period_seconds=period),
    st.sampled_from(["Pods", "Percent"]),
    st.integers(1, 300),
    st.integers(1, 1800),
)
rules = st.builds(
    lambda select, chosen: ScalingRules(select_policy=select, policies=tuple(chosen)),
    st.sampled_from(["Max", "Min", "Disabled"]),
    st.lists(policies, min_size=1, max_size=3),
)


@given(counts, recommendations, windows, windows)
def test_a_longer_window_never_scales_lower(
    proposal: int, past: tuple[Recommendation, ...], one: timedelta, other: timedelta
) -> None:
    shorter, longer = sorted((one, other))
    assert stabilize(proposal, past, shorter, now=NOW).replicas <= stabilize(proposal, past, longer, now=NOW).replicas


@given(counts, counts, recommendations, windows, windows, windows)
def test_with_behavior_longer_windows_change_less(
    proposal: int, current: int, past: tuple[Recommendation, ...], up: timedelta, one: timedelta, other: timedelta
) -> None:
    shorter, longer = sorted((one, other))

    def stable(up_window: timedelta, down_window: timedelta) -> int:
        found = stabilize_both_ways(proposal, current, past, up_window=up_window, down_window=down_window, now=NOW)
        assert found.low <= proposal <= found.high
        return found.replicas

    assert stable(up, shorter) <= stable(up, longer)
    assert stable(longer, up) <= stable(shorter, up)


@given(counts, recommendations, windows)
def test_memory_grows_by_one_or_not_at_all(proposal: int, past: tuple[Recommendation, ...], window: timedelta) -> None:
    after = stabilize(proposal, past, window, now=NOW).recommendations
    assert len(after) - len(past) in (0, 1)
    assert Recommendation(proposal, NOW) in after


@given(counts, st.integers(1, 200), st.integers(0, 100), st.integers(0, 100), rules, rules, scale_events, scale_events)
def test_limits_lie_between_the_size_and_the_wish(
    stable: int,
    current: int,
    below: int,
    above: int,
    up: ScalingRules,
    down: ScalingRules,
    ups: tuple[ScaleEvent, ...],
    downs: tuple[ScaleEvent, ...],
) -> None:
    minimum, maximum = max(0, current - below), current + above
    made = Rules(up=up, down=down)
    found = limit_by_rules(stable, current, made, ups, downs, minimum=minimum, maximum=maximum, now=NOW)
    assert min(stable, current) <= found.replicas <= max(stable, current)
    assert found.cut == (found.replicas != stable)
    held = limit_by_rules(stable, current, made, ups, downs, minimum=minimum, maximum=maximum, now=NOW, hold_down=True)
    assert held.replicas >= min(found.replicas, current)


@given(counts, st.integers(1, 200), st.integers(0, 100), st.integers(0, 100))
def test_without_behavior_the_result_is_within_the_bounds(stable: int, current: int, below: int, above: int) -> None:
    minimum, maximum = max(0, current - below), current + above
    assert minimum <= limit_plain(stable, current, minimum=minimum, maximum=maximum).replicas <= maximum


@given(scale_events, st.integers(1, 9), st.integers(1, 1800))
def test_a_rescale_is_always_remembered(events: tuple[ScaleEvent, ...], change: int, longest: int) -> None:
    after = remember_event(events, change, timedelta(seconds=longest), now=NOW)
    assert ScaleEvent(change, NOW) in after
    assert len(after) - len(events) in (0, 1)


@given(st.integers(0, 10**12), st.integers(1, 10**9), st.integers(0, 1000), st.integers(1, 1000))
def test_scaling_usage_and_target_alike_changes_nothing(usage: int, target: int, observed: int, factor: int) -> None:
    plain = propose_average(value(usage), target=target, observed=observed, tolerance=Tolerance())
    scaled = propose_average(value(usage * factor), target=target * factor, observed=observed, tolerance=Tolerance())
    assert abs(plain.replicas - scaled.replicas) <= 1


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3)
selectors = st.sampled_from(["a=x", "a in (x,y)", "a=x,b!=y", "!c", "b", "a notin (z)", "a=x,c=z"]).map(parse_selector)


@given(st.lists(labels, max_size=12), selectors)
def test_filing_by_label_finds_what_a_full_search_finds(found: list[dict[str, str]], selector: Selector) -> None:
    from kubetide.api.objects.core import Pod
    from kubetide.api.objects.metrics import PodMetrics
    from kubetide.api.values.codec import convert

    raw: list[dict[str, Any]] = [
        {"metadata": {"name": f"p{number}", "labels": one}} for number, one in enumerate(found)
    ]
    samples = [convert(one, PodMetrics) for one in raw]
    wanted = [one for one in samples if one.metadata.labels and selector.matches(one.metadata.labels)]
    assert NamespaceSamples(samples).select(selector, ()) == wanted
    claims = Claims()
    claims.register(ObjectKey("", "one"))
    claims.claim(ObjectKey("", "one"), selector)
    pods = [convert(one, Pod) for one in raw]
    assert bool(claims.claimants("", pods)) == any(selector.matches(pod.metadata.labels) for pod in pods)


answers = st.one_of(st.none(), st.integers(0, 30))


def reading_of(proposal: int | None) -> Reading:
    if proposal is None:
        return MetricFailure(ErrorKind.FETCH_FAILED, "away")
    return value(proposal * 10_000)


def first_shrink(
    history: list[int | None], behavior: dict[str, Any] | None, restart_at: int | None, period: int
) -> int | None:
    """Play turns of a metric that asks for the given counts; return the turn of the first write that lowers."""
    created = NOW - timedelta(days=1)
    status: dict[str, Any] = {"currentReplicas": 10, "desiredReplicas": 10}
    current, memory = 10, Memory()
    for number, proposal in enumerate(history):
        now = NOW + timedelta(seconds=number * period)
        autoscaler = hpa(metrics=[QUEUE], maximum=30, created=created, behavior=behavior, status=status)
        if number == restart_at:
            memory = memory_for(autoscaler, now)
        decision = decide(observation(autoscaler, current, [reading_of(proposal)]), memory, Options(), now=now)
        outcome = conclude(decision)
        memory = outcome.memory
        scaled = outcome.status.last_scale_time
        status = {
            "currentReplicas": outcome.status.current_replicas,
            "desiredReplicas": outcome.status.desired_replicas,
            "lastScaleTime": scaled.isoformat() if scaled else None,
        }
        if decision.rescale and decision.desired < current:
            return number
        current = decision.desired if decision.rescale else current
    return None


behaviors = st.one_of(
    st.none(),
    st.builds(
        lambda window, amount, period: {
            "scaleDown": {
                "stabilizationWindowSeconds": window,
                "policies": [{"type": "Pods", "value": amount, "periodSeconds": period}],
            }
        },
        st.integers(0, 600),
        st.integers(1, 5),
        st.integers(15, 600),
    ),
)


@given(st.lists(answers, min_size=2, max_size=40), behaviors, st.integers(0, 39), st.sampled_from([15, 30, 60]))
def test_a_restart_never_shrinks_earlier(
    history: list[int | None], behavior: dict[str, Any] | None, restart_at: int, period: int
) -> None:
    restart = restart_at % len(history)
    plain = first_shrink(history, behavior, None, period)
    restarted = first_shrink(history, behavior, restart, period)
    if plain is None:
        assert restarted is None
    elif restarted is not None and plain >= restart:
        assert restarted >= plain


usages = st.lists(
    st.tuples(
        st.integers(-5, 12),
        st.integers(-(10**6), 10**12),
        st.sampled_from(["Running", "Pending", "Failed", "Succeeded"]),
        st.sampled_from([True, False, None]),
        st.booleans(),
    ),
    max_size=12,
)


@given(usages, st.integers(1, 12), st.integers(0, 5), st.integers(0, 20), st.booleans(), st.booleans())
def test_whatever_the_world_looks_like_a_reconcile_ends_within_the_bounds(
    world: list[tuple[int, int, str, bool | None, bool]],
    current: int,
    below: int,
    above: int,
    with_behavior: bool,
    rollout: bool,
) -> None:
    running = [
        pod(f"web-{number}", phase=phase, ready=ready, deleting=deleting, cpu="100m")
        for number, (_, _, phase, ready, deleting) in enumerate(world)
    ]
    samples = {f"web-{index}": Sample(amount, NOW) for index, amount, *_ in world}
    minimum, maximum = max(1, current - below), current + above
    autoscaler = hpa(minimum=minimum, maximum=maximum, behavior={} if with_behavior else None)
    answer: Reading = PodReading(samples, NOW) if samples else MetricFailure(ErrorKind.EMPTY, "nothing")
    passed = frozenset(name for name in samples if rollout and name.endswith(("1", "3")))
    seen = observation(autoscaler, current, [answer], running=running, passed_over=passed)
    decision = decide(seen, Memory(recommendations=()), Options(), now=NOW)
    outcome = conclude(decision)
    if decision.rescale:
        assert minimum <= decision.desired <= maximum
        assert decision.desired != current
        used = decision.results[0].proposal.used if decision.results[0].proposal else ()
        if decision.desired < current:
            assert all(samples[name].value >= 0 for name in used)
    assert outcome.status.current_replicas == current
    trace_of(decision, outcome, outcome.problem)
