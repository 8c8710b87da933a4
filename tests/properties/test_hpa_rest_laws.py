"""An autoscaler at rest ends its reconcile as `decide` would: laws of `hpa.core.quick.rest`."""

from datetime import timedelta
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.decide import decide
from kubetide.hpa.core.observation import AfterStart, Memory, Observation, Options, ScaleView
from kubetide.hpa.core.pods import PodList
from kubetide.hpa.core.quick.rest import has_moved, rest_of, status_at_rest, still_at_rest
from kubetide.hpa.core.samples import PodReading, Sample
from kubetide.hpa.core.stabilization import Recommendation
from kubetide.hpa.core.status import only_drifted, same_beside_metrics, same_status, status_body
from kubetide.testing.builders import make_hpa
from unit.hpa.worlds import NOW, ago, pod

OPTIONS = Options()
COUNT = 3

usages = st.lists(st.integers(44, 56), min_size=COUNT, max_size=COUNT) | st.lists(
    st.integers(0, 90), min_size=COUNT, max_size=COUNT
)
memories = st.builds(
    lambda past, start: Memory(
        recommendations=tuple(Recommendation(count, ago(seconds)) for count, seconds in past), after_start=start
    ),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 700)), max_size=4),
    st.none()
    | st.builds(
        lambda held, seconds, looked: AfterStart(held=Recommendation(held, ago(seconds)), looked_back=looked),
        st.integers(1, 5),
        st.integers(0, 700),
        st.booleans(),
    ),
)


@st.composite
def targets(draw: st.DrawFn) -> dict[str, Any]:
    """Return the spec of an autoscaler, mostly a plain one."""
    minimum, maximum = draw(st.sampled_from([1, COUNT])), draw(st.sampled_from([2, 3, 10]))
    raw = make_hpa("web", "shop", minimum=minimum, maximum=maximum, cpu_percent=50)
    if draw(st.booleans()):
        amount = {"type": "AverageValue", "averageValue": draw(st.sampled_from(["50m", "45m", "1"]))}
        raw["spec"]["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": amount}}]
    if draw(st.integers(0, 3)) == 0:
        up = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}], "stabilizationWindowSeconds": 120}
        raw["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 60}, "scaleUp": up}
    return raw


def _reading(values: list[int], *, missing: bool) -> PodReading:
    listed = values[:-1] if missing else values
    samples = {f"web-{n}": Sample(value, NOW, timedelta(seconds=30)) for n, value in enumerate(listed)}
    return PodReading(samples, NOW)


def _written(hpa: HorizontalPodAutoscaler, seen: Observation, memory: Memory) -> HorizontalPodAutoscaler:
    """Return the autoscaler as the server has it once the status of a reconcile was written."""
    status = status_body(conclude(decide(seen, memory, OPTIONS, now=NOW)).status)
    return replace(hpa, status=convert(status, type(hpa.status)))


@settings(max_examples=500, deadline=None)
@given(
    targets(),
    usages,
    usages,
    memories,
    st.just(COUNT) | st.integers(1, COUNT + 1),
    st.integers(1, 900),
    st.sampled_from(["", "", "", "", "missing", "scale", "pods", "starting", "hpa"]),
    st.booleans(),
)
def test_at_rest_a_reconcile_ends_as_it_would_if_it_were_decided(
    raw: dict[str, Any],
    first: list[int],
    second: list[int],
    memory: Memory,
    replicas: int,
    later: int,
    change: str,
    at_once: bool,
) -> None:
    hpa = convert(raw, HorizontalPodAutoscaler)
    pods = PodList(pod(f"web-{n}", started=ago(100) if change == "starting" else None) for n in range(COUNT))
    scale = ScaleView(replicas, replicas, "app=web")
    seen = Observation(hpa=hpa, scale=scale, pods=pods, readings=(_reading(first, missing=False),))
    # What the last reconcile rested on: a status that it found so, or one that it wrote itself.
    decision = decide(seen, memory, OPTIONS, now=NOW)
    seen = replace(seen, hpa=_written(hpa, seen, memory))
    if not at_once:
        decision = decide(seen, memory, OPTIONS, now=NOW)
    outcome = conclude(decision)
    rest = rest_of(seen, decision, outcome, OPTIONS, now=NOW)
    if rest is None:
        event("does not rest")
        return
    now = NOW + timedelta(seconds=later)
    after = replace(seen, readings=(_reading(second, missing=change == "missing"),))
    if change == "scale":
        after = replace(after, scale=ScaleView(replicas + 1, replicas, "app=web"))
    elif change == "pods":
        after = replace(after, pods=PodList(pods[:-1]))
    elif change == "hpa":
        after = replace(after, hpa=replace(after.hpa, spec=replace(after.hpa.spec, max_replicas=1)))
    resting = still_at_rest(rest, after, outcome.memory, OPTIONS, now=now)
    again = decide(after, outcome.memory, OPTIONS, now=now)
    ended = conclude(again)
    if resting is None:
        event("is decided")
        return
    event(f"rests {rest.side} {rest.reasons}")
    assert not again.rescale
    assert (ended.memory, ended.problem, ended.action) == (resting.found.memory, None, "none")
    assert ended.events == ended.events_after_save == ()
    assert ended.desired == outcome.desired
    assert (again.proposal, again.stabilized) == (resting.asked.proposal, resting.found.stabilized)
    assert (again.rule, again.why) == (resting.found.rule, resting.why)
    assert status_body(status_at_rest(rest, resting, OPTIONS, now=now)) == status_body(ended.status)
    if has_moved(rest, resting):
        assert not only_drifted(after.hpa.status, ended.status)
    if resting.reasons != rest.reasons:
        event("shows another reason")
        return
    assert again.rule == decision.rule
    assert same_beside_metrics(after.hpa.status, ended.status)
    if resting.asked.same:
        assert same_status(after.hpa.status, ended.status)
    if resting.asked.near:
        assert only_drifted(after.hpa.status, ended.status)
