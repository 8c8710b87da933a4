"""Logs and telemetry."""

import asyncio
import io
import logging
import math
import sys
import threading
from collections.abc import Iterable, Iterator

import msgspec
import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubetide import log
from kubetide.telemetry import Telemetry


@pytest.fixture(autouse=True)
def quiet_again() -> Iterator[None]:
    yield
    log.configure()


def written(*, json: bool = False, verbosity: int = 0) -> io.StringIO:
    stream = io.StringIO()
    log.configure(json=json, verbosity=verbosity, stream=stream)
    return stream


def test_a_text_line_has_a_constant_message_and_fields() -> None:
    stream = written()
    log.get_logger("hpa", cluster="a").bind(target="shop/web").info("scaled", replicas=5, reason="cpu above target")
    assert stream.getvalue().strip().split(" ", 1)[1] == (
        "I hpa: scaled cluster=a target=shop/web replicas=5 reason='cpu above target'"
    )


def test_a_json_line_can_be_read_back() -> None:
    stream = written(json=True)
    try:
        raise ValueError("no")
    except ValueError:
        log.get_logger("hpa").exception("failed", key=("shop", "web"), value=object)
    line = msgspec.json.decode(stream.getvalue())
    assert (line["level"], line["logger"], line["msg"]) == ("error", "hpa", "failed")
    assert "ValueError: no" in line["exception"]


def test_debug_lines_come_only_when_asked_for() -> None:
    silent, loud = written(), None
    log.get_logger("x").debug("detail")
    loud = written(verbosity=2)
    log.get_logger("x").debug("detail")
    assert silent.getvalue() == ""
    assert "detail" in loud.getvalue()


def test_instruments_are_made_once_and_rendered() -> None:
    telemetry = Telemetry()
    telemetry.counter("kubetide_things_total", "Things.", ("kind",)).labels("a").inc()
    telemetry.counter("kubetide_things_total", "Things.", ("kind",)).labels("a").inc()
    telemetry.gauge("kubetide_level", "Level.").set(3)
    telemetry.histogram("kubetide_seconds", "Time.", buckets=(1, 2)).observe(1.5)
    text = telemetry.render().decode()
    assert 'kubetide_things_total{kind="a"} 2.0' in text
    assert "kubetide_level 3.0" in text
    assert 'kubetide_seconds_bucket{le="2.0"} 1.0' in text
    assert "_created" not in text
    with pytest.raises(TypeError):
        telemetry.gauge("kubetide_things_total", "Things.")


def test_a_counter_is_shown_under_the_name_it_was_given() -> None:
    telemetry = Telemetry()
    telemetry.counter("koordlet_pod_eviction", "Evictions.", ("node",)).labels("n").inc()
    telemetry.counter("kubetide_things_total", "Things.").inc()
    text = telemetry.render().decode()
    assert '# TYPE koordlet_pod_eviction counter\nkoordlet_pod_eviction{node="n"} 1.0\n' in text
    assert "# TYPE kubetide_things_total counter\nkubetide_things_total 1.0\n" in text


def test_what_happens_all_the_time_is_shown_as_the_library_would_show_it() -> None:
    plain, library = Telemetry(), Telemetry()
    buckets = (1e-08, 0.001, 0.5, 10.0)
    counts = plain.counts("kubetide_turns_total", "Turns.", ("action", "error"))
    counted_as = ("kubetide_ended_total", "Turns that ended.")
    durations = plain.durations("kubetide_turn_seconds", "Time of a turn.", ("action",), buckets, counted_as=counted_as)
    ended = library.counter(*counted_as, ("action",))
    counter = library.counter("kubetide_turns_total", "Turns.", ("action", "error"))
    histogram = library.histogram("kubetide_turn_seconds", "Time of a turn.", ("action",), buckets)
    durations.show("rest")
    histogram.labels("rest")
    ended.labels("rest")
    counts.show("rest", "none")
    counter.labels("rest", "none")
    for seconds, action in ((0.0, "up"), (0.001, "up"), (0.5, "down"), (0.6, "up"), (11.0, "up"), (math.inf, "down")):
        counts.add(action, "none")
        durations.add(seconds, action)
        counter.labels(action, "none").inc()
        histogram.labels(action).observe(seconds)
        ended.labels(action).inc()
    assert sorted(plain.render().splitlines()) == sorted(library.render().splitlines())
    assert plain.counts("kubetide_turns_total", "Turns.", ("action", "error")) is counts
    assert plain.durations("kubetide_turn_seconds", "Time of a turn.", ("action",), buckets) is durations


def test_two_collectors_that_know_one_name_make_one_family() -> None:
    telemetry = Telemetry()
    for name in ("hpa", "slo"):
        telemetry.register(OneQueue(name))
    text = telemetry.render().decode()
    assert text.count("# TYPE workqueue_depth gauge") == 1
    assert 'workqueue_depth{name="hpa"} 1.0' in text
    assert 'workqueue_depth{name="slo"} 1.0' in text


class OneQueue(Collector):
    def __init__(self, name: str) -> None:
        self._name = name

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("workqueue_depth", "Keys waiting.", labels=["name"])
        family.add_metric([self._name], 1)
        yield family


def test_what_the_loop_reports_is_a_json_line_once_a_minute() -> None:
    stream = written(json=True)

    async def fail() -> None:
        loop = asyncio.get_running_loop()
        for number in range(50):
            context = {"message": "socket.accept() out of system resource", "exception": OSError(24, "no more")}
            loop.call_exception_handler({**context, "socket": number})

    asyncio.run(fail())
    (line,) = [msgspec.json.decode(text) for text in stream.getvalue().splitlines()]
    assert (line["level"], line["logger"]) == ("error", "asyncio")
    assert line["msg"].startswith("socket.accept() out of system resource")
    assert "OSError: [Errno 24] no more" in line["exception"]


def test_what_libraries_report_is_a_json_line() -> None:
    stream = written(json=True)
    logging.getLogger("aiohttp.server").warning("odd request from %s", "here")
    logging.getLogger("aiohttp.server").info("not asked for")
    (line,) = [msgspec.json.decode(text) for text in stream.getvalue().splitlines()]
    assert (line["logger"], line["msg"]) == ("aiohttp.server", "odd request from here")


def test_what_threads_and_destructors_raise_is_a_json_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    stream = written(json=True)

    class Broken:
        def __del__(self) -> None:
            raise ValueError("in a destructor")

    def fail() -> None:
        raise ValueError("in a thread")

    thread = threading.Thread(target=fail, name="worker")
    thread.start()
    thread.join()
    Broken()
    first, second = (msgspec.json.decode(text) for text in stream.getvalue().splitlines())
    assert (first["logger"], first["source"]) == ("threading", "worker")
    assert "ValueError: in a thread" in first["exception"]
    assert second["logger"] == "python"
    assert "ValueError: in a destructor" in second["exception"]


def test_a_throttle_lets_one_line_a_minute_through_and_counts_the_others() -> None:
    throttle = log.Throttle()
    assert [throttle.admit(now) for now in (0.0, 1.0, 59.9, 60.0, 61.0, 200.0)] == [0, None, None, 2, None, 1]
