"""Which pods count."""

from datetime import datetime, timedelta

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.api.values.codec import convert
from kubetide.hpa.core.pods import PodList, ReadinessRules, count_ready, group_pods, pod_requests
from kubetide.hpa.core.samples import ErrorKind, MetricFailure, Sample
from unit.hpa.worlds import NOW, ago, pod, reading

RULES = ReadinessRules()
COMPAT = HpaCompat()


def group_of(one: Pod, sample: Sample | None, resource: str = "cpu") -> str:
    samples = {one.metadata.name: sample} if sample else {}
    groups = group_pods([one], samples, resource, RULES, now=NOW)
    assert group_pods(PodList([one]), samples, resource, RULES, now=NOW) == groups
    found = {"ignored": groups.ignored, "unready": groups.unready, "missing": groups.missing}
    return next((name for name, names in found.items() if names), "ready")


FRESH = Sample(100, NOW, timedelta(seconds=30))


@pytest.mark.parametrize(
    ("one", "sample", "resource", "expected"),
    [
        pytest.param(pod("a", deleting=True), FRESH, "cpu", "ignored", id="terminating-is-ignored"),
        pytest.param(pod("a", phase="Failed"), FRESH, "cpu", "ignored", id="failed-is-ignored"),
        pytest.param(pod("a", phase="Pending", ready=False), FRESH, "memory", "unready", id="pending-is-unready"),
        pytest.param(pod("a"), None, "cpu", "missing", id="no-sample-is-missing"),
        pytest.param(pod("a", phase="Succeeded"), None, "cpu", "missing", id="succeeded-is-not-special"),
        pytest.param(pod("a", ready=None), FRESH, "cpu", "unready", id="no-condition-is-unready-for-cpu"),
        pytest.param(pod("a", ready=None), FRESH, "memory", "ready", id="readiness-does-not-matter-for-memory"),
        pytest.param(pod("a", ready=False), FRESH, "cpu", "unready", id="never-became-ready"),
        pytest.param(
            pod("a", ready=False, started=ago(3600), changed=ago(60)), FRESH, "cpu", "ready", id="lost-readiness-counts"
        ),
        pytest.param(
            pod("a", started=ago(100), changed=ago(20)), FRESH, "cpu", "unready", id="sample-began-before-readiness"
        ),
        pytest.param(
            pod("a", started=ago(100), changed=ago(30)), FRESH, "cpu", "ready", id="sample-began-with-readiness"
        ),
        pytest.param(
            pod("a", ready=False, started=ago(300), changed=ago(10)),
            FRESH,
            "cpu",
            "ready",
            id="period-over-at-its-edge",
        ),
    ],
)
def test_a_pod_is_in_the_first_group_that_fits(one: Pod, sample: Sample | None, resource: str, expected: str) -> None:
    assert group_of(one, sample, resource) == expected


def test_unknown_readiness_is_not_unready_by_itself() -> None:
    raw = {
        "metadata": {"name": "a"},
        "status": {
            "phase": "Running",
            "startTime": "2026-03-01T11:59:00Z",
            "conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-03-01T11:59:10Z"}],
        },
    }
    assert group_of(convert(raw, Pod), FRESH) == "ready"


def test_requests_add_containers_and_sidecars() -> None:
    raw = {
        "metadata": {"name": "a"},
        "spec": {
            "containers": [{"name": "app", "resources": {"requests": {"cpu": "250m"}}}],
            "initContainers": [
                {"name": "setup"},
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "0.1"}}},
            ],
        },
    }
    one = convert(raw, Pod)
    assert pod_requests([one], "cpu", COMPAT) == {"a": 350}
    assert pod_requests([one], "cpu", COMPAT, "side") == {"a": 100}


def test_a_container_without_a_request_fails_the_metric() -> None:
    with pytest.raises(MetricFailure) as caught:
        pod_requests([pod("web-0"), pod("web-1", cpu=None)], "cpu", COMPAT)
    assert caught.value.kind is ErrorKind.MISSING_REQUEST
    assert "web-1" in str(caught.value)


