"""What prod pods leave unused, by pod and by priority."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.node.core.prediction.peak import SYSTEM, Peak, class_model
from kubetide.node.core.prediction.reclaimable import (
    EmptyPredictor,
    MinPredictor,
    NoPrediction,
    PodPredictor,
    PriorityPredictor,
    Reclaimable,
)
from unit.node.memory_host import START

GIB = 2**30


class Fixed:
    def __init__(self, **models: tuple[int, int]) -> None:
        self._models = models

    def predict(self, identity: str) -> dict[str, Peak] | None:
        if identity not in self._models:
            return None
        peak = Peak(*self._models[identity])
        return {"p95": peak, "p98": peak}


def pod(uid: str = "a", *, cpu: str = "2", hours_old: float = 48, **metadata: Any) -> Pod:
    created = START - timedelta(hours=hours_old)
    resources = {"requests": {"cpu": cpu, "memory": "4Gi"}}
    return convert(
        {
            "metadata": {"name": uid, "uid": uid, "creationTimestamp": created.isoformat(), **metadata},
            "spec": {"priority": 9100, "containers": [{"name": "c", "resources": resources}]},
            "status": {"phase": "Running"},
        },
        Pod,
    )


def by_pod(**models: tuple[int, int]) -> PodPredictor:
    return PodPredictor(Fixed(**models), START, 10, timedelta(hours=24))


def test_the_safety_margin_is_added_to_the_peak() -> None:
    predictor = by_pod(a=(1000, 2 * GIB))
    predictor.add_pod(pod())
    assert predictor.result() == Reclaimable(2000 - 1100, 4 * GIB - int(2 * GIB * 1.1))


def test_a_young_or_ending_pod_overcommits_nothing() -> None:
    predictor = by_pod()
    predictor.add_pod(pod(hours_old=1))
    predictor.add_pod(pod("b", deletionTimestamp=START.isoformat()))
    assert predictor.result() == Reclaimable(0, 0)


def test_a_pod_without_model_cannot_be_judged() -> None:
    with pytest.raises(NoPrediction):
        by_pod().add_pod(pod())


def test_one_pod_counts_once() -> None:
    predictor = by_pod(a=(1000, GIB))
    predictor.add_pod(pod())
    with pytest.raises(NoPrediction):
        predictor.add_pod(pod())


def test_priorities_take_off_the_system_too() -> None:
    models = {SYSTEM: (500, GIB), class_model("koord-prod"): (500, GIB), class_model(""): (0, 0)}
    predictor = PriorityPredictor(Fixed(**models), 0)
    predictor.add_pod(pod())
    assert predictor.result() == Reclaimable(1000, 2 * GIB)


def test_the_careful_answer_is_the_smaller_one() -> None:
    models = {SYSTEM: (1500, 0), class_model("koord-prod"): (0, 0), class_model(""): (0, 0), "a": (100, 3 * GIB)}
    predictor = MinPredictor(
        PodPredictor(Fixed(**models), START, 0, timedelta(0)), PriorityPredictor(Fixed(**models), 0)
    )
    predictor.add_pod(pod())
    assert predictor.result() == Reclaimable(500, GIB)


def test_without_prediction_there_is_no_answer() -> None:
    with pytest.raises(NoPrediction):
        EmptyPredictor().result()


def both(**models: tuple[int, int]) -> MinPredictor:
    fixed = Fixed(**models)
    return MinPredictor(PodPredictor(fixed, START, 0, timedelta(hours=24)), PriorityPredictor(fixed, 0))


IDLE = {SYSTEM: (0, 0), class_model("koord-prod"): (0, 0), class_model(""): (0, 0)}


def test_only_the_pod_predictor_waits_for_young_pods() -> None:
    predictor = PriorityPredictor(Fixed(**IDLE), 0)
    predictor.add_pod(pod(hours_old=1))
    assert predictor.result() == Reclaimable(2000, 4 * GIB)


def test_a_pod_is_young_up_to_the_limit_itself() -> None:
    at, past = by_pod(a=(0, 0)), by_pod(a=(0, 0))
    at.add_pod(pod(hours_old=24))
    past.add_pod(pod(hours_old=24.001))
    assert (at.result().cpu_millis, past.result().cpu_millis) == (0, 2000)


def test_the_request_of_a_pod_without_model_is_not_added_either() -> None:
    predictor = both(**IDLE, a=(0, 0))
    predictor.add_pod(pod())
    with pytest.raises(NoPrediction):
        predictor.add_pod(pod("stranger"))
    assert predictor.result() == Reclaimable(2000, 4 * GIB)


@pytest.mark.parametrize("missing", sorted(IDLE))
def test_without_one_of_the_three_models_there_is_no_answer_by_priority(missing: str) -> None:
    predictor = both(**{name: peak for name, peak in IDLE.items() if name != missing}, a=(0, 0))
    predictor.add_pod(pod())
    with pytest.raises(NoPrediction):
        predictor.result()


def test_only_prod_and_pods_without_class_count() -> None:
    predictor = both(**IDLE, a=(0, 0))
    predictor.add_pod(pod("b", labels={"koordinator.sh/priority-class": "koord-mid"}))
    assert predictor.result() == Reclaimable(0, 0)


def test_more_used_than_requested_overcommits_nothing_and_takes_nothing_from_others() -> None:
    predictor = by_pod(a=(3000, 5 * GIB), b=(1000, GIB))
    predictor.add_pod(pod("a"))
    predictor.add_pod(pod("b"))
    assert predictor.result() == Reclaimable(900, 4 * GIB - int(GIB * 1.1))
