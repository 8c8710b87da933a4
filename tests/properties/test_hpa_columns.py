"""Many autoscalers at once decide what each of them decides alone."""

from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.objects.core import Container, Pod, PodSpec, ResourceRequirements
from kubetide.api.objects.hpa import Behavior, ScalingPolicy, ScalingRules
from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.api.objects.meta import ObjectMeta
from kubetide.hpa.core.behavior import (
    ScaleEvents,
    complete_rules,
    limit_by_rules,
    limit_plain,
    longest_period,
    remember_event,
)
from kubetide.hpa.core.pods import PodGroups, PodList
from kubetide.hpa.core.quick.columns import AutoscalerColumns, PodColumns, propose_utilization
from kubetide.hpa.core.replicas import Tolerance
from kubetide.hpa.core.replicas import propose_utilization as propose_one
from kubetide.hpa.core.samples import PodReading, Sample
from kubetide.hpa.core.stabilization import Recommendation, Recommendations, stabilize, stabilize_both_ways

START = datetime(2026, 3, 2, tzinfo=UTC)
WINDOW = timedelta(minutes=5)


@st.composite
def targets(draw: st.DrawFn) -> tuple[int, int, int, int, int]:
    ready = draw(st.integers(1, 12))
    return (
        draw(st.integers(0, 4000)) * ready // 2,
        ready,
        draw(st.integers(0, 5)),
        draw(st.integers(0, 5)),
        draw(st.sampled_from([100, 333, 1000])),
    )


@given(st.lists(targets(), min_size=1, max_size=6), st.integers(1, 150), st.sampled_from([0.0, 0.1, 0.25]))
def test_proposals_are_those_of_single_autoscalers(
    columns: list[tuple[int, int, int, int, int]], target: int, tolerated: float
) -> None:
    tolerance = Tolerance(down=tolerated, up=tolerated)
    used, ready, unready, missing, request = (np.array(each, dtype=np.int64) for each in zip(*columns, strict=True))
    current = ready + unready + missing
    pods = PodColumns(used_millis=used, ready=ready, unready=unready, missing=missing, request_millis=request)
    found = propose_utilization(pods, target=target, current=current, tolerance=tolerance)
    for place, (total, has, starting, silent, each) in enumerate(columns):
        names = [f"pod-{number}" for number in range(has + starting + silent)]
        spec = PodSpec(containers=(Container(name="a", resources=ResourceRequirements(requests={"cpu": f"{each}m"})),))
        listed = PodList(Pod(metadata=ObjectMeta(name=name), spec=spec) for name in names)
        share, rest = divmod(total, has)
        samples = {name: Sample(share + (number < rest)) for number, name in enumerate(names[:has])}
        groups = PodGroups(has, tuple(names[has : has + starting]), tuple(names[has + starting :]), ())
        alone = propose_one(
            PodReading(samples),
            listed,
            groups,
            resource="cpu",
            target=target,
            current=len(names),
            tolerance=tolerance,
            compat=HpaCompat(),
        )
        assert found[place] == alone.replicas


def rules() -> st.SearchStrategy[ScalingRules]:
    policies = st.builds(
        ScalingPolicy,
        type=st.sampled_from(["Pods", "Percent"]),
        value=st.integers(1, 150),
        period_seconds=st.sampled_from([15, 30, 60, 120]),
    )
    return st.builds(
        ScalingRules,
        stabilization_window_seconds=st.sampled_from([None, 0, 30, 60, 300]),
        select_policy=st.sampled_from([None, "Max", "Min", "Disabled"]),
        policies=st.one_of(st.none(), st.lists(policies, min_size=1, max_size=3).map(tuple)),
    )


@settings(max_examples=60)
@given(
    st.one_of(st.none(), st.builds(Behavior, scale_up=st.none() | rules(), scale_down=st.none() | rules())),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=40),
)
def test_counts_follow_the_same_windows_and_limits(behavior: Behavior | None, proposals: list[tuple[int, int]]) -> None:
    minimum, maximum = 2, 30
    complete = None if behavior is None else complete_rules(behavior, WINDOW)
    first = np.array([5, 9], dtype=np.int64)
    columns = AutoscalerColumns(
        first, minimum=minimum, maximum=maximum, window_seconds=300, rules=complete, at_seconds=0
    )
    current = first.copy()
    pasts: list[Recommendations] = [(Recommendation(int(count), START),) for count in first]
    ups: list[ScaleEvents] = [(), ()]
    downs: list[ScaleEvents] = [(), ()]
    for number, proposed in enumerate(proposals, 1):
        seconds = number * 15
        now = START + timedelta(seconds=seconds)
        together = columns.decide(np.array(proposed, dtype=np.int64), current, at_seconds=seconds)
        for place, proposal in enumerate(proposed):
            count = int(current[place])
            if complete is None:
                stable = stabilize(proposal, pasts[place], WINDOW, now=now)
                alone = limit_plain(stable.replicas, count, minimum=minimum, maximum=maximum).replicas
            else:
                stable = stabilize_both_ways(
                    proposal,
                    count,
                    pasts[place],
                    up_window=complete.up_window,
                    down_window=complete.down_window,
                    now=now,
                )
                alone = limit_by_rules(
                    stable.replicas,
                    count,
                    complete,
                    ups[place],
                    downs[place],
                    minimum=minimum,
                    maximum=maximum,
                    now=now,
                ).replicas
                if alone > count:
                    longest = longest_period(complete.up)
                    ups[place] = remember_event(ups[place], alone - count, longest, now=now)
                elif alone < count:
                    longest = longest_period(complete.down)
                    downs[place] = remember_event(downs[place], count - alone, longest, now=now)
            pasts[place] = stable.recommendations
            assert together[place] == alone
        current = together
