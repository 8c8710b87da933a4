"""Keys on a showing: from workload to workload, other lines, and things that happen because somebody wants them to."""

import pytest

from kubetide.cli.demo.controls import Controls
from kubetide.cli.demo.pace import Pace, keys_in


def press(data: bytes, workloads: int = 3) -> Controls:
    controls = Controls(pace=Pace(240.0), workloads=workloads)
    for key in keys_in(data):
        controls = controls.press(key)
    return controls


@pytest.mark.parametrize(
    ("data", "selected"),
    [
        pytest.param(b"\t", 0, id="the-first"),
        pytest.param(b"\t\t\t", 2, id="the-last"),
        pytest.param(b"\t\t\t\t", None, id="all-of-them-again"),
        pytest.param(b"\x1b[Z", 2, id="backwards"),
        pytest.param(b"\t\t\x1b[Z", 0, id="back-one"),
    ],
)
def test_tab_goes_through_the_workloads(data: bytes, selected: int | None) -> None:
    assert press(data).selected == selected
    assert press(data, workloads=0).selected is None


@pytest.mark.parametrize(
    ("data", "chosen"),
    [
        pytest.param(b"l", "problems", id="problems"),
        pytest.param(b"ll", "all", id="all-again"),
        pytest.param(b"\tll", "workload", id="of-the-chosen-workload"),
        pytest.param(b"\tlll", "all", id="round"),
    ],
)
def test_l_filters_the_lines(data: bytes, chosen: str) -> None:
    assert press(data).filter == chosen


@pytest.mark.parametrize(
    ("data", "injected"),
    [
        pytest.param(b"s1", "spike", id="spike"),
        pytest.param(b"s2", "metrics", id="metrics"),
        pytest.param(b"s3", "node", id="node"),
        pytest.param(b"1", None, id="not-asked"),
        pytest.param(b"sq", None, id="thought-better-of-it"),
        pytest.param(b"s1+", None, id="once-only"),
    ],
)
def test_s_injects_what_is_chosen(data: bytes, injected: str | None) -> None:
    assert press(data).injected == injected


def test_a_choice_is_offered_and_other_keys_keep_their_meaning() -> None:
    assert "1 a spike" in press(b"s").hint()
    assert not press(b"sq").pace.ended
    assert press(b"+").pace.speed == 480
    assert press(b"q").pace.ended
    assert len(press(b"").hint()) <= 80
