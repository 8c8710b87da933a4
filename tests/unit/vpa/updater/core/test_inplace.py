"""Resize, wait, or evict instead."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.api.values.conditions import Condition
from kubetide.api.values.quantity import parse_quantity
from kubetide.testing.builders import make_container, make_pod
from kubetide.vpa.updater.core.budget import Creator, Group
from kubetide.vpa.updater.core.inplace import (
    InPlaceRules,
    ResizeClock,
    ResizeState,
    ResizeVerdict,
    Targets,
    decide,
    fallback_due,
    resize_state,
)

NOW = datetime(2026, 1, 5, tzinfo=UTC)
BOTH = InPlaceRules(only_in_place=False)
ONLY = InPlaceRules(only_in_place=True)


def targets(cpu: str) -> Targets:
    return {"main": {"cpu": parse_quantity(cpu)}}


def group(**given: Any) -> Group:
    values = {"configured": 4, "tolerance": 2, "pending": 0, "running": 4, **given}
    return Group(creator=Creator("default", "ReplicaSet", "web"), **values)


def pod(*conditions: dict[str, str], phase: str = "Running", restart: bool = False) -> Pod:
    container = make_container(cpu="100m")
    if restart:
        container["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    raw = make_pod("web-1", phase=phase, containers=[container])
    raw.setdefault("status", {})["conditions"] = list(conditions)
    return convert(raw, Pod)


def pending(reason: str) -> dict[str, str]:
    return {"type": "PodResizePending", "status": "True", "reason": reason}


IN_PROGRESS = {"type": "PodResizeInProgress", "status": "True"}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param([], ResizeState.NONE, id="nothing-said"),
        pytest.param([pending("Deferred")], ResizeState.DEFERRED, id="deferred"),
        pytest.param([pending("Infeasible")], ResizeState.INFEASIBLE, id="infeasible"),
        pytest.param([pending("Odd")], ResizeState.PENDING_UNKNOWN, id="pending-for-another-reason"),
        pytest.param([IN_PROGRESS], ResizeState.IN_PROGRESS, id="in-progress"),
        pytest.param([{**IN_PROGRESS, "reason": "Error"}], ResizeState.ERROR, id="failed"),
        pytest.param([{**IN_PROGRESS, "message": "?"}], ResizeState.IN_PROGRESS_UNKNOWN, id="complaint"),
        pytest.param([{**pending("Deferred"), "status": "False"}], ResizeState.NONE, id="over"),
    ],
)
def test_the_kubelet_reports_where_a_resize_stands(conditions: list[dict[str, str]], expected: ResizeState) -> None:
    assert resize_state(convert(each, Condition) for each in conditions) is expected


@pytest.mark.parametrize(
    ("state", "minutes", "disruptable", "expected"),
    [
        pytest.param(ResizeState.DEFERRED, 5, True, False, id="deferred-for-five-minutes-sharp"),
        pytest.param(ResizeState.DEFERRED, 5.1, True, True, id="deferred-for-longer"),
        pytest.param(ResizeState.DEFERRED, 60, False, False, id="no-budget"),
        pytest.param(ResizeState.IN_PROGRESS, 60, True, False, id="an-hour-sharp"),
        pytest.param(ResizeState.IN_PROGRESS, 61, True, True, id="longer-than-an-hour"),
        pytest.param(ResizeState.INFEASIBLE, 0, True, True, id="infeasible-at-once"),
        pytest.param(ResizeState.NONE, 99, True, False, id="not-updating"),
    ],
)
def test_when_waiting_has_no_prospect(state: ResizeState, minutes: float, disruptable: bool, expected: bool) -> None:
    assert fallback_due(state, waited=timedelta(minutes=minutes), disruptable=disruptable) is expected


@pytest.mark.parametrize(
    ("subject", "rules", "given", "expected"),
    [
        pytest.param(pod(), BOTH, {}, ResizeVerdict.APPROVED, id="within-the-budget"),
        pytest.param(pod(), BOTH, {"group": group(initiated=2)}, ResizeVerdict.DEFERRED, id="budget-used-up"),
        pytest.param(pod(), BOTH, {"group": None}, ResizeVerdict.DEFERRED, id="group-left-out"),
        pytest.param(pod(phase="Pending"), BOTH, {}, ResizeVerdict.DEFERRED, id="pending"),
        pytest.param(pod(), BOTH, {"targets": None}, ResizeVerdict.DEFERRED, id="no-recommendation"),
        pytest.param(pod(pending("Infeasible")), BOTH, {}, ResizeVerdict.EVICT, id="infeasible-is-evicted"),
        pytest.param(pod(pending("Infeasible")), ONLY, {}, ResizeVerdict.INFEASIBLE, id="or-remembered-in-place"),
        pytest.param(pod(pending("Deferred")), ONLY, {}, ResizeVerdict.DEFERRED, id="deferred"),
        pytest.param(pod(), ONLY, {"infeasible": targets("300m")}, ResizeVerdict.INFEASIBLE_CACHED, id="not-smaller"),
        pytest.param(pod(), ONLY, {"infeasible": targets("400m")}, ResizeVerdict.APPROVED, id="smaller"),
        pytest.param(
            pod(),
            InPlaceRules(only_in_place=False, skip_budget=True),
            {"group": group(initiated=4)},
            ResizeVerdict.APPROVED,
            id="budget-skipped-without-restart",
        ),
        pytest.param(
            pod(restart=True),
            InPlaceRules(only_in_place=False, skip_budget=True),
            {"group": group(initiated=4)},
            ResizeVerdict.DEFERRED,
            id="but-not-with-one",
        ),
        pytest.param(pod(), InPlaceRules(only_in_place=True, gate=False), {}, ResizeVerdict.DEFERRED, id="gate-off"),
    ],
)
def test_the_first_rule_that_fits_decides(
    subject: Pod, rules: InPlaceRules, given: dict[str, Any], expected: ResizeVerdict
) -> None:
    its_group = given.get("group", group())
    decision = decide(
        subject,
        its_group,
        rules,
        targets=given.get("targets", targets("300m")),
        infeasible=given.get("infeasible"),
        waited=timedelta(),
    )
    assert decision.verdict is expected
    assert decision.reason


def test_the_clock_of_a_resize_starts_anew_with_the_next_one() -> None:
    clock = ResizeClock()
    assert clock.waited("u", ResizeState.DEFERRED, now=NOW) == timedelta()
    assert clock.waited("u", ResizeState.DEFERRED, now=NOW + timedelta(minutes=9)) == timedelta(minutes=9)
    clock.waited("u", ResizeState.NONE, now=NOW + timedelta(minutes=10))
    assert clock.waited("u", ResizeState.DEFERRED, now=NOW + timedelta(hours=5)) == timedelta()
