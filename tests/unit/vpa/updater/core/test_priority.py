"""Whose turn it is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.vpa import EvictionRequirement
from kubetide.api.values.codec import convert
from kubetide.testing.builders import make_container, make_pod
from kubetide.vpa.core.policy import Recommended, amounts
from kubetide.vpa.updater.core.priority import RankRules, admitted, in_order, observed_containers, prioritize, rank

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def fitting(cpu: str = "100m", low: str = "50m", high: str = "200m") -> dict[str, Recommended]:
    return {
        "main": Recommended(
            container="main", target=amounts({"cpu": cpu}), lower=amounts({"cpu": low}), upper=amounts({"cpu": high})
        )
    }


def pod(cpu: str | None = "100m", *, hours: float = 24, oom_after: float | None = None, **given: Any) -> Pod:
    raw = make_pod("web-1", containers=[make_container(cpu=cpu)], **given)
    status = raw.setdefault("status", {})
    status["startTime"] = NOW - timedelta(hours=hours)
    entry: dict[str, Any] = {"name": "main"}
    if oom_after is not None:
        entry["lastState"] = {
            "terminated": {
                "reason": "OOMKilled",
                "startedAt": NOW - timedelta(hours=1),
                "finishedAt": NOW - timedelta(hours=1) + timedelta(minutes=oom_after),
            }
        }
    status["containerStatuses"] = [entry]
    return convert(raw, Pod)


def accepted(subject: Pod, recommended: dict[str, Recommended]) -> bool:
    return rank(subject, recommended, RankRules(), scaled=lambda _: True, now=NOW).accepted


@pytest.mark.parametrize(
    ("subject", "recommended", "expected"),
    [
        pytest.param(pod("100m"), fitting("100m"), False, id="as-recommended"),
        pytest.param(pod("100m"), fitting("111m"), True, id="old-and-more-than-a-tenth-off"),
        pytest.param(pod("100m"), fitting("109m"), False, id="old-and-less-than-a-tenth-off"),
        pytest.param(pod("100m", hours=12), fitting("120m"), True, id="twelve-hours-are-old-enough"),
        pytest.param(pod("100m", hours=11.9), fitting("120m"), False, id="younger-are-not"),
        pytest.param(pod("10m", hours=0), fitting(), True, id="below-the-range-at-once"),
        pytest.param(pod("300m", hours=0), fitting(), True, id="above-the-range-at-once"),
        pytest.param(pod(None, hours=0), fitting(), True, id="no-request-is-outside"),
        pytest.param(pod("100m", hours=0, oom_after=5), fitting("101m"), True, id="killed-soon-after-its-start"),
        pytest.param(pod("100m", hours=0, oom_after=10), fitting("101m"), False, id="killed-later"),
        pytest.param(pod("100m", hours=0, oom_after=5), fitting("100m"), False, id="killed-but-nothing-would-change"),
        pytest.param(
            pod("300m", hours=0, oom_after=5), fitting("300m", high="200m"), False, id="even-when-outside-the-range"
        ),
        pytest.param(
            pod("10m", annotations={"vpaObservedContainers": ""}), fitting(), False, id="no-container-was-observed"
        ),
        pytest.param(
            pod("10m", annotations={"vpaObservedContainers": "main,x"}),
            fitting(),
            True,
            id="unreadable-note",
        ),
    ],
)
def test_a_pod_is_changed_when_it_is_worth_it(
    subject: Pod, recommended: dict[str, Recommended], expected: bool
) -> None:
    assert accepted(subject, recommended) is expected


def test_a_container_that_is_switched_off_does_not_count_as_killed() -> None:
    subject = pod("100m", hours=0, oom_after=5)
    assert not rank(subject, fitting("101m"), RankRules(), scaled=lambda _: False, now=NOW).accepted


def test_pods_that_need_more_come_first_then_the_larger_difference() -> None:
    small = rank(pod("10m"), fitting(), RankRules(), scaled=lambda _: True, now=NOW)
    smaller = rank(pod("1m"), fitting(), RankRules(), scaled=lambda _: True, now=NOW)
    large = rank(pod("90"), fitting(), RankRules(), scaled=lambda _: True, now=NOW)
    assert in_order([large, small, smaller]) == [smaller, small, large]


def test_opposite_changes_of_two_containers_cancel() -> None:
    raw = make_pod("web", containers=[make_container("a", cpu="100m"), make_container("b", cpu="300m")])
    recommended = {
        name: Recommended(container=name, target=amounts({"cpu": cpu})) for name, cpu in (("a", "300m"), ("b", "100m"))
    }
    assert prioritize(convert(raw, Pod), recommended).diff == 0


def test_what_the_kubelet_reports_counts_instead_of_the_spec() -> None:
    raw = make_pod("web", containers=[make_container(cpu="100m")])
    raw.setdefault("status", {})["containerStatuses"] = [{"name": "main", "resources": {"requests": {"cpu": "300m"}}}]
    assert prioritize(convert(raw, Pod), fitting()).outside


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a, b", frozenset({"a", "b"}), id="comma-and-space"),
        pytest.param("", frozenset(), id="empty-means-none"),
        pytest.param("a,b", None, id="comma-alone-is-no-separator"),
        pytest.param("A", None, id="not-a-name"),
    ],
)
def test_the_note_of_the_webhook_is_read_exactly(text: str, expected: frozenset[str] | None) -> None:
    assert observed_containers(pod(annotations={"vpaObservedContainers": text})) == expected


@pytest.mark.parametrize(
    ("cpu", "requirements", "expected"),
    [
        pytest.param("50m", [("cpu", "TargetHigherThanRequests")], True, id="higher-holds"),
        pytest.param("150m", [("cpu", "TargetHigherThanRequests")], False, id="higher-does-not"),
        pytest.param("150m", [("cpu", "TargetLowerThanRequests")], True, id="lower-holds"),
        pytest.param("150m", [("cpu", "Sideways")], False, id="unknown-never-holds"),
        pytest.param("150m", [], True, id="no-requirement"),
    ],
)
def test_requirements_let_a_pod_go(cpu: str, requirements: list[tuple[str, str]], expected: bool) -> None:
    subject = convert(make_pod("web", containers=[make_container(cpu=cpu, memory="1Gi")]), Pod)
    given = [EvictionRequirement(resources=(name,), change_requirement=change) for name, change in requirements]
    assert admitted(subject, fitting(), given) is expected


def test_without_an_update_policy_there_are_no_requirements() -> None:
    assert admitted(pod(), {}, None)
    assert not admitted(pod(), {}, ())


def test_a_request_of_nothing_counts_as_one_milli() -> None:
    assert prioritize(pod("0"), fitting("100m")).diff == 99
    assert prioritize(pod(None), fitting("100m")).diff == 99


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        pytest.param(make_container("main", cpu="50m", memory="1Gi"), True, id="one-container-is-enough"),
        pytest.param(make_container("main", cpu="150m", memory="1Gi"), False, id="none-passes"),
        pytest.param(make_container("main", cpu="150m"), True, id="a-missing-request-passes"),
        pytest.param(make_container("other", cpu="50m", memory="1Gi"), False, id="no-recommendation-does-not"),
    ],
)
def test_one_container_that_meets_the_requirements_lets_the_pod_go(second: dict[str, Any], expected: bool) -> None:
    containers = [make_container("big", cpu="900m", memory="1Gi"), second]
    recommended = {**fitting(), "big": replace(fitting()["main"], container="big")}
    higher = [EvictionRequirement(resources=("cpu",), change_requirement="TargetHigherThanRequests")]
    assert admitted(convert(make_pod("web", containers=containers), Pod), recommended, higher) is expected


@pytest.mark.parametrize("oom_after", [None, 5.0])
def test_a_pod_without_a_recommendation_is_not_said_to_be_within_its_range(oom_after: float | None) -> None:
    ranked = rank(pod(oom_after=oom_after), {}, RankRules(), scaled=lambda _: True, now=NOW)
    assert (ranked.accepted, ranked.reason) == (False, "there is no recommendation that its containers could take")
