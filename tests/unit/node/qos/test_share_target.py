"""The best-effort share as a controlled quantity: fast down, slow up, and never above what is known to be safe."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.core import Node
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.cli.node.command import refuse_unknown_names
from kubetide.errors import SettingsError
from kubetide.node.core.qos.share_control import ShareControl
from kubetide.node.core.qos.share_target import (
    ANNOTATION,
    BadTarget,
    Share,
    ShareTarget,
    Signal,
    felt,
    first_share,
    next_share,
    parse_target,
)
from kubetide.node.core.qos.suppress import CpuSuppress
from kubetide.node.core.series import kinds
from kubetide.node.core.slo import complete
from kubetide.node.settings import NodeSettings
from nodeworld import World
from unit.node.hooks.test_plugins import batch, raw_pod

TARGET = ShareTarget(Signal.PRESSURE, 5.0)
shares = st.builds(
    Share, percent=st.floats(0, 100), edge=st.floats(0, 100), calm=st.floats(0, 1000), reason=st.just("")
)
observations = st.none() | st.floats(0, 100)


def after(share: Share, observed: float | None, *, seconds: float = 1.0, ceiling: int = 90) -> Share:
    return next_share(share, observed, TARGET, fixed=65, ceiling=ceiling, floor=10, elapsed=seconds)


@pytest.mark.parametrize(
    ("share", "observed", "expected"),
    [
        pytest.param(Share(percent=65.0, edge=90.0, calm=20), 1.0, 65.2, id="calm-gives-a-fifth-of-a-point"),
        pytest.param(Share(percent=65.0, edge=90.0, calm=3), 1.0, 65.0, id="not-calm-for-long-enough"),
        pytest.param(Share(percent=89.9, edge=90.0, calm=20), 1.0, 90.0, id="not-above-the-ceiling"),
        pytest.param(Share(percent=85.0, edge=90.0, calm=20), 5.1, 65.0, id="trouble-means-the-fixed-threshold"),
        pytest.param(Share(percent=60.0, edge=90.0), 10.0, 45.0, id="below-it-a-quarter-a-second"),
        pytest.param(Share(percent=60.0, edge=90.0), 6.0, 57.0, id="less-when-it-is-little-over"),
        pytest.param(Share(percent=11.0, edge=90.0), 100.0, 10.0, id="not-below-the-floor"),
        pytest.param(Share(percent=85.0, edge=90.0, calm=20), None, 65.0, id="unknown-is-not-calm"),
        pytest.param(Share(percent=40.0, edge=90.0, calm=20), None, 40.0, id="unknown-does-not-raise"),
    ],
)
def test_a_sync_moves_the_share(share: Share, observed: float | None, expected: float) -> None:
    assert after(share, observed).percent == pytest.approx(expected)


@given(shares, observations, st.floats(-10, 1000), st.integers(1, 100), st.integers(0, 100), st.integers(1, 100))
def test_the_share_stays_within_its_bounds(
    share: Share, observed: float | None, seconds: float, fixed: int, floor: int, ceiling: int
) -> None:
    found = next_share(share, observed, TARGET, fixed=fixed, ceiling=ceiling, floor=floor, elapsed=seconds)
    assert min(floor, fixed) <= found.percent <= max(ceiling, fixed)


@given(shares, observations, observations, st.floats(0, 10))
def test_who_feels_more_gets_no_more_neighbours(
    share: Share, one: float | None, other: float | None, seconds: float
) -> None:
    calm, troubled = sorted(x for x in (one or 0.0, other or 0.0))
    assert after(share, troubled, seconds=seconds).percent <= after(share, calm, seconds=seconds).percent


@given(shares, st.floats(0, 100))
def test_up_takes_a_hundred_times_as_long_as_down(share: Share, observed: float) -> None:
    assert after(share, observed).percent - min(max(share.percent, 10), 90) <= 0.2 + 1e-9
    if observed > 5:
        assert after(share, observed).percent <= max(65.0, 10.0)


def test_what_was_too_much_is_not_tried_again_for_ten_minutes() -> None:
    share = after(Share(percent=85.0, edge=90.0), 50.0)
    highest = 0.0
    for _ in range(600):
        share = after(share, 0.0)
        highest = max(highest, share.percent)
    assert highest == pytest.approx(82.0, abs=0.1)
    for _ in range(700):
        share = after(share, 0.0)
    assert share.percent > 85.0


def test_a_node_that_takes_no_more_is_held_at_the_fixed_threshold() -> None:
    share, over = first_share(65), 0
    for _ in range(3600):
        trouble = share.percent > 65.0
        over += trouble
        share = after(share, 50.0 if trouble else 0.0)
    assert over <= 6  # every ten minutes once
    assert share.percent >= 65.0


@pytest.mark.parametrize(
    ("signals", "used", "expected"),
    [
        pytest.param({"a": 0.1, "b": 0.3}, {"a": 3.0, "b": 1.0}, 15.0, id="weighted-by-cpu"),
        pytest.param({"a": 0.5}, {"a": 0.0}, 0.0, id="idle-pods-feel-nothing"),
        pytest.param({"a": 0.5}, {}, None, id="unknown-usage"),
        pytest.param({}, {"a": 1.0}, None, id="unknown-signal"),
    ],
)
def test_what_pods_feel_is_weighted_by_the_cpu_they_use(
    signals: dict[str, float], used: dict[str, float], expected: float | None
) -> None:
    assert felt(signals, used) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("text", ["pressure", "pressure=", "memory=5", "pressure=0", "throttled=101", "pressure=nan"])
def test_a_bad_target_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(BadTarget, match=repr(text)):
        parse_target(text)


def test_a_bad_target_in_the_settings_names_its_flag() -> None:
    with pytest.raises(SettingsError, match="best-effort-target"):
        refuse_unknown_names(NodeSettings(best_effort_target="much"))


def a_node(annotations: dict[str, str] | None = None) -> World:
    world = World(version=2)
    raw: dict[str, Any] = {
        "metadata": {"name": "n", "annotations": annotations or {}},
        "status": {"capacity": {"cpu": "16"}, "allocatable": {"cpu": "16"}},
    }
    world.node = convert(raw, Node)
    threshold = {"enable": True, "cpuSuppressPolicy": "cfsQuota"}
    world.slo = convert(complete({"resourceUsedThresholdWithBE": threshold}), NodeSLOSpec)
    world.add_pod(raw_pod("web", label="LS"))
    world.add_pod(raw_pod("job", label="BE", kube="BestEffort", resources=batch()))
    world.cgroup("cpu", world.paths.tier(BEST_EFFORT), {"cpu.max": "max 100000", "cpuset.cpus.effective": "0-15"})
    world.metrics.set(kinds.NODE_CPU, 4.0)
    world.metrics.set(kinds.POD_CPU, 2.0, {kinds.POD_UID: "web"})
    world.metrics.set(kinds.POD_THROTTLED, 0.0, {kinds.POD_UID: "web"})
    return world


def synced(world: World, strategy: CpuSuppress, seconds: int = 1) -> dict[str, Any]:
    for _ in range(seconds):
        world.clock.advance(1)
        plan = world.sync(strategy)
    return dict(plan.trace)


def quota(world: World) -> int:
    return int(world.text("cpu", world.paths.tier(BEST_EFFORT), "cpu.max").split()[0])


def waits(world: World, micros: int) -> None:
    line = f"avg10=0.00 avg60=0.00 avg300=0.00 total={micros}\n"
    world.cgroup("cpu", world.pods[0].directory, {"cpu.pressure": f"some {line}full {line}"})


def test_without_a_target_the_threshold_is_fixed() -> None:
    world, strategy = a_node(), CpuSuppress()
    trace = synced(world, strategy, 60)
    assert "share" not in trace
    assert quota(world) == (16 * 65_000 - 400_000)


def test_throttled_pods_push_best_effort_work_back_and_calm_lets_it_grow() -> None:
    world = a_node()
    strategy = CpuSuppress(share=ShareControl(ShareTarget(Signal.THROTTLED, 5.0)))
    assert synced(world, strategy, 300)["share"]["percent"] == 68  # carefully at first
    calm = synced(world, strategy, 5400)
    assert calm["share"]["percent"] == 90
    assert "of 90 % (throttled=5, observed 0.0" in calm["reason"]
    high = quota(world)
    world.metrics.set(kinds.POD_THROTTLED, 0.5, {kinds.POD_UID: "web"})
    assert synced(world, strategy)["share"]["percent"] == 65
    assert quota(world) < high
    assert synced(world, strategy, 20)["share"]["percent"] == 5


def test_pressure_is_the_time_waited_since_the_last_sync() -> None:
    world = a_node()
    strategy = CpuSuppress(share=ShareControl(TARGET))
    waits(world, 1_000_000)
    assert synced(world, strategy)["share"]["observedPercent"] is None  # one reading is no rate
    waits(world, 1_100_000)
    assert synced(world, strategy)["share"]["observedPercent"] == 10.0


def test_pressure_that_cannot_be_read_means_the_fixed_threshold() -> None:
    world = a_node()
    strategy = CpuSuppress(share=ShareControl(TARGET))
    trace = synced(world, strategy, 60)
    assert trace["share"] == {
        "target": "pressure=5",
        "observedPercent": None,
        "percent": 65,
        "fixedPercent": 65,
        "reason": "not known: the fixed threshold at most",
    }


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        pytest.param("throttled=1", {"target": "throttled=1"}, id="another-target"),
        pytest.param("off", None, id="off"),
        pytest.param(
            "much",
            {"problem": "'much' is not pressure=PERCENT, throttled=PERCENT or off"},
            id="unreadable-is-the-fixed-threshold",
        ),
    ],
)
def test_the_annotation_of_the_node_comes_first(annotation: str, expected: dict[str, Any] | None) -> None:
    world = a_node({ANNOTATION: annotation})
    trace = synced(world, CpuSuppress(share=ShareControl(TARGET)), 60)
    share = trace.get("share")
    assert (share is None) == (expected is None)
    if expected is not None and share is not None:
        assert expected.items() <= share.items()
    if annotation != "throttled=1":
        assert quota(world) == 16 * 65_000 - 400_000
