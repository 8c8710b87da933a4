"""Past load of a target: what is asked, what cannot be, and what the answers teach."""

import re
from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.errors import InvalidInput
from kubetide.hpa.core.annotations import HeadroomMode, overrides_of
from kubetide.hpa.core.decide import metrics_of
from kubetide.hpa.core.headroom.learner import HeadroomLearner, learner_for
from kubetide.hpa.core.headroom.past_load import PastMetric, PastStep, past_metrics, past_steps
from unit.hpa.worlds import CPU_50, NOW, QUEUE, hpa, observation, pods, reading
from unit.hpa.worlds import turn as decided

HOUR = 240
"""Steps of 15 s."""


def resource(name: str, container: str = "", **target: Any) -> dict[str, Any]:
    kind = "ContainerResource" if container else "Resource"
    source = {"name": name, "target": target, **({"container": container} if container else {})}
    return {"type": kind, "containerResource" if container else "resource": source}


def asked(*metrics: dict[str, Any], kind: str = "Deployment", name: str = "web", query: str = "") -> list[PastMetric]:
    spec = hpa(metrics=list(metrics), kind=kind, target=name).spec
    return list(past_metrics("shop", spec, metrics_of(spec), pods(4), HpaCompat(), query))


def test_cpu_is_asked_as_the_rate_of_the_pods_that_are_there_and_counts_in_requests() -> None:
    (found,) = asked(CPU_50)
    series = (
        'container_cpu_usage_seconds_total{namespace="shop",pod=~"web-[bcdfghjklmnpqrstvwxz2456789]{1,10}-'
        '[bcdfghjklmnpqrstvwxz2456789]{5}",container!="",container!="POD"}'
    )
    assert found.query == f"sum(max by (pod, container) (irate({series}[5m]) and {series}))"
    assert (found.full, found.fill) == (0.1, 0.5)


@pytest.mark.parametrize(
    ("metric", "full", "fill"),
    [
        pytest.param(resource("cpu", type="AverageValue", averageValue="250m"), 0.25, 1.0, id="cores-per-pod"),
        pytest.param(resource("memory", type="AverageValue", averageValue="64Mi"), 64 * 2**20, 1.0, id="bytes-per-pod"),
        pytest.param(resource("cpu", "main", type="Utilization", averageUtilization=80), 0.1, 0.8, id="a-container"),
    ],
)
def test_a_full_replica_is_its_request_or_the_target(metric: dict[str, Any], full: float, fill: float) -> None:
    (found,) = asked(metric)
    assert (found.full, found.fill) == (full, fill)
    assert ('container="main"' in found.query) is (metric["type"] == "ContainerResource")
    assert ("irate" in found.query) is ('"memory"' not in str(metric).replace("'", '"'))


@pytest.mark.parametrize(
    ("kind", "name", "pod", "ours"),
    [
        ("Deployment", "web", "web-6f9c8d5b7-x2x4z", True),
        ("Deployment", "web", "web-api-6f9c8d5b7-x2x4z", False),
        ("Deployment", "web", "web-api-x2x4z", False),
        ("Deployment", "w.b", "web-6f9c8d5b7-x2x4z", False),
        ("StatefulSet", "web", "web-12", True),
        ("StatefulSet", "web", "web-a-1", False),
        ("ReplicaSet", "web", "web-x2x4z", True),
        ("ReplicaSet", "web", "web-6f9c8d5b7-x2x4z", False),
    ],
)
def test_pods_are_told_by_their_names(kind: str, name: str, pod: str, ours: bool) -> None:
    (found,) = asked(CPU_50, kind=kind, name=name)
    pattern = re.search(r'pod=~"([^"]*)"', found.query)
    assert pattern is not None
    assert (re.fullmatch(pattern[1].replace("\\\\", "\\"), pod) is not None) is ours