def test_a_request_that_cannot_be_read_fails_the_metric() -> None:
    with pytest.raises(MetricFailure, match="not a quantity") as caught:
        pod_requests([pod("web-0", cpu="much")], "cpu", COMPAT)
    assert caught.value.kind is ErrorKind.MISSING_REQUEST


def test_times_at_the_end_of_the_calendar_are_compared_too() -> None:
    raw = {
        "metadata": {"name": "a"},
        "status": {
            "phase": "Running",
            "startTime": "9999-12-31T23:59:59Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z"}],
        },
    }
    assert group_of(convert(raw, Pod), FRESH) == "unready"


def test_ready_pods_are_counted_with_terminating_ones() -> None:
    running = [pod("a"), pod("b", deleting=True), pod("c", ready=False), pod("d", phase="Succeeded")]
    assert count_ready(running) == 2
    assert count_ready(running, passed_over={"b"}) == 1
    with pytest.raises(MetricFailure) as caught:
        count_ready([])
    assert caught.value.kind is ErrorKind.NO_PODS


def test_pods_of_a_rollout_can_be_passed_over() -> None:
    groups = group_pods(
        [pod("web-0"), pod("web-1")], reading(1, 2).samples, "cpu", RULES, now=NOW, passed_over={"web-1"}
    )
    assert (groups.ready, groups.ignored) == (1, ("web-1",))


def test_an_absent_transition_time_is_long_ago() -> None:
    raw = {
        "metadata": {"name": "a"},
        "status": {
            "phase": "Running",
            "startTime": "2026-03-01T11:59:00Z",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    assert group_of(convert(raw, Pod), Sample(1, datetime.fromisoformat("2026-03-01T11:59:30Z"))) == "ready"


@pytest.mark.parametrize("young", [299, 300, 301])
@pytest.mark.parametrize("resource", ["cpu", "memory"])
@pytest.mark.parametrize("more", [{}, {"c": FRESH}, {"c": FRESH, "ghost": FRESH}], ids=["missing", "all", "ghost"])
@pytest.mark.parametrize(
    "others",
    [
        pytest.param([], id="no-others"),
        pytest.param([pod("d", phase="Pending", ready=False), pod("e", deleting=True)], id="one-pending"),
        pytest.param([pod("d", ready=False), pod("e", ready=None)], id="not-ready"),
    ],
)
def test_a_list_that_remembers_groups_and_counts_as_any_other(
    young: int, resource: str, more: dict[str, Sample], others: list[Pod]
) -> None:
    several = [pod("a"), *others, pod("b", started=ago(young), changed=ago(young - 1)), pod("c")]
    samples = {"a": FRESH, "b": Sample(100, ago(young), timedelta(seconds=30)), "d": FRESH, "e": FRESH, **more}
    remembering = PodList(several)
    for later in (0, 1, 1, 600):
        now = NOW + timedelta(seconds=later)
        assert group_pods(remembering, samples, resource, RULES, now=now) == group_pods(
            several, samples, resource, RULES, now=now
        )
        assert pod_requests(remembering, "cpu", COMPAT) == pod_requests(several, "cpu", COMPAT)


def test_only_pods_that_may_be_starting_are_looked_at() -> None:
    young, pending = pod("b", started=ago(100), changed=ago(90)), pod("c", phase="Pending", ready=False)
    remembering = PodList([pod("a"), young, pending, pod("d")])
    settled, others = remembering.settled("cpu", RULES, now=NOW)
    assert (list(settled), others) == (["a", "d"], [young, pending])
    settled, others = remembering.settled("cpu", RULES, now=NOW + timedelta(seconds=200))
    assert (list(settled), others) == (["a", "b", "d"], [pending])
    assert list(remembering.settled("memory", RULES, now=NOW)[0]) == ["a", "b", "d"]
