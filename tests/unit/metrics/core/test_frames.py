"""Which frames of agents are believed, and which rule the others break."""

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.sample_frames import (
    ContainerSignals,
    Frame,
    MemoryAlarm,
    PodName,
    PodSample,
    UsageSample,
    encode_frame,
)
from kubetide.metrics.core.frames import LONGEST_WAIT, FrameRefused, SampleStream
from kubetide.metrics.core.readings import NodeAlarms, NodeReading, Readings, Usage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WEB = PodName(slot=1, uid="u-1", namespace="shop", name="web-1", containers=("web", "side"))


def sample(*usages: tuple[int, int], slot: int = 1, signals: tuple[float | None, ...] = ()) -> PodSample:
    return PodSample(slot=slot, containers=tuple(UsageSample(*one) for one in usages), signals=signals)


def frame(**changes: Any) -> Frame:
    fields: dict[str, Any] = {
        "version": 1,
        "sequence": 0,
        "at": 1000.0,
        "sent": 1000.0,
        "window": 5.0,
        "node": UsageSample(10**9, 2**30),
        "named": (WEB,),
        "pods": (sample((5 * 10**8, 2**20), (0, 4096)),),
    }
    return Frame(**fields | changes)


def take(*frames: Frame) -> NodeReading | None:
    stream = SampleStream("n")
    found: NodeReading | None = None
    for each in frames:
        taken = stream.take(encode_frame(each), arrived=NOW)
        assert not isinstance(taken, NodeAlarms)
        found = taken
    return found


def test_a_frame_becomes_the_reading_of_the_stream_s_own_node() -> None:
    found = take(frame())
    assert found is not None
    assert (found.node, found.source, found.usage) == ("n", "agent", Usage(cpu_nanos=10**9, memory_bytes=2**30))
    pod = found.pods["shop", "web-1"]
    assert (pod.uid, pod.containers["web"].cpu_nanos, pod.containers["side"].memory_bytes) == ("u-1", 5 * 10**8, 4096)


def test_names_are_sent_once() -> None:
    found = take(frame(), frame(sequence=1, named=(), pods=(sample((1, 2), (3, 4)),)))
    assert found is not None
    assert found.pods["shop", "web-1"].containers["web"] == Usage(cpu_nanos=1, memory_bytes=2)


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 86_400.0 * 365])
def test_clocks_need_not_agree(skew: float) -> None:
    found = take(frame(at=1000 + skew, sent=1002 + skew))
    assert found is not None
    assert found.at == NOW - timedelta(seconds=2)


def test_a_clock_that_was_set_back_makes_no_sample_come_from_the_future() -> None:
    found = take(frame(at=1000, sent=900))
    assert found is not None
    assert found.at == NOW


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param((frame(), frame()), id="repeated"),
        pytest.param((frame(sequence=7), frame(sequence=6, named=())), id="out-of-order"),
        pytest.param((frame(sent=1001 + LONGEST_WAIT.total_seconds()),), id="waited-too-long"),
    ],
)
def test_repeated_and_late_frames_are_dropped_without_a_fault(frames: tuple[Frame, ...]) -> None:
    assert take(*frames) is None


