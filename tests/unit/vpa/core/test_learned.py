"""Who switches learned sizes on, how far a switch is, and how a limit apart from the request reaches a pod."""

from datetime import UTC, datetime, timedelta

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.api.values.conditions import Condition
from kubetide.api.values.quantity import parse_quantity
from kubetide.errors import InvalidInput
from kubetide.testing.builders import make_container, make_pod, make_vpa
from kubetide.vpa.admission.core.mutate import SizeLimits, fit_pod
from kubetide.vpa.core.learned import ChosenBy, Estimator, choose, learned_share
from kubetide.vpa.core.limits import LimitItem, NamespaceLimits

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
    ],
)
def test_how_far_a_switch_is(annotations: dict[str, str], condition: tuple[str, float] | None, expected: float) -> None:
    told = None
    if condition is not None:
        status, hours = condition
        told = Condition(type="AdaptiveEstimator", status=status, last_transition_time=NOW - timedelta(hours=hours))
    choice = choose(annotations, Estimator.VPA, allowed=True)
    assert learned_share(choice, told, created=OLD, now=NOW) == expected


def test_a_new_vpa_has_nothing_to_move_away_from() -> None:
    choice = choose({}, Estimator.ADAPTIVE, allowed=True)
    assert learned_share(choice, None, created=NOW - timedelta(minutes=1), now=NOW) == 1.0


def sized(limits: dict[str, str], annotation: str = '{"main":"1Gi"}', status: str = "True") -> VerticalPodAutoscaler:
    raw = make_vpa("web", recommendation={"main": {"cpu": "100m", "memory": "200Mi"}})
    raw["metadata"]["annotations"] = {"kubetide.io/memory-limits": annotation, **limits}
    raw["status"]["conditions"] = [{"type": "AdaptiveEstimator", "status": status}]
    return convert(raw, VerticalPodAutoscaler)


def limited(memory: str | None) -> Pod:
    limits = {} if memory is None else {"memory": memory}
    return convert(make_pod(containers=[make_container(cpu="100m", memory="400Mi", limits=limits)]), Pod)


@pytest.mark.parametrize(
    ("limit", "status", "ranges", "expected"),
    [
        pytest.param("800Mi", "True", None, "1Gi", id="apart"),
        pytest.param("800Mi", "False", None, "400Mi", id="in-proportion-once-switched-off"),
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
