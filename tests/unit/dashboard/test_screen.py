"""A screen is a pure function of what it shows: it fills any terminal exactly, and names stay readable."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.dashboard.core.bars import bar, cores, cut, gauge, memory, sparkline
from kubetide.dashboard.core.model import Amounts, Banner, Entry, Judgement, Node, State, Tone, Workload
from kubetide.dashboard.core.screen import render, text_of

START = datetime(2026, 1, 5, 6, tzinfo=UTC)
SIZES = [pytest.param(80, 24, id="80x24"), pytest.param(160, 50, id="160x50")]
NAMES = ("storefront", "cart", "search", "sessions", "thumbnails", "recommendations", "reports", "training")


def workload(name: str, tone: Tone = "good") -> Workload:
    return Workload(
        namespace="shop",
        name=name,
        ready=6,
        pods=6,
        bounds=(2, 12),
        usage="cpu 58/60 %",
        rate=207,
        latency=0.014,
        cpu=Amounts(used=2.1, asked=4.0, recommended=3.0),
        memory=Amounts(used=2**30, asked=2 * 2**30),
        trend=(1.0, 2.0, 3.0, 2.0),
        verdict=Judgement(tone=tone, text=f"verdict of {name}", remedy="the remedy" if tone == "bad" else ""),
    )


def state(count: int = 8) -> State:
    return State(
        title="web shop",
        start=START,
        now=START + timedelta(hours=3),
        end=START + timedelta(hours=12),
        pace="240x",
        workloads=tuple(workload(NAMES[index % 8] + ("" if index < 8 else f"-{index}")) for index in range(count)),
        nodes=tuple(
            Node(name=f"node-{n}", ready=n != 3, pods=8, cpu=7.9, asked=2.8, used=5.2, batch=3.8, batch_asked=1.5)
            for n in (1, 2, 3)
        ),
        banners=(Banner(at=START, text="metrics: outage: the metrics API is down", left=timedelta(minutes=7)),),
        log=tuple(
            Entry(
                at=START + timedelta(minutes=number),
                subject="hpa/storefront",
                text=f"change {number}",
                tone="bad" if number % 2 else "plain",
                workload="shop/storefront",
            )
            for number in range(30)
        ),
        keys="q end",
    )


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_everything_has_its_place(width: int, height: int) -> None:
    lines = text_of(render(state(), width, height))
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("web shop  Mon 09:00  ")
    assert " 25 %  240x" in lines[0]
    assert lines[1] == " ▶ 06:00 metrics: outage: the metrics API is down (7 min left)"
    for name in NAMES:
        [numbers] = [line for line in lines if f"shop/{name} " in line]
        assert "6/6 [2-12]" in numbers
        assert "cpu 58/60 %" in numbers
        assert "│" in numbers
        assert "◆" in numbers
        assert any(f"✓ verdict of {name}" in line for line in lines)
    assert sum("1.5 of 3.8 cores taken" in line for line in lines) == 2
    assert any("node-3" in line and line.endswith("DOWN") for line in lines)
    assert lines[-1] == "q end"


def test_a_wide_screen_has_memory_response_times_and_the_log() -> None:
    lines = text_of(render(state(), 160, 50))
    text = "\n".join(lines)
    assert "2.10/4.00/3.00" in text
    assert "1.0Gi/2.0Gi" in text
    assert "14 ms" in text
    assert "change 29" in text


def test_what_does_not_fit_gives_way_and_what_is_wrong_stays() -> None:
    many = state(40)
    wrong = replace(many, workloads=(*many.workloads[:35], workload("last", "bad"), *many.workloads[36:]))
    lines = text_of(render(wrong, 80, 24))
    assert len(lines) == 24
    assert any(line.startswith("✗ shop/last") for line in lines)
    assert any("more" in line for line in lines)


def test_a_workload_is_shown_with_its_remedy_its_explanation_and_its_own_changes() -> None:
    chosen = replace(
        state(), selected=0, workloads=(workload("storefront", "bad"),), explanation=("because", "of that")
    )
    lines = text_of(render(chosen, 80, 24))
    assert any("✗ verdict of storefront" in line for line in lines)
    assert any("FIX: the remedy" in line for line in lines)
    assert "  because" in lines
    assert any("change 29" in line for line in lines)
    assert not any("node-1" in line for line in lines)


def test_lines_are_filtered() -> None:
    problems = "\n".join(text_of(render(replace(state(), filter="problems"), 160, 50)))
    assert "problems only" in problems
    assert "change 29" in problems
    assert "change 28" not in problems


@given(st.integers(1, 200), st.integers(1, 70), st.integers(0, 30), st.booleans())
def test_any_terminal_is_filled_exactly(width: int, height: int, count: int, explained: bool) -> None:
    shown = replace(state(count), selected=0 if explained and count else None, explanation=("a" * 300,) * 90)
    lines = text_of(render(shown, width, height))
    assert len(lines) == max(height, 8)
    assert max(map(len, lines)) <= max(width, 40)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.none() | st.floats(0, 1e6), st.integers(0, 60))
def test_a_gauge_keeps_its_width(used: float, asked: float, recommended: float | None, width: int) -> None:
    assert len(gauge(used, asked, recommended, width)) == width


@given(st.lists(st.floats(0, 1e6), max_size=300), st.integers(0, 60))
def test_a_sparkline_keeps_its_width(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) == width


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        pytest.param(bar(0.5, 4), "██··", id="half-a-bar"),
        pytest.param(bar(2.0, 3), "███", id="more-than-full"),
        pytest.param(gauge(1, 4, 2, 4), "█◆·│", id="used-asked-best"),
        pytest.param(gauge(0, 0, None, 3), "···", id="nothing-to-measure"),
        pytest.param(sparkline([0, 7, 7], 3), "▁██", id="rises"),
        pytest.param(sparkline([1, 1, 3, 3], 2), "▃█", id="means-where-there-are-many"),
        pytest.param(cores(0.144), "0.14", id="few-cores"),
        pytest.param(cores(12.34), "12.3", id="many-cores"),
        pytest.param(memory(454 * 2**20), "454Mi", id="mebibytes"),
        pytest.param(memory(2 * 2**30), "2.0Gi", id="gibibytes"),
        pytest.param(cut("abcdef", 4), "abc…", id="cut"),
        pytest.param(cut("ab", 4), "ab  ", id="filled"),
    ],
)
def test_numbers_as_text(made: str, expected: str) -> None:
    assert made == expected
