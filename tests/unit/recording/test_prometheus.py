"""Recording from Prometheus: what it answers, what it lacks, and what happens when it fails in the middle."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, cast
from urllib.parse import urlencode

import msgspec
import numpy as np
import pytest

from kubetide.clock import SystemClock
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.errors import InvalidInput, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response, Transport
from kubetide.recording.format import Manifest
from kubetide.recording.prometheus import PrometheusRecorder, Span
from kubetide.recording.prometheus_proxy import ProxiedPrometheus, find_prometheus
from kubetide.recording.reader import Recording
from kubetide.recording.writer import Writer
from kubetide.stats.prometheus_ranges import PrometheusAnswer
from kubetide.testing import Cluster
from kubetide.vpa.recommender.settings import RecommenderSettings

pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")

START = 1_700_006_400
STEP = 300
POINTS = 1000
SPAN = Span(start=START, end=START + (POINTS - 1) * STEP, step=STEP)
WHO = {"namespace": "shop", "pod": "web-1", "container": "app"}
Values = Mapping[int, float]


class FakePrometheus:
    """Answers range queries from tables; `fails` says how often each question about a time is not answered."""

    def __init__(self, series: Mapping[str, list[tuple[dict[str, str], Values]]]) -> None:
        self._series = series
        self.fails: dict[int, int] = {}
        self.refuses = ""
        self.asked: list[str] = []

    async def post(self, path: str, form: Mapping[str, str]) -> bytes:
        query, start, end = form["query"], int(form["start"]), int(form["end"])
        self.asked.append(query)
        if self.refuses and self.refuses in query:
            raise PrometheusAnswer("status 400: bad query")
        for at in self.fails:
            if start <= at <= end and self.fails[at] > 0 and "cpu_usage" in query:
                self.fails[at] -= 1
                raise Unavailable("Prometheus is away")
        name = next((each for each in sorted(self._series, key=len, reverse=True) if each in query), None)
        result = [
            {"metric": labels, "values": [[at, str(value)] for at, value in values.items() if start <= at <= end]}
            for labels, values in self._series.get(name or "", [])
        ]
        data = {"resultType": "matrix", "result": [one for one in result if one["values"]]}
        return msgspec.json.encode({"status": "success", "data": data})


def every(value: float, *, step: int = STEP) -> Values:
    return {SPAN.start + number * step: value + number for number in range(POINTS * STEP // step)}


def usage(**more: Any) -> dict[str, list[tuple[dict[str, str], Values]]]:
    return {
        "rate(container_cpu_usage_seconds_total": [(WHO, every(0.5))],
        "container_memory_working_set_bytes": [(WHO, every(1e6))],
        **more,
    }


def record(path: Path, source: FakePrometheus, **options: Any) -> Recording:
    settings = msgspec.structs.replace(
        RecommenderSettings(), container_pod_name_label="pod", container_name_label="container"
    )

    async def main() -> None:
        with Writer(path, Manifest(interval_seconds=STEP, start=SPAN.start, end=SPAN.end)) as writer:
            recorder = PrometheusRecorder(
                prometheus=source, settings=settings, writer=writer, clock=virtual_clock(), rng=Random(0), **options
            )
            await recorder.run(SPAN)

    run_virtual(main(), start=datetime(2026, 1, 1, tzinfo=UTC), limit=timedelta(days=1))
    return Recording(path)


def samples(recording: Recording) -> np.ndarray:
    return np.concatenate([grid.memory[:, 0] for grid in recording.grids(0)])[:POINTS]


def test_everything_that_prometheus_knows(tmp_path: Path) -> None:
    source = FakePrometheus(
        usage(
            kube_pod_owner=[({**WHO, "owner_kind": "ReplicaSet", "owner_name": "web-abc"}, every(1))],
            kube_replicaset_owner=[
                (
                    {"namespace": "shop", "replicaset": "web-abc", "owner_kind": "Deployment", "owner_name": "web"},
                    every(1),
                )
            ],
            **{
                'resource_requests{resource="memory"}': [(WHO, {START: 5e6, START + STEP: 5e6, START + 2 * STEP: 6e6})],
                'resource_limits{resource="cpu"}': [(WHO, {START: 2.0})],
                "kube_deployment_spec_replicas": [
                    ({"namespace": "shop", "deployment": "web"}, {START: 3.0, START + STEP: 4.0})
                ],
                "restarts_total": [(WHO, {START + 600: 1.0})],
                'kube_node_status_capacity{resource="cpu"}': [({"node": "n1"}, {START: 8.0})],
                "my_load": [({"namespace": "shop", "workload": "web"}, {START: 12.5})],
                "throttled_periods": [(WHO, {START: 0.25})],
            },
        )
    )
    recording = record(tmp_path / "a.tide", source, load_query="sum by (workload) (my_load)")
    assert recording.containers.workload == ("web",)
    assert recording.containers.kind == ("Deployment",)
    assert samples(recording).tolist() == [1e6 + number for number in range(POINTS)]
    assert recording.rows("sizes")["memory_request_bytes"] == [5_000_000, 6_000_000]
    assert recording.rows("sizes")["cpu_limit_millis"] == [2000, 2000]
    assert recording.rows("replicas")["wanted"] == [3, 4]
    assert recording.rows("oom_kills")["time"] == [(START + 600) * 1_000_000]
    assert recording.rows("nodes")["cpu_millis"] == [8000]
    assert recording.rows("load")["value"] == [12.5]
    first = next(iter(recording.grids(0)))
    assert first.throttled is not None
    assert first.throttled[0, 0] == 0.25
    assert np.isnan(first.throttled[1, 0])


def test_points_without_a_value_stay_empty(tmp_path: Path) -> None:
    series = usage()
    series["container_memory_working_set_bytes"] = [(WHO, {START: 1.0, START + 600: float("nan"), START + 900: 4.0})]
    found = samples(record(tmp_path / "a.tide", FakePrometheus(series)))
    assert np.flatnonzero(~np.isnan(found)).tolist() == [0, 3]


def test_an_outage_only_delays(tmp_path: Path) -> None:
    source = FakePrometheus(usage())
    source.fails = {START + 500 * STEP: 4}
    recording = record(tmp_path / "a.tide", source)
    assert not np.isnan(samples(recording)).any()
    assert recording.manifest.gaps == []


def test_a_failure_in_the_middle_is_an_error_and_no_file(tmp_path: Path) -> None:
    source = FakePrometheus(usage())
    source.fails = {START + 500 * STEP: 10_000}
    with pytest.raises(Unavailable, match="Prometheus is away"):
        record(tmp_path / "a.tide", source, deadline=timedelta(minutes=2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("allow_gaps", [False, True])
def test_a_prometheus_that_never_answers_is_not_asked_for_long(tmp_path: Path, allow_gaps: bool) -> None:
    asked: list[str] = []
    times: list[float] = []

    class Nobody(FakePrometheus):
        async def post(self, path: str, form: Mapping[str, str]) -> bytes:
            asked.append(form["query"])
            times.append(asyncio.get_running_loop().time())
            raise Unavailable("nobody is there")

    with pytest.raises(Unavailable, match="nobody is there"):
        record(tmp_path / "a.tide", Nobody({}), allow_gaps=allow_gaps)
    assert len(set(asked)) == 1, "the first question is the last"
    assert times[-1] - times[0] == pytest.approx(10.0)
    assert 2 < len(asked) < 10
    assert list(tmp_path.iterdir()) == []


def test_where_gaps_are_allowed_a_failure_is_one(tmp_path: Path) -> None:
    source = FakePrometheus(usage())
    source.fails = {START + 500 * STEP: 10_000}
    recording = record(tmp_path / "a.tide", source, deadline=timedelta(minutes=2), allow_gaps=True)
    (gap,) = recording.manifest.gaps
    missing = np.flatnonzero(np.isnan(samples(recording)))
    assert missing.tolist() == list(range((gap.start - START) // STEP, (gap.end - START) // STEP + 1))
    assert 500 in missing
    assert "Prometheus is away" in gap.reason


def test_a_query_that_is_refused_is_noted_and_the_rest_recorded(tmp_path: Path) -> None:
    source = FakePrometheus(usage())
    source.refuses = "kube_pod_container_resource"
    recording = record(tmp_path / "a.tide", source)
    assert recording.manifest.notes == {"queries that were refused": 4}
    assert not np.isnan(samples(recording)).any()


def test_load_that_somebody_asked_for_is_needed_and_asked_first(tmp_path: Path) -> None:
    source = FakePrometheus(usage())
    source.refuses = "my_load"
    with pytest.raises(PrometheusAnswer, match=r"refused 'sum\(my_load\)': status 400: bad query"):
        record(tmp_path / "a.tide", source, load_query="sum(my_load)")
    assert source.asked == ["sum(my_load)"]


def test_load_of_nobody_is_noted(tmp_path: Path) -> None:
    labels = [{"namespace": "shop"}, {"namespace": "shop", "workload": ""}, {"namespace": "shop", "service": "web"}]
    source = FakePrometheus(usage(my_load=[(each, {START: 1.0}) for each in labels]))
    recording = record(tmp_path / "a.tide", source, load_query="my_load")
    assert recording.rows("load")["workload"] == ["web"]
    assert recording.manifest.notes == {"series of load without a label `workload`": 2}


def test_an_oom_kill_is_found_however_short_the_step(tmp_path: Path) -> None:
    source = FakePrometheus(usage())
    record(tmp_path / "a.tide", source)
    (query,) = {each for each in source.asked if "OOMKilled" in each}
    # `increase()` would need two samples within a step.
    assert f"restarts_total offset {STEP}s" in query
    assert "increase" not in query


def test_usage_that_is_refused_is_an_error(tmp_path: Path) -> None:
    source = FakePrometheus(usage())
    source.refuses = "container_memory_working_set_bytes"
    with pytest.raises(PrometheusAnswer, match="bad query"):
        record(tmp_path / "a.tide", source)


def service(name: str, *, labels: Mapping[str, str] | None = None, port: int = 9090) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default", "labels": dict(labels or {})},
        "spec": {"ports": [{"port": port}]},
    }


def test_prometheus_is_found_by_name_or_label() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            with pytest.raises(InvalidInput, match="no Service of the cluster is Prometheus"):
                await find_prometheus(cluster.client())
            await cluster.apply(
                service("web"), service("mine", labels={"app.kubernetes.io/name": "prometheus"}, port=80)
            )
            found = await find_prometheus(cluster.client())
            assert found.path == "/api/v1/namespaces/default/services/mine:80/proxy"
            # The simulated API server has no proxy: its answer is not Prometheus'.
            with pytest.raises((PrometheusAnswer, Unavailable)):
                await found.post("/api/v1/query", {"query": "up"})
            with pytest.raises((PrometheusAnswer, Unavailable)):
                await found.get("/api/v1/label/pod/values", {"match[]": "up"})

    run_virtual(main(), start=datetime(2026, 1, 1, tzinfo=UTC), limit=timedelta(days=1))


class Proxy:
    """An API server that allows some methods on the proxy of a service."""

    def __init__(self, *allowed: str) -> None:
        self._allowed = allowed
        self.asked: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        given = parts["body"].decode() if parts.get("body") else urlencode(parts["query"])
        self.asked.append((method, given))
        if method not in self._allowed:
            refusal = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": f"cannot {method} here"}
            return Response(status=403, headers={}, body=json.dumps(refusal).encode())
        return Response(status=200, headers={}, body=b"{}")


@pytest.mark.parametrize(
    ("allowed", "short", "long"),
    [
        pytest.param(("GET", "POST"), ["GET"], ["POST"], id="who-may-do-both"),
        pytest.param(("GET",), ["GET"], ["POST", "GET"], id="who-may-only-read"),
        pytest.param(("POST",), ["GET", "POST"], ["POST"], id="who-may-only-create"),
    ],
)
async def test_whoever_may_read_the_proxy_of_prometheus_can_ask_it(
    allowed: tuple[str, ...], short: list[str], long: list[str]
) -> None:
    for query, ways in (("up", short), ("up or " * 1000 + "up", long)):
        proxy = Proxy(*allowed)
        prometheus = ProxiedPrometheus(Client(cast("Transport", proxy), clock=SystemClock()), "/proxy")
        for _ in range(2):
            assert await prometheus.post("/api/v1/query", {"query": query}) == b"{}"
        # What is forbidden is tried once.
        assert [method for method, _ in proxy.asked] == [*ways, ways[-1]]
        assert {given for _, given in proxy.asked} == {urlencode({"query": query})}


async def test_whoever_may_not_ask_is_told_what_was_refused() -> None:
    prometheus = ProxiedPrometheus(Client(cast("Transport", Proxy()), clock=SystemClock()), "/proxy")
    for ask in (prometheus.post, prometheus.get):
        with pytest.raises(PrometheusAnswer, match="status 403: cannot GET here"):
            await ask("/api/v1/query", {"query": "up"})


@pytest.mark.parametrize(
    ("name", "labels", "port", "path"),
    [
        ("thanos-query", {}, 10902, "thanos-query:10902/proxy"),
        ("vmselect", {}, 8481, "vmselect:8481/proxy/select/0/prometheus"),
        ("long", {"app.kubernetes.io/name": "vmsingle"}, 8429, "long:8429/proxy"),
        (
            "front",
            {"app.kubernetes.io/name": "mimir", "app.kubernetes.io/component": "gateway"},
            80,
            "front:80/proxy/prometheus",
        ),
    ],
    ids=["thanos", "vmselect", "vmsingle-by-label", "mimir-gateway"],
)
def test_what_speaks_the_same_api_is_found_below_its_path(
    name: str, labels: dict[str, str], port: int, path: str
) -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            ingester = {"app.kubernetes.io/name": "mimir", "app.kubernetes.io/component": "ingester"}
            await cluster.apply(service("a", labels=ingester), service(name, labels=labels, port=port))
            found = await find_prometheus(cluster.client())
            assert found.path == f"/api/v1/namespaces/default/services/{path}"
            await cluster.apply(service("prometheus", port=9090))
            assert "prometheus:9090" in (await find_prometheus(cluster.client())).path

    run_virtual(main(), start=datetime(2026, 1, 1, tzinfo=UTC), limit=timedelta(days=1))
