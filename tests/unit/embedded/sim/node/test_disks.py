"""Who waits for a disk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.embedded.sim.node.disks import Disks, limit_of
from kubetide.embedded.sim.node.groups import CGroup, GroupTree

MIB = float(2**20)


def settled(*wants: float, limits: dict[str, str] | None = None) -> tuple[Disks, list[CGroup]]:
    """Return a machine with a disk of 100 MiB/s whose containers have wanted so much for an hour."""
    tree = GroupTree()
    groups = [tree.make(f"pods/c{number}") for number in range(len(wants))]
    for path, text in (limits or {}).items():
        tree.make(path).extra["io.max"] = text
    disks = Disks()
    disks.set_speed(0, 100 * MIB)
    for row, (group, want) in enumerate(zip(groups, wants, strict=True)):
        disks.want(row, group, 0, want * MIB)
    for _ in range(60):
        disks.count(60.0)
    return disks, groups


@pytest.mark.parametrize(
    ("wants", "limits", "expected"),
    [
        pytest.param([10.0], {}, 0.1, id="alone-on-a-fast-disk"),
        pytest.param([10.0, 50.0], {}, 0.2, id="others-take-room"),
        pytest.param([60.0, 60.0], {}, 1.0, id="more-than-the-disk-gives"),
        pytest.param([10.0], {"pods/c0": "8:0 rbps=10485760 wbps=10485760"}, 0.5, id="within-a-limit"),
        pytest.param([10.0], {"pods/c0": "8:0 rbps=1048576 wbps=max"}, 1.0, id="above-a-limit"),
        pytest.param([10.0, 30.0], {"pods": "8:0 rbps=31457280"}, 10 / 15, id="a-limit-above-is-shared"),
    ],
)
def test_a_container_waits_for_what_the_disk_cannot_give(
    wants: list[float], limits: dict[str, str], expected: float
) -> None:
    disks, _ = settled(*wants, limits=limits)
    assert disks.pressure_of([0])[:3] == pytest.approx((expected,) * 3, rel=1e-3)


def test_a_node_feels_its_worst_and_who_is_gone_is_forgotten() -> None:
    disks, _ = settled(10.0, 50.0)
    assert disks.pressure_of([0, 1])[0] == pytest.approx(50 / 90, rel=1e-3)
    disks.forget(1)
    disks.count(3600.0)
    assert disks.pressure_of([0, 1])[0] == pytest.approx(0.1, rel=1e-3)
    disks.forget(0)
    assert not disks
    assert disks.pressure_of([0, 1]) == (0.0, 0.0, 0.0, 0.0)


def test_who_never_used_the_disk_costs_nothing() -> None:
    disks, _ = settled(0.0)
    assert not disks


@given(st.lists(st.floats(0, 500), min_size=1, max_size=6))
def test_nobody_waits_longer_than_there_is_time_and_who_wants_nothing_never_waits(wants: list[float]) -> None:
    disks, _ = settled(*wants)
    for row, want in enumerate(wants):
        ten, minute, five, seconds = disks.pressure_of([row])
        assert 0 <= ten <= 1
        assert 0 <= minute <= 1
        assert 0 <= five <= 1
        assert 0 <= seconds <= 3600 * (1 + 1e-9)
        assert want or not seconds


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"io.max": "8:0 rbps=max wbps=max riops=10"}, None, id="only-operations"),
        pytest.param({"io.max": "8:0 rbps=100 wbps=50"}, 100.0, id="the-narrower"),
        pytest.param({"blkio.throttle.read_bps_device": "8:0 70"}, 140.0, id="v1"),
        pytest.param({"blkio.throttle.read_bps_device": "8:0 0"}, None, id="v1-without"),
    ],
)
def test_limits_are_read_from_the_files(files: dict[str, str], expected: float | None) -> None:
    group = GroupTree().make("pods")
    group.extra.update(files)
    assert limit_of(group) == expected
