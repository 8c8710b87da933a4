"""The two renderings of one description: gaps stay gaps, peaks survive, hostile names are text."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import numpy as np
import pytest

from kubetide.charts import Axis, Band, Bars, Chart, Line, Marks, Points, Role, Unit, to_svg, to_text
from kubetide.charts.chart import Numbers, runs, thin
from kubetide.charts.terminal import sparkline

HOURS = np.arange(0.0, 48.0) * 3600
WAVE = 1.0 + np.abs(HOURS % 86400 - 43200) / 43200


def chart(*layers: Line | Band | Bars | Points | Marks, title: str = "shop/cart cpu") -> Chart:
    return Chart(title=title, x=Axis(unit=Unit.TIME), y=Axis(unit=Unit.CORES), layers=layers)


def usage(values: Numbers = WAVE) -> Line:
    return Line(label="usage", x=HOURS, y=values, role=Role.USAGE)


def everything() -> Chart:
    return chart(
        Band(label="p50 to p95", x=HOURS, low=WAVE * 0.8, high=WAVE * 1.1),
        usage(),
        Line(label="request", x=HOURS[[0, 20, 47]], y=np.array([1.0, 2.5, 2.5]), role=Role.REQUEST, step=True),
        Line(label="limit", x=HOURS[[0, 47]], y=np.array([3.0, 3.0]), role=Role.LIMIT, dashed=True),
        Marks(label="OOM kill", x=HOURS[[20]]),
        Points(label="policies", x=HOURS[[5, 46]], y=np.array([1.0, 2.0]), names=("vpa", "a-longer-name")),
        Bars(label="histogram", edges=HOURS[[0, 10, 20]], heights=np.array([0.5, 0.2])),
    )


def elements(svg: str, tag: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


def test_an_svg_stands_alone_and_is_the_same_every_time() -> None:
    svg = to_svg(everything())
    assert svg == to_svg(everything())
    assert not re.search(r"<script|style=|href=|url\(", svg)
    assert elements(svg, "title")[0].text == "shop/cart cpu"
    assert "OOM kill: 1 marks" in (elements(svg, "desc")[0].text or "")
    assert "limit: 3 to 3" in (elements(svg, "desc")[0].text or "")


def test_every_layer_has_its_colour_class() -> None:
    classes = {part.get("class") for part in ET.fromstring(to_svg(everything())).iter()}
    assert {"tide-usage", "tide-request", "tide-limit", "tide-event", "tide-other", "tide-grid"} <= classes


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", '"><img src=x onerror=y>', "a & b]]>"])
def test_hostile_names_are_text(hostile: str) -> None:
    svg = to_svg(chart(Points(label=hostile, x=HOURS[:1], y=WAVE[:1], names=(hostile,)), usage(), title=hostile))
    root = ET.fromstring(svg)
    assert root.get("aria-label") == hostile
    assert not [part for part in root.iter() if part.tag.endswith(("script", "img"))]


def test_no_text_stands_out_of_the_picture() -> None:
    minutes = HOURS[0] + 30.0 * np.arange(11)  # a tick on the very end, with seconds
    svg = to_svg(chart(Line(label="usage", x=minutes, y=np.ones(11))), width=400)
    for text in elements(svg, "text"):
        half = 6.8 * len(text.text or "") / 2 if text.get("text-anchor") == "middle" else 0.0
        assert float(text.get("x") or 0) + half <= 400


def test_a_gap_is_not_joined() -> None:
    broken = WAVE.copy()
    broken[10:15] = np.nan
    (path,) = (part for part in elements(to_svg(chart(usage(broken))), "path") if part.get("class") == "tide-usage")
    assert (path.get("d") or "").count("M") == 2
    assert list(runs(np.isfinite(broken))) == [slice(0, 10), slice(15, 48)]


def test_a_step_holds_its_value_until_the_next() -> None:
    request = Line(label="request", x=HOURS[[0, 24, 47]], y=np.array([1.0, 2.0, 2.0]), step=True)
    (path,) = (part for part in elements(to_svg(chart(request)), "path") if part.get("class") == "tide-other")
    points = [tuple(map(float, pair.split())) for pair in (path.get("d") or "")[1:].split("L")]
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(points))


def test_peaks_survive_thinning() -> None:
    x, y = np.arange(100_000.0), np.zeros(100_000)
    y[54_321] = 9.0
    fewer_x, fewer = thin(x, y, 200)
    assert len(fewer) <= 800
    assert fewer.max() == 9.0
    assert fewer_x[fewer.argmax()] == 54_321
    assert (np.diff(fewer_x) > 0).all()


@pytest.mark.parametrize(("width", "height"), [(80, 16), (40, 8), (160, 40), (12, 5)])
def test_text_fits_its_size(width: int, height: int) -> None:
    lines = to_text(everything(), width=width, height=height).splitlines()
    assert len(lines) <= max(height, 6)
    assert all(len(line) <= width for line in lines)


def test_text_shows_title_ticks_and_legend() -> None:
    text = to_text(everything(), width=100, height=16)
    assert text.startswith("shop/cart cpu\n")
    assert "┤" in text
    assert all(sign in text for sign in ("─ request", "╌ limit", "▼ OOM kill", "● policies", "■ p50 to p95"))
    assert "\x1b[33m─\x1b[0m request" in to_text(everything(), colour=True)
    assert "▼" in text
    assert "● vpa" in text


def test_colours_change_nothing_but_colours() -> None:
    coloured = to_text(everything(), colour=True)
    assert coloured != to_text(everything())
    assert re.sub(r"\x1b\[\d+m", "", coloured) == to_text(everything())


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param((), id="no-layer"),
        pytest.param((usage(np.full(48, np.nan)),), id="no-value"),
        pytest.param((Line(label="", x=HOURS[:1], y=WAVE[:1]),), id="one-point"),
        pytest.param((usage(np.zeros(48)),), id="zero"),
        pytest.param((usage(np.full(48, np.inf)),), id="infinite"),
    ],
)
def test_little_data_is_drawn_without_an_error(layers: tuple[Line, ...]) -> None:
    assert elements(to_svg(chart(*layers)), "text")
    assert to_text(chart(*layers)).startswith("shop/cart cpu")


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([0.0, 1.0, 2.0, 4.0], 4, "▁▂▄█"),
        ([1.0, float("nan"), 1.0], 3, "█ █"),
        ([0.0, 0.0], 2, "▁▁"),
        ([1.0, 9.0, 1.0, 1.0], 2, "█▁"),
        ([], 5, ""),
    ],
)
def test_a_sparkline_keeps_peaks_and_gaps(values: list[float], width: int, expected: str) -> None:
    assert sparkline(np.array(values), width=width) == expected


def test_a_legend_that_is_too_long_goes_on_below_inside_the_picture() -> None:
    times = np.array([0.0, 86400.0])
    lines = [Line(label=f"a line of many words {n}", x=times, y=np.full(2, float(n))) for n in range(1, 6)]
    text = to_svg(chart(*lines), width=400, height=200)
    heights = [float(each) for each in re.findall(r'y="([\d.]+)" fill="#333333">a line', text)]
    assert len(heights) == 5
    assert len(set(heights)) > 1
    assert max(heights) <= 200
    assert to_svg(chart(*lines), width=1600, height=200).count(f'y="{200 - 40 + 33:.1f}" fill="#333333">a line') == 5


def test_names_of_points_that_lie_together_do_not_cover_each_other() -> None:
    names = [f"policy-{number}" for number in range(6)]
    points = Points(label="policies", x=np.array([1.0] * 5 + [9.0]), y=np.array([0.0] * 5 + [9.0]), names=names)
    drawn = to_svg(Chart(title="t", x=Axis(unit=Unit.NUMBER), y=Axis(unit=Unit.NUMBER), layers=[points]))
    text = r'<text class="tide-text" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)"[^>]*>'
    places = {name: re.search(f"{text}{name}<", drawn) for name in names}
    found = [place.groups() for place in places.values() if place is not None]
    assert len(found) == 6
    for one, other in combinations(found[:5], 2):
        assert one[2] != other[2] or abs(float(one[1]) - float(other[1])) >= 11, "a line is 11 pixels high"


def test_long_ticks_have_room_and_axes_say_what_they_measure() -> None:
    points = Points(label="p", x=np.array([1.0]), y=np.array([1.23e-6]), names=["a"])
    y = Axis(unit=Unit.RATIO, label="late & lost")
    drawn = to_svg(Chart(title="t", x=Axis(unit=Unit.NUMBER, label="hours"), y=y, layers=[points]))
    ticks = re.findall(r'x="([\d.]+)" y="[\d.]+" text-anchor="end" fill="#555555">([^<]* %)<', drawn)
    assert ticks
    assert all(float(at) >= 6.0 * len(text) for at, text in ticks)
    assert ">↑ late &amp; lost<" in drawn
    assert ">hours →<" in drawn


def test_a_request_that_stays_is_drawn_with_two_points() -> None:
    x = np.arange(500.0)
    steady, moved = np.full(500, 2.0), np.where(x < 250, 2.0, 3.0)
    for values, most in ((steady, 2), (moved, 4)):
        line = Line(label="request", x=x, y=values, step=True)
        drawn = to_svg(Chart(title="t", x=Axis(unit=Unit.NUMBER), y=Axis(unit=Unit.NUMBER), layers=[line]))
        (path,) = re.findall(r'd="M([^"]*)"', drawn)
        assert len(path.split()) == 2 * most
