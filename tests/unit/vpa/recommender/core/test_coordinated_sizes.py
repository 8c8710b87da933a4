"""Sizes for an HPA's target: what moves them, and what does not."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kubetide.api.objects.hpa import (
    HorizontalPodAutoscaler,
    HpaMeta,
    HpaSpec,
    MetricSpec,
    MetricTarget,
    ResourceMetricSource,
)
from kubetide.vpa.recommender.core.coordination.demand import Demand
from kubetide.vpa.recommender.core.coordination.goals import coordination_of
from kubetide.vpa.recommender.core.coordination.sizing import TOLERANCE, Horizontal, SizeReason, Sizes, counts
from kubetide.vpa.recommender.settings import HpaConflicts


def horizontal(
    replicas: float,
    *,
    target: float = 0.5,
    minimum: float = 2,
    maximum: float = 20,
    rested: float = 3600.0,
    start: float = 30.0,
    largest: float = 4000.0,
    resized: bool = True,
) -> Horizontal:
    return Horizontal(
        target=np.array([target]),
        minimum=np.array([minimum]),
        maximum=np.array([maximum]),
        replicas=np.array([replicas]),
        rested_seconds=np.array([rested]),
        start_seconds=np.array([start]),
        largest=np.array([largest]),
        smallest=np.array([25.0]),
        resized=np.array([resized]),
    )


class Workload:
    """A workload under constant demand, with an HPA that follows announcements, or does not."""

    def __init__(self, size: float, replicas: float, *, follows: bool = True, **view: Any) -> None:
        self.demand, self.sizes = Demand(1), Sizes(np.array([size]), 0)
        self.replicas, self.follows, self.view = replicas, follows, view
        self.now, self.reasons = 0, [SizeReason.SETTLING]

    def run(self, hours: float, millis: float, noise: Sequence[float] = (1.0,)) -> "Workload":
        level = millis
        for minute in range(round(hours * 60)):
            self.now += 60
            millis = level * noise[minute % len(noise)]
            here = horizontal(self.replicas, **self.view)
            self.demand.add(np.array([millis]), self.now)
            reason = SizeReason(int(self.sizes.decide(self.demand, here, self.now)[0]))
            if reason != self.reasons[-1]:
                self.reasons.append(reason)
            wanted = float(counts(np.array([millis]), self.sizes.size, here)[0])
            if abs(millis / float(self.sizes.size[0] * here.target[0]) - self.replicas) <= TOLERANCE * self.replicas:
                wanted = self.replicas
            self.replicas = max(wanted, float(self.sizes.count[0]) if self.follows else 0.0)
        return self

    @property
    def size(self) -> float:
        return float(self.sizes.size[0])


def test_pods_that_idle_at_the_minimum_shrink_to_what_the_target_needs() -> None:
    workload = Workload(500, 2).run(6, 200)
    assert workload.size == pytest.approx(200)
    assert workload.replicas == 2


def test_pods_that_are_right_are_left_alone() -> None:
    workload = Workload(250, 8).run(48, 1000)
    assert workload.size == 250
    assert SizeReason.CHEAPER not in workload.reasons


def test_pods_grow_before_the_count_reaches_its_maximum() -> None:
    workload = Workload(100, 20).run(1, 1500)
    assert SizeReason.CROWDED in workload.reasons
    assert workload.size == 200
    assert workload.replicas == 15


def test_nothing_moves_while_the_count_does() -> None:
    workload = Workload(500, 2, rested=60.0).run(6, 200)
    assert workload.size == 500
    assert workload.reasons[-1] is SizeReason.NOT_AT_REST


def test_a_size_halves_at_most_and_then_stays_for_an_hour() -> None:
    workload = Workload(2000, 2).run(1.5, 200)
    assert workload.size == 1000
    assert workload.run(1, 200).size == 500


def test_smaller_pods_wait_until_there_are_enough_of_them() -> None:
    workload = Workload(4000, 3, minimum=1, largest=2000.0)
    workload.run(1.0, 5000)
    before = workload.size
    while workload.sizes.planned[0] == before and workload.now < 3 * 3600:
        workload.run(1 / 60, 5000)
    assert workload.reasons[-1] is SizeReason.ANNOUNCED
    assert workload.size == before
    workload.run(2 / 60, 5000)
    assert workload.reasons[-2:] == [SizeReason.ANNOUNCED, SizeReason.FOLLOWED]
    assert workload.size == float(workload.sizes.planned[0]) < before
    assert workload.replicas * workload.size * 0.5 >= 5000 * 0.999


def test_a_peak_that_is_within_the_tolerance_of_the_count_moves_nothing() -> None:
    """Three pods of 270m at 50 % are right for 400m to 445m: a peak of 410m takes no fourth one."""
    workload = Workload(270, 3, start=300.0).run(12, 403).run(12, 410)
    assert workload.reasons[-1] is SizeReason.KEPT
    assert (workload.size, workload.replicas) == (270, 3)


def test_the_highest_of_the_noise_is_not_sized_for() -> None:
    demand = Demand(1)
    rng = np.random.default_rng(1)
    for minute in range(1, 60 * 24):
        demand.add(np.array([1000.0 * (1.0 + 0.05 * rng.standard_normal())]), minute * 60)
    assert demand.peak()[0] == pytest.approx(1000, rel=0.02)


def announced(noise: float = 1.0) -> Workload:
    """A workload whose pods are to become smaller, and its count larger, just after that was announced."""
    workload = Workload(4000, 3, minimum=1, largest=2000.0).run(1.0, 5000)
    while not workload.sizes.count[0]:
        workload.run(1 / 60, 5000)
    workload.run(1 / 60, 5000 * noise)
    return workload


def test_an_announced_count_is_taken_once_and_stays_whatever_the_noise() -> None:
    number = announced().replicas
    assert number == announced().sizes.count[0] > 3
    for share in (0.8, 0.95, 1.04):
        workload = announced(share)
        assert (workload.replicas, float(workload.sizes.count[0])) == (number, number)


def test_an_announced_count_rises_with_a_load_that_leaves_its_tolerance() -> None:
    workload = Workload(4000, 3, follows=False, minimum=1, largest=2000.0).run(1.0, 5000)
    while not workload.sizes.count[0]:
        workload.run(1 / 60, 5000)
    before = float(workload.sizes.count[0])
    workload.run(8 / 60, 8000)
    assert float(workload.sizes.count[0]) > before


def test_an_announced_count_holds_until_all_pods_have_the_new_size_or_ten_minutes_have_passed() -> None:
    workload = announced()
    workload.view["resized"] = False
    workload.run(5 / 60, 5000)
    assert workload.reasons[-1] is not SizeReason.ANNOUNCED
    number = float(workload.sizes.count[0])
    assert number > 3
    workload.view["resized"] = True
    assert workload.run(1 / 60, 5000).sizes.count[0] == 0
    workload = announced()
    workload.view["resized"] = False
    assert workload.run(9 / 60, 5000).sizes.count[0] == number
    assert workload.run(3 / 60, 5000).sizes.count[0] == 0


def test_where_nobody_follows_pods_shrink_by_what_the_present_count_carries() -> None:
    workload = Workload(4000, 3, follows=False, minimum=1, largest=2000.0).run(1.5, 5000)
    assert SizeReason.STEPPED in workload.reasons
    assert workload.size * 3 * 0.9 >= 5000 * 0.999


def test_unknown_demand_moves_nothing() -> None:
    workload = Workload(500, 2)
    workload.run(6, float("nan"))
    assert workload.size == 500
    assert workload.reasons[-1] is SizeReason.UNKNOWN


def test_a_burst_of_two_minutes_is_smoothed_and_a_day_later_forgotten() -> None:
    demand = Demand(1)
    for minute in range(1, 60 * 26):
        demand.add(np.array([1000.0 if 30 <= minute < 32 else 100.0]), minute * 60)
        if minute == 32:
            assert 300 < demand.smoothed[0] < 500
            assert 100 < demand.peak()[0] < 200
    assert demand.peak()[0] == pytest.approx(100, rel=0.05)


def autoscaler(name: str = "web", *, percent: int | None = 60, average: str | None = None) -> HorizontalPodAutoscaler:
    target = MetricTarget(type="Utilization", average_utilization=percent, average_value=average)
    metric = MetricSpec(type="Resource", resource=ResourceMetricSource(name="cpu", target=target))
    return HorizontalPodAutoscaler(metadata=HpaMeta(name=name), spec=HpaSpec(metrics=(metric,), max_replicas=5))


@pytest.mark.parametrize(
    ("hpas", "percent", "obstacle"),
    [
        pytest.param([autoscaler()], 60, "", id="one-utilization-is-sized-for"),
        pytest.param([autoscaler(percent=None, average="1")], None, "", id="an-absolute-value-looks-at-no-request"),
        pytest.param([autoscaler(), autoscaler("b")], None, "2 HorizontalPodAutoscalers", id="two-have-no-common-size"),
        pytest.param([], None, "", id="none"),
    ],
)
def test_one_hpa_with_one_utilization_can_be_sized_for(
    hpas: list[HorizontalPodAutoscaler], percent: int | None, obstacle: str
) -> None:
    found = coordination_of({}, HpaConflicts.COORDINATE, hpas, scoped=False)
    assert (found.goal.percent if found.goal else None) == percent
    assert found.obstacle.startswith(obstacle)
    assert bool(found.obstacle) == bool(obstacle)


def test_the_annotation_of_a_vpa_wins_and_a_misspelt_one_is_named() -> None:
    asked = coordination_of(
        {"kubetide.io/hpa-conflicts": "coordinate"}, HpaConflicts.REPORT, [autoscaler()], scoped=False
    )
    assert asked.goal is not None
    wrong = coordination_of({"kubetide.io/hpa-conflicts": "both"}, HpaConflicts.REPORT, [autoscaler()], scoped=False)
    assert wrong.goal is None
    assert "'both' is none of ignore, report, avoid, coordinate" in wrong.problem
