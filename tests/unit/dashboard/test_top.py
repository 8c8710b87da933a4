"""`kubetide top`: keys and lines, without a terminal."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kubetide.dashboard.core.model import Amounts, Judgement, Tone, Workload
from kubetide.dashboard.core.nodes import NodeAmounts, NodeRow
from kubetide.dashboard.core.screen import text_of
from kubetide.dashboard.core.top import DOWN, ENTER, ESCAPE, PAGE_DOWN, UP, Controls, Shown, render

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def row(name: str, tone: Tone = "good", **more: Any) -> Workload:
    amounts = Amounts(used=0.4, asked=1.0, recommended=0.6)
    return Workload(
        namespace="shop",
        name=name,
        ready=2,
        pods=2,
        bounds=(1, 5),
        usage="cpu 54/60 %",
        cpu=more.pop("cpu", amounts),
        memory=amounts,
        trend=(1.0, 2.0, 3.0),
        verdict=Judgement(tone=tone, text=f"{name} is {tone}", remedy="kubectl mend" if tone != "good" else ""),
        **more,
    )


ROWS = [row("web"), row("cart", "warn"), row("search", "bad"), *(row(f"job-{number:02}") for number in range(40))]


def pressed(*keys: str) -> Controls:
    controls = Controls()
    for key in keys:
        controls = controls.press(key, rows=len(controls.matched(ROWS)))
    return controls


def lines(controls: Controls, width: int = 80, height: int = 24, **more: Any) -> list[str]:
    return text_of(render(Shown(context="kubetide", now=NOW, rows=ROWS, **more), controls, width, height))


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        pytest.param((), "search", id="the-worst-first"),
        pytest.param((DOWN,), "cart", id="down"),
        pytest.param((DOWN, DOWN, UP), "cart", id="up"),
        pytest.param((UP,), "search", id="not-above-the-first"),
        pytest.param((PAGE_DOWN,) * 9, "web", id="not-below-the-last"),
        pytest.param(("a",), "cart", id="by-name"),
        pytest.param(("a", "a"), "web", id="by-name-turned-round"),
        pytest.param(("/", "w", "e", "b", ENTER), "web", id="filtered"),
        pytest.param(("/", "w", "x", "\x7f", "e", ENTER), "web", id="corrected"),
        pytest.param(("/", "w", "e", "b", ESCAPE), "search", id="filter-given-up"),
        pytest.param(("/", "z", "z", "z", ENTER), None, id="nothing-matches"),
    ],
)
def test_keys_choose_a_row(keys: tuple[str, ...], name: str | None) -> None:
    chosen = pressed(*keys).chosen(ROWS)
    assert (chosen.name if chosen is not None else None) == name


def test_letters_are_text_while_a_filter_is_typed() -> None:
    controls = pressed("/", "q", "n", "p")
    assert (controls.search, controls.ended, controls.view) == ("qnp", False, "workloads")


@pytest.mark.parametrize("key", [ENTER, "p", "e", "n"])
def test_a_view_is_left_by_escape_and_then_q_ends(key: str) -> None:
    assert pressed(key).view != "workloads"
    assert pressed(key, ESCAPE).view == "workloads"
    assert not pressed(key, "q").ended
    assert pressed(key, "q", "q").ended


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (160, 50), (40, 8), (20, 3)])
@pytest.mark.parametrize("view", ["", ENTER, "n", "/"])
def test_a_screen_has_exactly_the_size_of_its_terminal(width: int, height: int, view: str) -> None:
    found = lines(pressed(view) if view else Controls(), width, height)
    assert len(found) == max(height, 8)
    assert all(len(line) <= max(width, 40) for line in found)


def test_the_chosen_row_is_in_sight_with_its_verdict_and_its_fix() -> None:
    shown = lines(pressed(*[PAGE_DOWN] * 3))
    at = next(line for line in shown if line.startswith("▶"))
    assert "job-" in at
    assert "54/60 %" in at
    top = lines(Controls())
    assert any("search is bad" in line for line in top)
    assert any("FIX: kubectl mend" in line for line in top)


def test_nodes_and_texts_are_shown_and_scrolled() -> None:
    amounts = NodeAmounts(allocatable=8.0, requested=4.0, used=2.0)
    node = NodeRow(
        name="node-1", ready=True, pods=3, cpu=amounts, memory=amounts, verdict=Judgement(tone="good", text="")
    )
    assert any("node-1" in line for line in lines(pressed("n"), nodes=[node]))
    text = [f"line {number}" for number in range(100)]
    assert " line 0" in lines(pressed(ENTER), text=text)
    scrolled = lines(pressed(ENTER, PAGE_DOWN), text=text)
    assert " line 0" not in scrolled
    assert " line 10" in scrolled


def test_the_chosen_workload_stays_chosen_when_the_order_changes() -> None:
    quiet, busy = Amounts(used=0.1), Amounts(used=9.0)
    before = [row("web", cpu=busy), row("cart", cpu=quiet)]
    after = [row("web", cpu=quiet), row("cart", cpu=busy)]
    explained = Controls(sort="cpu", descending=True).press(ENTER, rows=2)
    for controls in (explained, replace(explained, view="workloads", at=1)):
        chosen, still = controls.chosen(before), controls.renewed(before, after).chosen(after)
        assert chosen is not None
        assert still is not None
        assert chosen.name == still.name
    # Whoever has not left the top goes on to see the top, and a workload that is gone leaves the place to another.
    top = Controls(sort="cpu", descending=True)
    assert top.renewed(before, after) == top
    assert explained.renewed(before, [row("other")]).chosen([row("other")]) is not None
    assert explained.renewed([], after) == explained


def test_a_large_autoscaler_shows_its_bounds_and_a_wide_screen_the_trend() -> None:
    rows = [row("web", tone="bad"), replace(row("large"), ready=10, pods=10, bounds=(2, 12))]
    lines = text_of(render(Shown(context="c", now=NOW, rows=rows), Controls(), 150, 24))
    assert "10 [2-12]" in next(line for line in lines if "shop/large" in line)
    assert lines[1].endswith("trend")
    assert "req/s" not in lines[1]
    assert "1 error  0 warnings" in lines[0]
