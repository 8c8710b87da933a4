"""Who switches learned sizes on, how far a switch is, and how a limit apart from the request reaches a pod."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.api.values.conditions import Condition, find_condition
from kubetide.api.values.quantity import parse_quantity
from kubetide.api.values.selectors import NOTHING
from kubetide.errors import InvalidInput
from kubetide.testing.builders import make_container, make_pod, make_vpa
from kubetide.vpa.admission.core.mutate import SizeLimits, fit_pod
from kubetide.vpa.core.learned import ChosenBy, Estimator, choose, learned_share
from kubetide.vpa.core.limits import LimitItem, NamespaceLimits
from kubetide.vpa.recommender.core.decisions import adaptive_condition_after
from kubetide.vpa.recommender.core.entities import VpaState

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
OLD = NOW - timedelta(days=30)


@pytest.mark.parametrize(
    ("annotations", "default", "allowed", "estimator", "by"),
    [
        pytest.param({}, "vpa", True, "vpa", ChosenBy.FLAG, id="nothing-said"),
        pytest.param({}, "adaptive", True, "adaptive", ChosenBy.FLAG, id="flag"),
        pytest.param({"estimator": "vpa"}, "adaptive", True, "vpa", ChosenBy.ANNOTATION, id="one-stays-plain"),
        pytest.param({"estimator": "adaptive-one"}, "vpa", True, "adaptive-one", ChosenBy.ANNOTATION, id="one-learns"),
        pytest.param({"estimator": "oracle"}, "adaptive", True, "adaptive", ChosenBy.FLAG, id="unknown"),
        pytest.param({"learned": "off"}, "adaptive", True, "vpa", ChosenBy.KILL_SWITCH, id="switched-off"),
        pytest.param({"learned": "of"}, "adaptive", True, "vpa", ChosenBy.KILL_SWITCH, id="badly-spelt-is-off"),
        pytest.param({"learned": "on"}, "adaptive", True, "adaptive", ChosenBy.FLAG, id="on-is-no-more-than-that"),
        pytest.param({"estimator": "adaptive"}, "vpa", False, "vpa", ChosenBy.KILL_SWITCH, id="forbidden-by-flag"),
    ],
)
def test_who_chooses_the_estimator(
    annotations: dict[str, str], default: str, allowed: bool, estimator: str, by: ChosenBy
) -> None:
    given = {f"kubetide.io/{name}": value for name, value in annotations.items()}
    choice = choose(given, Estimator(default), allowed=allowed)
    assert (choice.estimator, choice.by) == (estimator, by)
    assert bool(choice.problem) == ("oracle" in annotations.values() or "of" in annotations.values())


@pytest.mark.parametrize(
    ("annotations", "condition", "expected"),
    [
        pytest.param({}, None, 0.0, id="never-on"),
        pytest.param({"kubetide.io/estimator": "adaptive"}, None, 0.0, id="just-switched-on"),
        pytest.param({"kubetide.io/estimator": "adaptive"}, ("True", 3.5), 0.25, id="three-hours-on"),
        pytest.param({"kubetide.io/estimator": "adaptive"}, ("True", 100), 1.0, id="long-on"),
        pytest.param({}, ("True", 100), 1.0, id="just-switched-off"),
        pytest.param({}, ("False", 6), 0.5, id="six-hours-off"),
        pytest.param({}, ("False", 13), 0.0, id="long-off"),
        pytest.param({"kubetide.io/learned": "off"}, ("True", 100), 0.0, id="kill-switch"),
        pytest.param({}, ("True", 6), 0.5, id="switched-off-half-way"),
        pytest.param({"kubetide.io/estimator": "adaptive"}, ("False", 3), 0.75, id="switched-on-on-the-way-back"),
        pytest.param({"kubetide.io/estimator": "adaptive"}, ("Killed", 1), 0.0, id="on-again-after-the-kill-switch"),
        pytest.param({}, ("Killed", 1), 0.0, id="plain-after-the-kill-switch-stays-plain"),
    ],
)
def test_how_far_a_switch_is(annotations: dict[str, str], condition: tuple[str, float] | None, expected: float) -> None:
    told = None
    if condition is not None:
        status, hours = condition
        killed = status == "Killed"
        told = Condition(
            type="AdaptiveEstimator",
            status="False" if killed else status,
            reason="KillSwitch" if killed else "ByAnnotation",
            last_transition_time=NOW - timedelta(hours=hours),
        )
    choice = choose(annotations, Estimator.VPA, allowed=True)
    assert learned_share(choice, told, created=OLD, now=NOW) == expected


WISHES = {
    "on": {"kubetide.io/estimator": "adaptive"},
    "off": {},
    "killed": {"kubetide.io/estimator": "adaptive", "kubetide.io/learned": "off"},
    "killed-and-off": {"kubetide.io/learned": "off"},
}


@settings(deadline=None)
@given(
    st.integers(0, 60),
    st.lists(st.tuples(st.sampled_from(sorted(WISHES)), st.integers(1, 20 * 60)), min_size=1, max_size=8),
)
def test_whatever_is_switched_no_step_is_larger_than_a_twelfth_but_for_the_kill_switch(
    age: int, story: list[tuple[str, int]]
) -> None:
    """Each loop sees the share, then writes the condition, as the recommender does; times are stored in seconds."""
    now = NOW + timedelta(microseconds=1)
    created = NOW - timedelta(minutes=age)
    state = VpaState(ObjectKey("default", "web"), NOTHING, created=created)
    conditions: tuple[Condition, ...] = ()
    before: float | None = None
    for wish, minutes in story:
        state.choice = choose(WISHES[wish], Estimator.VPA, allowed=True)
        for _ in range(0, minutes, 5):
            share = learned_share(
                state.choice, find_condition(conditions, "AdaptiveEstimator"), created=created, now=now
            )
            if state.choice.by is ChosenBy.KILL_SWITCH:
                assert share == 0.0
            elif before is not None and now - created > timedelta(minutes=20):
                assert abs(share - before) <= 1 / 12 + 1e-9
            before = share
            conditions = tuple(
                msgspec.structs.replace(
                    one,
                    last_transition_time=one.last_transition_time.replace(microsecond=0),  # type: ignore[union-attr]
                )
                for one in adaptive_condition_after(state, conditions, now)
            )
            now += timedelta(minutes=5)
    state.choice = choose({}, Estimator.VPA, allowed=True)
    for _ in range(13 * 12):
        conditions = adaptive_condition_after(state, conditions, now)
        now += timedelta(minutes=5)
    assert conditions == ()


def test_a_new_vpa_has_nothing_to_move_away_from() -> None:
    choice = choose({}, Estimator.ADAPTIVE, allowed=True)
    assert learned_share(choice, None, created=NOW - timedelta(minutes=1), now=NOW) == 1.0


def sized(limits: dict[str, str], annotation: str = '{"main":"1Gi"}', status: str = "True") -> VerticalPodAutoscaler:
    raw = make_vpa("web", recommendation={"main": {"cpu": "100m", "memory": "200Mi"}})
    raw["metadata"]["annotations"] = {"kubetide.io/memory-limits": annotation, **limits}
    raw["status"]["conditions"] = [
        {"type": "AdaptiveEstimator", "status": "False", "reason": "KillSwitch"}
        if status == "Killed"
        else {"type": "AdaptiveEstimator", "status": status, "reason": "ByAnnotation"}
    ]
    return convert(raw, VerticalPodAutoscaler)


def limited(memory: str | None) -> Pod:
    limits = {} if memory is None else {"memory": memory}
    return convert(make_pod(containers=[make_container(cpu="100m", memory="400Mi", limits=limits)]), Pod)


@pytest.mark.parametrize(
    ("limit", "status", "ranges", "expected"),
    [
        pytest.param("800Mi", "True", None, "1Gi", id="apart"),
        pytest.param("800Mi", "False", None, "1Gi", id="apart-on-the-way-back-too"),
        pytest.param("3200Mi", "False", None, "1600Mi", id="in-proportion-on-the-way-back-where-that-is-more"),
        pytest.param("800Mi", "Killed", None, "400Mi", id="in-proportion-after-the-kill-switch"),
        pytest.param("400Mi", "True", None, "200Mi", id="one-number-stays-one"),
        pytest.param(None, "True", None, None, id="none-stays-none"),
        pytest.param("800Mi", "True", "600Mi", "600Mi", id="a-limit-range-has-the-last-word"),
    ],
)
def test_the_limit_of_a_container(limit: str | None, status: str, ranges: str | None, expected: str | None) -> None:
    item = LimitItem(maximum={"memory": parse_quantity(ranges)}) if ranges is not None else None
    fitted = fit_pod(limited(limit), sized({}, status=status), NamespaceLimits(container=item))
    got = fitted.containers[0].limits.get("memory")
    assert got == (parse_quantity(expected) if expected is not None else None)


def test_what_is_in_use_holds_the_limit_instead_of_the_request() -> None:
    fitted = fit_pod(
        limited("800Mi"), sized({}, '{"main":"300Mi"}'), NamespaceLimits(), SizeLimits(usage={"main": 350 * 2**20})
    )
    (new,) = fitted.containers
    assert new.requests["memory"] == parse_quantity("200Mi")
    assert new.limits["memory"] == parse_quantity("350Mi")


@pytest.mark.parametrize("text", ["{", '{"main":"much"}', '["main"]'])
def test_an_annotation_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"kubetide\.io/memory-limits"):
        fit_pod(limited("800Mi"), sized({}, text), NamespaceLimits())