@pytest.mark.parametrize(
    ("hostile", "rule"),
    [
        pytest.param(frame(version=2), "format", id="another-version"),
        pytest.param(frame(window=math.nan), "window", id="window-nan"),
        pytest.param(frame(window=0.0), "window", id="no-window"),
        pytest.param(frame(window=1e9), "window", id="endless-window"),
        pytest.param(frame(at=math.inf), "number", id="time-without-end"),
        pytest.param(frame(node=UsageSample(-1, 0)), "number", id="negative-cpu"),
        pytest.param(frame(node=UsageSample(2**62, 0)), "number", id="more-cores-than-any-machine"),
        pytest.param(frame(pods=(sample((0, -5), (0, 0)),)), "number", id="negative-memory"),
        pytest.param(frame(pods=(sample((0, 0), (0, 0), signals=(math.nan,)),)), "number", id="signal-nan"),
        pytest.param(frame(pods=(sample((0, 0), (0, 0), signals=(1.5,)),)), "number", id="ratio-above-one"),
        pytest.param(frame(pods=(sample((0, 0), (0, 0), slot=9),)), "slot", id="slot-not-named"),
        pytest.param(frame(pods=(sample((0, 0)),)), "slot", id="fewer-containers-than-named"),
        pytest.param(frame(named=(WEB, WEB)), "slot", id="named-twice"),
        pytest.param(
            frame(named=(msgspec.structs.replace(WEB, name="../../etc"),)), "name", id="a-name-no-pod-can-have"
        ),
        pytest.param(frame(named=(msgspec.structs.replace(WEB, name="x" * 300),)), "name", id="absurd-name"),
        pytest.param(frame(named=(msgspec.structs.replace(WEB, namespace='a","b'),)), "name", id="name-with-quotes"),
        pytest.param(frame(named=(msgspec.structs.replace(WEB, containers=("a", "a")),)), "name", id="same-name-twice"),
        pytest.param(frame(named=(msgspec.structs.replace(WEB, containers=("c",) * 65),)), "size", id="65-containers"),
        pytest.param(frame(gone=tuple(range(3000))), "size", id="too-many-pods"),
    ],
)
def test_a_frame_that_breaks_a_rule_is_refused_by_its_name(hostile: Frame, rule: str) -> None:
    with pytest.raises(FrameRefused) as refused:
        take(hostile)
    assert refused.value.rule == rule


def test_a_name_that_is_no_text_is_refused_as_a_format() -> None:
    broken = encode_frame(frame(named=(WEB,))).replace(WEB.name.encode(), b"\xff" * len(WEB.name))
    with pytest.raises(FrameRefused) as refused:
        SampleStream("n").take(broken, arrived=NOW)
    assert refused.value.rule == "format"


def test_pods_beyond_what_a_node_can_have_are_refused_also_over_several_frames() -> None:
    def names(start: int) -> tuple[PodName, ...]:
        return tuple(
            PodName(slot=n, uid=f"u{n}", namespace="a", name=f"p{n}", containers=()) for n in range(start, start + 2000)
        )

    with pytest.raises(FrameRefused, match="more than"):
        take(frame(named=names(0), pods=()), frame(sequence=1, named=names(2000), pods=()))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_refused(message: bytes) -> None:
    with suppress(FrameRefused):
        SampleStream("n").take(message, arrived=NOW)


def at(seconds: float, *, source: str = "agent", window: float = 5) -> NodeReading:
    return NodeReading(
        node="n",
        source=source,
        at=NOW + timedelta(seconds=seconds),
        window=timedelta(seconds=window),
        usage=Usage(cpu_nanos=1, memory_bytes=1),
        pods={},
    )


def test_a_node_that_stops_talking_is_missing_and_not_zero() -> None:
    readings = Readings()
    assert readings.take(at(0), now=NOW)
    assert readings.node("n", now=NOW + timedelta(seconds=14)) is not None
    later = NOW + timedelta(seconds=15)
    assert readings.node("n", now=later) is None
    assert readings.live(now=later) == []
    assert readings.expire(["n"], now=later) == ["n"]


def test_the_later_reading_is_served_whoever_sent_it() -> None:
    readings = Readings()
    assert readings.take(at(10), now=NOW + timedelta(seconds=10))
    assert not readings.take(at(5, source="kubelet", window=60), now=NOW + timedelta(seconds=11))
    assert readings.take(at(12, source="kubelet", window=60), now=NOW + timedelta(seconds=12))


def test_an_agent_that_fell_silent_gives_way_to_the_kubelet() -> None:
    readings = Readings()
    readings.take(at(10), now=NOW + timedelta(seconds=10))
    assert readings.take(at(9, source="kubelet", window=60), now=NOW + timedelta(seconds=30))


