"""Usage from two scrapes of a kubelet."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.metrics.core.exposition import KubeletAnswer, parse_resource_metrics
from kubetide.metrics.core.rates import node_reading
from kubetide.metrics.core.readings import Usage

START = 1_700_000_000
RESOLUTION = timedelta(seconds=60)
WEB = '{container="web",namespace="shop",pod="web-1"}'
SIDE = '{container="side",namespace="shop",pod="web-1"}'


def scrape(second: int, cpu: float, *, labels: str = WEB, memory: float = 1e6, started: float | None = None) -> str:
    millis = (START + second) * 1000
    lines = [
        "# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time",
        f"container_cpu_usage_seconds_total{labels} {cpu} {millis}",
        f"container_memory_working_set_bytes{labels} {memory} {millis}",
        "scrape_error 0",
    ]
    if started is not None:
        lines.append(f"container_start_time_seconds{labels} {START + started}")
    return "\n".join(lines) + "\n"


def reading(before: str, now: str) -> dict[str, Usage] | None:
    found = node_reading("n", parse_resource_metrics(before), parse_resource_metrics(now), resolution=RESOLUTION)
    pod = found.pods.get(("shop", "web-1")) if found is not None else None
    return None if pod is None else dict(pod.containers)


def test_cpu_is_the_difference_of_the_counter_over_the_time_between() -> None:
    before, now = parse_resource_metrics(scrape(0, 10)), parse_resource_metrics(scrape(20, 15, memory=2048))
    found = node_reading("n", before, now, resolution=RESOLUTION)
    assert found is not None
    pod = found.pods["shop", "web-1"]
    assert pod.containers == {"web": Usage(cpu_nanos=250_000_000, memory_bytes=2048)}
    assert (pod.window, pod.at) == (timedelta(seconds=20), datetime.fromtimestamp(START + 20, UTC))


@pytest.mark.parametrize(
    ("before", "now", "cores"),
    [
        pytest.param("", scrape(20, 15), None, id="seen-for-the-first-time"),
        pytest.param("", scrape(30, 15, started=0), 0.5, id="new-since-less-than-a-resolution-is-measured-from-start"),
        pytest.param("", scrape(5, 15, started=0), None, id="too-new"),
        pytest.param("", scrape(90, 15, started=0), None, id="older-than-a-resolution-waits"),
        pytest.param(scrape(0, 10), scrape(20, 5), None, id="counter-went-back"),
        pytest.param(scrape(0, 10), scrape(30, 12, started=10), 0.6, id="restarted-in-between"),
        pytest.param(scrape(20, 10), scrape(20, 10), None, id="the-same-reading-twice"),
        pytest.param(scrape(0, 10), scrape(20, 10), 0.0, id="idle"),
        pytest.param(scrape(0, 1), scrape(20, 2) + scrape(20, 2, labels=SIDE), None, id="a-part-of-a-pod-is-not-a-pod"),
    ],
)
def test_what_a_scrape_says_about_a_container(before: str, now: str, cores: float | None) -> None:
    usages = reading(before, now)
    assert (None if usages is None else usages["web"].cpu_nanos / 1e9) == cores


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"container_cpu_usage_seconds_total{WEB} NaN 1700000000000", id="nan"),
        pytest.param(f"container_cpu_usage_seconds_total{WEB} -1 1700000000000", id="negative"),
        pytest.param(f"container_cpu_usage_seconds_total{WEB} +Inf 1700000000000", id="infinite"),
        pytest.param(f"container_cpu_usage_seconds_total{WEB} 1e300 1700000000000", id="absurd"),
        pytest.param(
            'container_cpu_usage_seconds_total{container="../x",namespace="shop",pod="web-1"} 1 1', id="no-such-name"
        ),
        pytest.param('container_cpu_usage_seconds_total{pod="web-1"} 1 1', id="labels-missing"),
    ],
)
def test_what_cannot_be_is_counted_and_not_believed(line: str) -> None:
    answer = parse_resource_metrics(line)
    assert answer.refused == 1
    assert all(one.cpu_seconds is None for pod in answer.pods.values() for one in pod.values())


@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    assert isinstance(parse_resource_metrics(f"container_cpu_usage_seconds_total{text}"), KubeletAnswer)


@given(st.floats(0, 1e9), st.floats(0, 1e6), st.integers(1, 3600))
def test_usage_is_never_negative(cpu: float, more: float, seconds: int) -> None:
    usages = reading(scrape(0, cpu), scrape(seconds, cpu + more))
    assert usages is None or usages["web"].cpu_nanos >= 0
