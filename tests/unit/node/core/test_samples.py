"""From readings of cgroups to frames, and back as the metrics server reads them."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.sample_frames import SIGNALS, decode_frame
from kubetide.metrics.core.frames import SampleStream
from kubetide.metrics.core.readings import NodeAlarms, NodeReading
from kubetide.node.core.formats.cpu import Throttling
from kubetide.node.core.memory_alarms import Alarm
from kubetide.node.core.samples import ContainerCounters, FrameBuilder, NodeCounters, PodCounters, window_between

MIB = 2**20


def pod(cpu: int = 0, memory: int = MIB, *, name: str = "web", limit: int = -1, **more: object) -> PodCounters:
    containers = {name: ContainerCounters(cpu_nanos=cpu, working_set=memory, limit=limit)}
    return PodCounters(namespace="shop", name="web-1", containers=containers, **more)  # type: ignore[arg-type]


def reading(second: float, **pods: PodCounters) -> NodeCounters:
    return NodeCounters(at=1000.0 + second, monotonic=second, working_set=5 * MIB, pods=pods)


def test_cpu_is_the_difference_over_the_window_and_memory_the_working_set_at_its_end() -> None:
    window = window_between(reading(0, u=pod(10**9)), reading(5, u=pod(2 * 10**9, 3 * MIB)), node_cores=0.5, gpus={})
    (found,) = window.pods
    assert (found.containers["web"].cpu, found.containers["web"].memory) == (200_000_000, 3 * MIB)
    assert window.node is not None
    assert (window.node.cpu, window.node.memory, window.seconds) == (500_000_000, 5 * MIB, 5)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(reading(0), reading(5, u=pod(5)), id="seen-for-the-first-time"),
        pytest.param(reading(0, u=pod(5)), reading(5), id="gone"),
        pytest.param(reading(0, u=pod(9)), reading(5, u=pod(5)), id="counter-went-back"),
        pytest.param(reading(0, u=pod(5)), reading(5, u=pod(9, name="other")), id="another-container"),
    ],
)
def test_a_pod_without_two_readings_is_not_sent(before: NodeCounters, now: NodeCounters) -> None:
    assert window_between(before, now, node_cores=None, gpus={}).pods == ()


def test_signals_report_throttling_pressure_growth_limits_kills_and_gpus() -> None:
    before = pod(throttling=Throttling(100, 10, 0), oom_kills=3)
    now = pod(
        0,
        memory=11 * MIB,
        limit=22 * MIB,
        throttling=Throttling(200, 60, 0),
        cpu_pressure=0.25,
        memory_pressure=None,
        oom_kills=4,
    )
    window = window_between(reading(0, u=before), reading(10, u=now), node_cores=None, gpus={"u": 0.75})
    assert dict(zip(SIGNALS, window.pods[0].signals, strict=True)) == {
        "cpu_throttled_ratio": 0.5,
        "cpu_pressure_ratio": 0.25,
        "memory_pressure_ratio": None,
        "memory_growth_bytes_per_second": MIB,
        "memory_limit_used_ratio": 0.5,
        "oom_kills": 1.0,
        "gpu_utilization_ratio": 0.75,
    }


def test_names_are_sent_once_per_connection_and_slots_are_given_back() -> None:
    builder = FrameBuilder()
    windows = [
        window_between(reading(0, u=pod()), reading(5, u=pod(5)), node_cores=None, gpus={}),
        window_between(reading(5, u=pod(5)), reading(10, u=pod(9)), node_cores=None, gpus={}),
        window_between(reading(10), reading(15), node_cores=None, gpus={}),
    ]
    frames = [decode_frame(builder.frame(window, sent=2000)) for window in windows]
    assert [len(frame.named) for frame in frames] == [1, 0, 0]
    assert [frame.sequence for frame in frames] == [0, 1, 2]
    assert frames[2].gone == (frames[0].named[0].slot,)


counts = st.integers(0, 3 * 10**14)
"""Nanoseconds: in a window of 5 s no more than the largest machine can use."""


@given(st.lists(st.tuples(counts, counts), min_size=2, max_size=6))
def test_what_is_sent_is_always_within_the_rules_of_the_server(steps: list[tuple[int, int]]) -> None:
    stream, builder = SampleStream("n"), FrameBuilder()
    readings = [reading(5 * n, u=pod(cpu, memory, limit=MIB)) for n, (cpu, memory) in enumerate(steps)]
    for before, now in pairwise(readings):
        window = window_between(before, now, node_cores=1.0, gpus={})
        taken = stream.take(builder.frame(window, sent=now.at + 1), arrived=datetime(2026, 1, 1, tzinfo=UTC))
        assert isinstance(taken, NodeReading)
        assert taken.at == datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=1)
        assert len(taken.pods) == len(window.pods)


def test_details_of_containers_and_alarms_travel_with_the_window() -> None:
    counters = ContainerCounters(cpu_nanos=5, working_set=9 * MIB, need=7 * MIB, id="c-1")
    now = PodCounters(namespace="shop", name="web-1", containers={"web": counters})
    window = window_between(
        reading(0, u=pod()), reading(5, u=now), node_cores=None, gpus={}, peaks={"c-1": 1.5}, throttled={"c-1": 0.25}
    )
    alarm = Alarm(need=7 * MIB, limit=8 * MIB, growth=10.0, pressure=None, hits=3, rule="soon")
    taken = SampleStream("n").take(
        FrameBuilder().frame(window, sent=1005, alarms={("u", "web"): alarm}), arrived=datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert isinstance(taken, NodeReading)
    (details,) = taken.pods["shop", "web-1"].details
    assert (details.need, details.peak, details.throttled) == (7 * MIB, 1_500_000_000, 0.25)
    (told,) = taken.alarms
    assert (told.pod, told.uid, told.container, told.need, told.hits) == (("shop", "web-1"), "u", "web", 7 * MIB, 3)


def test_alarms_between_two_windows_are_those_of_pods_that_were_named() -> None:
    builder, stream, now = FrameBuilder(), SampleStream("n"), datetime(2026, 1, 1, tzinfo=UTC)
    alarm = Alarm(need=7 * MIB, limit=8 * MIB, growth=10.0, pressure=0.5, hits=None, rule="soon")
    alarms = {("u", "web"): alarm, ("new", "web"): alarm}
    assert builder.alarm(alarms, at=1004, sent=1004) is None, "nothing is named before the first window"
    window = window_between(reading(0, u=pod()), reading(5, u=pod(5)), node_cores=None, gpus={})
    stream.take(builder.frame(window, sent=1005), arrived=now)
    message = builder.alarm(alarms, at=1006, sent=1006)
    assert message is not None
    taken = stream.take(message, arrived=now)
    assert isinstance(taken, NodeAlarms)
    assert [one.uid for one in taken.alarms] == ["u"]
    again = builder.frame(window, sent=1010)
    assert isinstance(stream.take(again, arrived=now), NodeReading), "the next window is no repetition"
