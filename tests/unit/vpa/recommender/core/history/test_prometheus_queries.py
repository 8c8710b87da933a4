from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from kubetide.api.objects.capacity import Capacity
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.errors import Unavailable
from kubetide.stats.prometheus_ranges import PrometheusAnswer
from kubetide.vpa.recommender.core.history.prometheus_queries import (
    cpu_query,
    label_query,
    memory_query,
    read_labels,
    read_series,
)
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.usage.plausible import Bounds
from kubetide.vpa.recommender.prometheus import PrometheusHistory, load_history
from kubetide.vpa.recommender.settings import RecommenderSettings

SETTINGS = RecommenderSettings()
START = datetime(2026, 3, 4, 12, tzinfo=UTC)


def answer(kind: str, *results: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"status": "success", "data": {"resultType": kind, "result": list(results)}})


def series(values: list[tuple[float, str]], **labels: str) -> dict[str, Any]:
    return {"metric": {"namespace": "shop", "pod_name": "web-0", "name": "app", **labels}, "values": values}


def test_queries_are_those_of_upstream() -> None:
    matchers = 'job="kubernetes-cadvisor", pod_name=~".+", name!="POD", name!=""'
    assert cpu_query(SETTINGS) == f"rate(container_cpu_usage_seconds_total{{{matchers}}}[1h])"
    assert memory_query(SETTINGS) == f"container_memory_working_set_bytes{{{matchers}}}"
    plain = RecommenderSettings(prometheus_cadvisor_job_name="", vpa_object_namespace="shop")
    assert memory_query(plain).endswith('{pod_name=~".+", name!="POD", name!="", namespace="shop"}')
    renamed = RecommenderSettings(history_cpu_metric="cores_total", history_memory_metric="bytes")
    assert cpu_query(renamed).startswith("rate(cores_total{")
    assert memory_query(renamed).startswith("bytes{")


def test_a_plain_label_metric_is_asked_over_the_whole_history() -> None:
    assert label_query(SETTINGS) == '(up{job="kubernetes-pods"})[8d:1h]'
    ranged = RecommenderSettings(metric_for_pod_labels="kube_pod_labels{}[8d]")
    assert label_query(ranged) == "kube_pod_labels{}[8d]"


def test_samples_are_sorted_and_what_is_no_number_is_left_out() -> None:
    found = read_series(answer("matrix", series([(20.0, "2"), (10.0, "1.5"), (30.0, "NaN")])), SETTINGS)
    assert found[0].times.tolist() == [10_000_000, 20_000_000]
    assert found[0].values.tolist() == [1.5, 2.0]
    assert (found[0].namespace, found[0].pod, found[0].container) == ("shop", "web-0", "app")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"<html>", "not Prometheus' JSON", id="no-json"),
        pytest.param(b'{"status":"\xff\xfe"}', "not Prometheus' JSON", id="no-utf-8"),
        pytest.param(answer("matrix", series([(0.0, "twelve")])), "no number", id="words-for-a-number"),
        pytest.param(answer("matrix", series([(1e300, "1")])), "seconds from 1970", id="no-time"),
        pytest.param(b'{"status":"error","errorType":"bad_data","error":"no"}', "bad_data: no", id="refused"),
        pytest.param(answer("vector"), "is a vector", id="vector"),
        pytest.param(answer("matrix", {"metric": {"namespace": "x"}, "values": []}), "no label", id="label-missing"),
    ],
)
def test_answers_that_cannot_be_used_say_why(body: bytes, reason: str) -> None:
    with pytest.raises(PrometheusAnswer, match=reason):
        read_series(body, SETTINGS)


def test_labels_come_from_the_youngest_series_of_a_pod() -> None:
    def labelled(last: float, value: str) -> dict[str, Any]:
        metric = {"kubernetes_namespace": "shop", "kubernetes_pod_name": "web-0", "pod_label_app": value, "x": "y"}
        return {"metric": metric, "values": [(last, "1")]}

    found = read_labels(answer("matrix", labelled(5.0, "new"), labelled(3.0, "old")), SETTINGS)
    assert found == {("shop", "web-0"): {"app": "new"}}
    one = {**labelled(5.0, "now"), "values": [], "value": (5.0, "1")}
    assert read_labels(answer("vector", one), SETTINGS) == {("shop", "web-0"): {"app": "now"}}


class Flaky:
    """Answers memory and CPU at every step asked for, but not every time."""

    def __init__(self, fail: int) -> None:
        self.fail = fail
        self.asked: list[tuple[int, int]] = []

    async def post(self, path: str, form: Mapping[str, str]) -> bytes:
        if self.fail > 0:
            self.fail -= 1
            raise Unavailable("down")
        if path == "/api/v1/query":
            metric = {"kubernetes_namespace": "shop", "kubernetes_pod_name": "web-0", "pod_label_app": "web"}
            return answer("matrix", {"metric": metric, "values": [(1.0, "1")]})
        start, end, step = int(form["start"]), int(form["end"]), int(form["step"])
        self.asked.append((start, end))
        self.fail = 1 if len(self.asked) == 2 else 0
        value = "0.25" if form["query"].startswith("rate") else "1e8"
        return answer("matrix", series([(float(at), value) for at in range(start, end + 1, step)]))


def test_an_outage_in_the_middle_is_waited_out_and_no_sample_is_lost_or_doubled() -> None:
    async def main() -> None:
        settings = RecommenderSettings(history_length="2d", history_resolution="5m")
        prometheus, model = Flaky(fail=3), Model()
        clock = virtual_clock()
        history = PrometheusHistory(prometheus, settings, clock=clock, rng=Random(0))
        samples = await history.load(model)
        points = 2 * 24 * 12 + 1
        assert samples == 2 * points
        covered = sum((end - start) // 300 + 1 for start, end in prometheus.asked)
        assert covered == 2 * points
        assert clock.monotonic() > 3
        pod = next(iter(model.pods.values()))
        assert pod.phase == "Unknown"
        assert pod.labels.labels == {"app": "web"}

    run_virtual(main(), start=START, limit=timedelta(hours=2))


def test_a_deadline_ends_the_waiting() -> None:
    async def main() -> None:
        settings = RecommenderSettings(history_deadline=timedelta(minutes=10))
        history = PrometheusHistory(Flaky(fail=10**6), settings, clock=virtual_clock(), rng=Random(0))
        with pytest.raises(Unavailable):
            await history.load(Model())

    run_virtual(main(), start=START, limit=timedelta(hours=2))


def test_history_from_the_future_or_above_the_largest_node_is_left_out() -> None:
    class Odd:
        async def post(self, path: str, form: Mapping[str, str]) -> bytes:
            if path == "/api/v1/query":
                return answer("matrix")
            now = int(START.timestamp())
            values = [(float(now - 60), "1"), (float(now - 30), "1e30"), (now + 86400.0, "1")]
            return answer("matrix", series(values))

    async def main() -> None:
        settings = RecommenderSettings(history_length="1h", history_resolution="5m")
        history = PrometheusHistory(Odd(), settings, clock=virtual_clock(), rng=Random(0))
        refused = await load_history(history, Model(), Bounds(Capacity({"n": {"cpu": 4000, "memory": 2**33 * 1000}})))
        assert {reason.value: found.count for reason, found in refused.items()} == {"future": 2, "above_node": 2}
        assert {found.example for found in refused.values()} == {"shop/web-0"}

    run_virtual(main(), start=START, limit=timedelta(hours=2))