def alarm(**changes: Any) -> MemoryAlarm:
    fields: dict[str, Any] = {
        "slot": 1,
        "container": 0,
        "need": 2**20,
        "limit": 2**21,
        "growth": 5.0,
        "pressure": 0.5,
        "hits": 1,
    }
    return MemoryAlarm(**fields | changes)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        pytest.param({"slot": 9}, "slot", id="slot-that-was-not-named"),
        pytest.param({"container": 2}, "slot", id="container-that-is-not-there"),
        pytest.param({"container": -1}, "slot", id="container-before-the-first"),
        pytest.param({"need": -1}, "number", id="negative-need"),
        pytest.param({"limit": 0}, "number", id="no-limit"),
        pytest.param({"limit": 2**60}, "number", id="limit-beyond-any-machine"),
        pytest.param({"growth": math.nan}, "number", id="growth-that-is-no-number"),
        pytest.param({"growth": math.inf}, "number", id="growth-without-end"),
        pytest.param({"pressure": 1.5}, "number", id="pressure-above-one"),
        pytest.param({"pressure": math.nan}, "number", id="pressure-that-is-no-number"),
        pytest.param({"hits": -1}, "number", id="negative-hits"),
    ],
)
@pytest.mark.parametrize("between", [False, True], ids=["with-a-window", "between-windows"])
def test_an_alarm_that_breaks_a_rule_is_refused(changes: dict[str, Any], rule: str, between: bool) -> None:
    stream = SampleStream("n")
    bad = frame(alarms=(alarm(**changes),))
    if between:
        stream.take(encode_frame(frame()), arrived=NOW)
        bad = frame(named=(), pods=(), node=None, alarms=(alarm(**changes),))
    with pytest.raises(FrameRefused) as refused:
        stream.take(encode_frame(bad), arrived=NOW)
    assert refused.value.rule == rule


def test_more_alarms_than_a_node_has_containers_are_refused() -> None:
    with pytest.raises(FrameRefused) as refused:
        take(frame(alarms=(alarm(),) * 5000))
    assert refused.value.rule == "size"


@pytest.mark.parametrize(
    "details",
    [
        pytest.param((ContainerSignals(need=-1), ContainerSignals()), id="negative-need"),
        pytest.param((ContainerSignals(peak=10**18), ContainerSignals()), id="peak-beyond-any-machine"),
        pytest.param((ContainerSignals(throttled=math.nan), ContainerSignals()), id="share-that-is-no-number"),
        pytest.param((ContainerSignals(),), id="one-container-missing"),
    ],
)
def test_details_that_break_a_rule_are_refused(details: tuple[ContainerSignals, ...]) -> None:
    usages = (UsageSample(1, 2), UsageSample(3, 4))
    with pytest.raises(FrameRefused):
        take(frame(pods=(PodSample(slot=1, containers=usages, details=details),)))


def test_alarms_are_kept_until_the_node_tells_others_or_falls_silent() -> None:
    readings, heard = Readings(), []
    readings.alarmed.append(lambda now, before: heard.append((len(now.alarms), before is not None)))
    stream = SampleStream("n")

    def tell(later: float, **changes: Any) -> None:
        at = NOW + timedelta(seconds=later)
        taken = stream.take(encode_frame(frame(**changes)), arrived=at)
        if isinstance(taken, NodeAlarms):
            readings.take_alarms(taken)
        elif taken is not None:
            readings.take(taken, now=at)

    nothing = {"named": (), "pods": (), "node": None}
    tell(0)
    tell(1, alarms=(alarm(),), **nothing)
    assert len(readings.alarms(now=NOW + timedelta(seconds=2))) == 1
    tell(5, sequence=1, named=(), alarms=(alarm(need=2),))
    ((told,),) = [one.alarms for one in readings.alarms(now=NOW + timedelta(seconds=6))]
    assert told.need == 2
    tell(10, sequence=2, named=())
    assert readings.alarms(now=NOW + timedelta(seconds=11)) == []
    tell(11, sequence=2, alarms=(alarm(),), **nothing)
    assert readings.alarms(now=NOW + timedelta(seconds=60)) == []
    readings.expire(["n"], now=NOW + timedelta(seconds=60))
    assert heard == [(1, False), (1, True), (0, True), (1, False), (0, True)]
