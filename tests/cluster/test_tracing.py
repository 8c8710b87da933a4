"""Spans of decisions, what logs and latencies show of them, and that nothing of it is there when it is off."""

import contextvars
import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kubetide import log, tracing
from kubetide.api.objects.scheme import PODS
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Constant
from kubetide.errors import SettingsError
from kubetide.hpa.settings import HpaSettings
from kubetide.telemetry import METRICS_TYPE, Telemetry
from kubetide.testing.builders import make_deployment, make_hpa, make_vpa
from simulated.autoscaling import autoscaler
from simulated.cluster import pods, run
from simulated.recommending import recommender
from simulated.updating import vpa_parts

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"


class Collector:
    """An OTLP receiver on loopback that keeps what it is sent."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.paths: set[str] = set()
        self.bodies: list[bytes] = []

    def spans(self) -> list[Any]:
        """Return the spans it has by now."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [one for body in found for of in body.resource_spans for scope in of.scope_spans for one in scope.spans]

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the attributes of the spans of a name."""
        return [{one.key: _plain(one.value) for one in span.attributes} for span in self.spans() if span.name == name]


def _plain(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def families(page: bytes) -> list[Metric]:
    return list(text_string_to_metric_families(page.decode()))  # type: ignore[no-untyped-call]


@contextmanager
def collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.paths.add(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.bodies.append(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join(10)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure(json=True, stream=stream)
    yield stream
    log.configure()


def test_a_scale_up_arrives_at_the_collector_with_its_reason() -> None:
    async def main(cluster: SimCluster) -> bytes:
        await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="64Mi"))
        await cluster.apply(make_hpa("web", minimum=2, maximum=10, cpu_percent=60))
        cluster.set_load("default", "web", Constant(300.0))
        async with autoscaler(cluster, HpaSettings(leader_elect=False)) as running:
            await cluster.run_for(timedelta(minutes=4))
            assert running.replicas("default", "web") > 2
            return running.telemetry.page(OPENMETRICS)[0]

    with collector() as received:
        with tracing.exporting(received.url, 1.0):
            page = run(main, nodes=4)
        decided = [one for one in received.named("horizontalpodautoscaler") if "kubetide.reason" in one]
        traces = {span.trace_id.hex() for span in received.spans()}
    assert received.paths == {"/v1/traces"}
    grown = [one for one in decided if one["kubetide.wrote"]]
    assert grown
    assert all(one["kubetide.desired"] > one["kubetide.current"] for one in grown)
    assert grown[0]["kubetide.reason"] == "cpu resource utilization (percentage of request) above target"
    assert {one["kubetide.key"] for one in decided} == {"default/web"}
    exemplars = {
        sample.exemplar.labels["trace_id"]
        for family in families(page)
        if family.name == "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds"
        for sample in family.samples
        if sample.exemplar is not None
    }
    assert exemplars
    assert exemplars <= traces


def test_each_decision_about_a_vpa_and_about_a_new_pod_arrives_with_its_reason() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="100m", memory="64Mi"))
        await cluster.apply(make_vpa("web", target="web", mode="Initial"))
        cluster.set_usage("default", "web", cpu=0.4, memory=300 << 20)
        async with recommender(cluster), vpa_parts(cluster, updaters=0):
            await cluster.run_for(timedelta(minutes=10))
            await cluster.client().delete(PODS, pods(cluster, "default")[0]["metadata"]["name"], namespace="default")
            await cluster.run_for(timedelta(minutes=1))

    with collector() as received:
        with tracing.exporting(received.url, 1.0):
            run(main, nodes=2)
        spans = {span.span_id: span.name for span in received.spans()}
        above = {spans.get(span.parent_span_id) for span in received.spans() if span.name == "recommender/vpa"}
        sized, created = received.named("recommender/vpa"), received.named("admission")
    assert above == {"recommender"}
    assert {one["kubetide.vpa"] for one in sized} == {"default/web"}
    assert any("main: cpu unset to" in one["kubetide.reason"] for one in sized)
    assert any("RecommendationProvided is True" in one["kubetide.reason"] for one in sized)
    given = [one for one in created if one.get("kubetide.vpa") == "web"]
    assert "main: requests cpu" in given[-1]["kubetide.reason"]


def test_a_failure_and_what_happens_below_it_are_part_of_one_trace(lines: io.StringIO) -> None:
    logger = log.get_logger("test")

    def work() -> None:
        with tracing.span("outer", key=("a", "b")):
            with tracing.span("inner"):
                tracing.annotate(reason="why", count=2, missing=None)
                logger.info("inside")
            raise ValueError("no")

    with collector() as received:
        with tracing.exporting(received.url, 1.0):
            with pytest.raises(ValueError, match="no"):
                work()
            logger.info("outside")
        inner, outer = received.spans()
    assert inner.parent_span_id == outer.span_id
    assert received.named("inner") == [{"kubetide.reason": "why", "kubetide.count": 2}]
    assert (outer.status.message, outer.status.code) == ("no", 2)
    inside, outside = map(msgspec.json.decode, lines.getvalue().splitlines())
    assert (inside["trace_id"], inside["span_id"]) == (inner.trace_id.hex(), inner.span_id.hex())
    assert "trace_id" not in outside


def test_what_the_ratio_leaves_out_is_in_no_log_line(lines: io.StringIO) -> None:
    with collector() as received, tracing.exporting(received.url, 0.0), tracing.span("outer"), tracing.span("inner"):
        log.get_logger("test").info("inside")
        assert tracing.current_ids() is None
    assert received.bodies == []
    assert "trace_id" not in lines.getvalue()


def test_exemplars_are_shown_in_openmetrics_alone_and_names_stay() -> None:
    def filled() -> Telemetry:
        telemetry = Telemetry()
        telemetry.durations("own_seconds", "Own.", ("a",), (0.1, 1.0)).add(0.5, "x")
        telemetry.histogram("library_seconds", "Library.", ("a",), (0.1, 1.0)).labels("x").observe(0.5)
        telemetry.counter("without", "Plain.").inc()
        telemetry.counter("with_total", "Ends in total.").inc()
        return telemetry

    plain = filled().page(OPENMETRICS)
    with collector() as received, tracing.exporting(received.url, 1.0):
        with tracing.span("work"):
            telemetry = filled()
            ids = tracing.current_ids()
        assert ids is not None
        assert telemetry.page("text/plain") == plain
        text, form = telemetry.page(OPENMETRICS)
    assert plain[1] == METRICS_TYPE
    assert form.startswith("application/openmetrics-text")
    samples = [one for family in families(text) for one in family.samples]
    with_exemplar = {(one.name, one.labels["le"]) for one in samples if one.exemplar is not None}
    assert with_exemplar == {("own_seconds_bucket", "1.0"), ("library_seconds_bucket", "1.0")}
    assert {one.exemplar.labels["trace_id"] for one in samples if one.exemplar is not None} == {ids["trace_id"]}
    series = {line.split(" ")[0] for line in plain[0].decode().splitlines() if not line.startswith("#")}
    assert {line.split(" ")[0] for line in text.decode().splitlines() if not line.startswith("#")} == series


def test_work_that_outlives_its_span_is_no_longer_part_of_it() -> None:
    with collector() as received:
        with tracing.exporting(received.url, 1.0):
            with tracing.span("short"):
                later = contextvars.copy_context()
            later.run(tracing.annotate, late=True)
            assert later.run(tracing.current_ids) is None
        assert received.named("short") == [{}]


def test_without_an_endpoint_nothing_of_opentelemetry_is_imported() -> None:
    program = (
        "import sys\n"
        "import kubetide.cli.run\n"
        "from kubetide import tracing\n"
        "with tracing.exporting('', 1.0), tracing.span('x', key=1):\n"
        "    tracing.annotate(reason='y')\n"
        "    assert not tracing.is_on() and tracing.current_ids() is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SettingsError, match=r"kubetide\[otel\]"), tracing.exporting("http://127.0.0.1:4318", 1.0):
        pass


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector", "http://", "http://a:x", "http://[", "grpc"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(SettingsError, match="tracing-endpoint"), tracing.exporting(endpoint, 1.0):
        pass
