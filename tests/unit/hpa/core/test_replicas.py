"""The formulas, by example; the golden vectors have the rest."""

import math

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.hpa.core.pods import ReadinessRules, group_pods
from kubetide.hpa.core.replicas import (
    INT32_MAX,
    INT32_MIN,
    Proposal,
    Tolerance,
    divided,
    propose_average,
    propose_raw,
    propose_utilization,
    propose_value,
    rounded_up,
    truncated,
    utilization_of,
)
from kubetide.hpa.core.samples import ErrorKind, MetricFailure, PodReading, Sample
from unit.hpa.worlds import NOW, pod, pods, reading, value

RULES = ReadinessRules()
TOLERANCE = Tolerance()


def utilization(found: PodReading, running: list[Pod], *, target: int = 50, current: int | None = None) -> Proposal:
    groups = group_pods(running, found.samples, "cpu", RULES, now=NOW)
    count = len(running) if current is None else current
    return propose_utilization(
        found, running, groups, resource="cpu", target=target, current=count, tolerance=TOLERANCE, compat=HpaCompat()
    )


def raw(found: PodReading, running: list[Pod], *, target: int, current: int | None = None) -> Proposal:
    groups = group_pods(running, found.samples, "", RULES, now=NOW)
    count = len(running) if current is None else current
    return propose_raw(found, running, groups, target=target, current=count, tolerance=TOLERANCE)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param((50, 50), 2, id="on-target"),
        pytest.param((55, 55), 2, id="upper-edge-of-the-tolerance-stays"),
        pytest.param((45, 45), 2, id="lower-edge-stays"),
        pytest.param((100, 100), 4, id="double-usage-doubles"),
        pytest.param((20, 20), 1, id="less-shrinks"),
        pytest.param((0, 0), 0, id="nothing-proposes-nothing"),
    ],
)
def test_utilization_moves_outside_the_tolerance(samples: tuple[int, ...], expected: int) -> None:
    assert utilization(reading(*samples), pods(2)).replicas == expected


def test_the_percentage_is_truncated_before_it_is_compared() -> None:
    found = utilization(reading(999), [pod("web-0", cpu="1")], target=99)
    assert (found.utilization, found.ratio) == (99, 1.0)


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param({"web-0": 100, "web-1": 300}, id="the-same-pods"),
        pytest.param({"web-1": 300, "web-0": 100, "idle": 1000}, id="one-without-a-sample"),
    ],
)
@pytest.mark.parametrize("ghosts", [{}, {"ghost": Sample(10_000)}], ids=["no-ghost", "a-sample-of-no-pod"])
def test_a_percentage_is_that_of_pods_with_both_a_sample_and_a_request(
    requests: dict[str, int], ghosts: dict[str, Sample]
) -> None:
    found = utilization_of({"web-0": Sample(50), **ghosts, "web-1": Sample(150)}, requests, 25)
    assert (found.utilization, found.average, found.ratio) == (50, 100, 2.0)


def test_missing_pods_use_nothing_when_growing() -> None:
    found = utilization(reading(100, 100), pods(4))
    assert (found.replicas, found.filled_ratio) == (4, 1.0)


def test_missing_pods_use_their_request_when_shrinking() -> None:
    found = utilization(reading(10, 10), pods(4))
    assert (found.ratio, found.filled_ratio) == (0.2, 1.1)
    assert found.replicas == 4


def test_unready_pods_damp_growth_only() -> None:
    running = [*pods(2), pod("web-2", ready=False)]
    assert utilization(reading(100, 100, 900), running).replicas == 4
    assert utilization(reading(10, 10, 900), running).replicas == 1


def test_raw_fills_missing_pods_with_the_target_when_shrinking() -> None:
    found = raw(reading(100, 100), pods(3), target=1000)
    assert found.filled_ratio == 0.4
    assert found.replicas == 2


def test_samples_of_unknown_pods_enter_raw_averages() -> None:
    assert raw(reading(10, 10, 40), pods(2), target=10).value == 20


def test_a_value_is_shared_by_the_ready_pods() -> None:
    assert propose_value(value(30), pods(2), target=10, current=2, tolerance=TOLERANCE).replicas == 6
    assert propose_value(value(10), [], target=10, current=2, tolerance=TOLERANCE).replicas == 2
    assert propose_value(value(25), [], target=10, current=0, tolerance=TOLERANCE).replicas == 3


def test_a_value_with_no_ready_pod_proposes_nothing_at_all() -> None:
    found = propose_value(value(30), [pod("web-0", ready=False)], target=10, current=1, tolerance=TOLERANCE)
    assert (found.replicas, found.multiplier) == (0, 0)


def test_an_average_is_measured_at_the_observed_replicas() -> None:
    assert propose_average(value(40), target=10, observed=4, tolerance=TOLERANCE).replicas == 4
    assert propose_average(value(45), target=10, observed=4, tolerance=TOLERANCE).replicas == 5
    assert propose_average(value(45), target=10, observed=4, tolerance=TOLERANCE).value == 12


def test_an_average_over_no_replicas_shows_the_usage_itself() -> None:
    found = propose_average(value(45), target=10, observed=0, tolerance=TOLERANCE)
    assert (found.replicas, found.value, found.ratio) == (5, 45, math.inf)


@pytest.mark.parametrize(
    ("running", "found", "kind"),
    [
        pytest.param([], reading(1), ErrorKind.NO_PODS, id="no-pods"),
        pytest.param([pod("web-0", deleting=True)], reading(1), ErrorKind.NO_USABLE_METRICS, id="only-terminating"),
        pytest.param([pod("web-0", cpu="0")], reading(1), ErrorKind.ZERO_REQUESTS, id="requests-add-up-to-zero"),
        pytest.param([pod("web-0", cpu=None)], reading(1), ErrorKind.MISSING_REQUEST, id="no-request"),
    ],
)
def test_failures_have_a_kind(running: list[Pod], found: PodReading, kind: ErrorKind) -> None:
    with pytest.raises(MetricFailure) as caught:
        utilization(found, running)
    assert caught.value.kind is kind


def test_samples_of_pods_that_are_gone_are_not_mistaken_for_pods_that_request_nothing() -> None:
    gone = PodReading(samples={"web-old": Sample(1)}, timestamp=NOW)
    with pytest.raises(MetricFailure, match="the samples are of pods that are gone"):
        utilization(gone, [pod("web-0")])
    with pytest.raises(MetricFailure, match="request nothing"):
        utilization(reading(1), [pod("web-0", cpu="0")])


def test_counts_stay_within_32_bits() -> None:
    assert rounded_up(1e300) == INT32_MAX
    assert rounded_up(-1e300) == INT32_MIN
    assert rounded_up(math.inf) == INT32_MAX
    assert rounded_up(math.nan) == 0
    assert rounded_up(2147483646.5) == INT32_MAX


def test_division_is_that_of_the_reference() -> None:
    assert truncated(-7, 2) == -3
    assert truncated(7, 2) == 3
    assert divided(1, 0) == math.inf
    assert divided(-1, 0) == -math.inf
    assert math.isnan(divided(0, 0))


@pytest.mark.parametrize(("ratio", "covered"), [(0.9, True), (1.1, True), (1.1000001, False), (math.nan, False)])
def test_both_ends_of_the_tolerance_count(ratio: float, covered: bool) -> None:
    assert TOLERANCE.covers(ratio) is covered