@pytest.mark.parametrize(
    ("metrics", "kind", "reason"),
    [
        pytest.param([QUEUE], "Deployment", "queue.*has no past", id="a-metric-that-prometheus-need-not-know"),
        pytest.param([CPU_50, QUEUE], "Deployment", "queue.*has no past", id="one-of-two"),
        pytest.param([CPU_50], "Rollout", "pods of a Rollout", id="a-kind-with-other-names"),
        pytest.param([resource("cpu", type="AverageValue", averageValue="0")], "Deployment", "never full", id="zero"),
        pytest.param([resource("memory", type="Utilization", averageUtilization=5)], "Deployment", "memory", id="none"),
        pytest.param([{"type": "Odd"}], "Deployment", "no metric source type", id="unknown-type"),
    ],
)
def test_a_past_that_cannot_be_asked_for_is_named(metrics: list[dict[str, Any]], kind: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        asked(*metrics, kind=kind)


def test_a_query_of_the_users_counts_in_full_replicas_already() -> None:
    (found,) = asked(QUEUE, CPU_50, kind="Rollout", query="sum(rate(requests[1m])) / 50")
    assert found == PastMetric(query="sum(rate(requests[1m])) / 50", full=1.0, fill=0.5)


@pytest.mark.parametrize(("text", "problems"), [("up", 0), (" ", 1), ("x" * 5000, 1)])
def test_the_annotation_with_a_query_is_read(text: str, problems: int) -> None:
    found = overrides_of({"kubetide.io/hpa-headroom-query": text})
    assert (found.headroom_query, len(found.problems)) == (None if problems else text, problems)


def test_the_busiest_metric_counts_and_what_one_does_not_know_is_a_gap() -> None:
    metrics = [PastMetric(query="a", full=2.0, fill=0.5), PastMetric(query="b", full=1.0, fill=1.0)]
    answers = [{10: 8.0, 11: 2.0, 12: 8.0, 14: 1e9, 15: -1.0}, {10: 1.0, 11: 3.0, 13: 1.0, 14: 1.0, 15: 1.0}]
    found = list(past_steps(metrics, answers, first=10, last=20))
    assert found == [PastStep(10, 4.0, 8.0), PastStep(11, 3.0, 3.0)]


def taught(hours: float, *, gap: int = 0) -> HeadroomLearner:
    """Return a learner that recalled a rush of ten minutes in every hour, until just before now."""
    spec, minutes = hpa(maximum=30).spec, timedelta(minutes=5)
    start, mode = timedelta(seconds=30), HeadroomMode.LEARNED
    found = learner_for(mode, spec, timedelta(seconds=15), minutes, start=start, replicas=4, saved={})
    last = int(NOW.timestamp()) // 15
    first = last - round(hours * HOUR)
    for step in range(first, last):
        if not first + 10 <= step < first + 10 + gap:
            demand = 5.0 if 120 <= step % HOUR < 160 else 1.0
            found.recall(PastStep(step, demand, demand / 0.5), 0.1)
    return found


def now_learned(learner: HeadroomLearner, steps: int = 1) -> Any:
    plain = decided(observation(hpa(maximum=30), 4, [reading(25, 25, 25, 25)]))
    for which in range(steps):
        at = NOW + which * timedelta(seconds=15)
        found = learner.learn(plain.choice, plain.results, pods(4), asked=4, now=at)
    assert found is not None
    return found.advice


def test_what_was_recalled_has_proved_itself_when_live_learning_begins() -> None:
    advice = now_learned(taught(6))
    assert advice.proven
    assert advice.cost < advice.plain_cost
    assert set(advice.forecast.weights) >= {"last", "hour"}


def test_half_an_hour_of_past_is_no_proof() -> None:
    assert not now_learned(taught(0.5)).proven


@pytest.mark.parametrize("gap", [5, 19, 200, HOUR])
def test_gaps_in_the_past_are_bridged_or_begun_anew_after_and_seasons_stay(gap: int) -> None:
    advice = now_learned(taught(6, gap=gap))
    assert advice.proven
    assert "hour" in advice.forecast.weights


def test_an_older_step_is_not_learned_twice() -> None:
    learner, twin = taught(2), taught(2)
    last = int(NOW.timestamp()) // 15
    learner.recall(PastStep(last - 10, 90.0, 180.0), 0.1)
    for one in (learner, twin):
        one.recall(PastStep(last, 1.0, 2.0), 0.1)
    assert learner.saved() == twin.saved()
