"""Rows as text: nothing is lost in JSON, nothing is wider than the terminal, CI sees what does not fit."""

import csv
import io
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import yaml

from kubetide.charts import Line, Marks, to_svg, to_text
from kubetide.errors import InvalidInput
from kubetide.recommend import Container, Row, Sizes, rows
from kubetide.recommend.core.changes import compare
from kubetide.recommend.core.plots import VpaMarks, charts, replicas
from kubetide.recommend.core.workloads import Usage, key_of
from kubetide.recommend.outputs.html import to_html
from kubetide.recommend.outputs.sarif import sarif
from kubetide.recommend.outputs.table import table
from kubetide.recommend.outputs.texts import Report, evidence_text, from_json, to_csv, to_json, to_markdown, to_yaml
from kubetide.replay.core.policies import OomKill
from unit.recommend.test_rows import MIB, START, WEB, one, usage

SMALL = replace(WEB, name="small", containers=(Container("main", Sizes(10, 10 * MIB)),))
LONG = replace(WEB, name="a-name-that-is-much-longer-than-a-column-of-a-terminal-may-be|with-a-bar")
SILENT = replace(WEB, name="silent")


def samples() -> dict[tuple[str, str, str, str, str], Usage]:
    return {key_of(each, "main"): usage() for each in (SMALL, LONG, WEB)}


@pytest.fixture(scope="module")
def report() -> Report:
    made = rows([SMALL, LONG, WEB, SILENT], samples())
    return Report(at="2026-01-01T00:00:00+00:00", rows=tuple(made))


def test_json_is_read_back_as_it_was(report: Report) -> None:
    assert from_json(to_json(report).encode(), "old.json") == report
    assert yaml.safe_load(to_yaml(report)) == msgspec.json.decode(to_json(report))
    with pytest.raises(InvalidInput, match=r"old\.json"):
        from_json(b"[1]", "old.json")


def test_csv_and_markdown_have_a_line_per_row(report: Report) -> None:
    read = list(csv.DictReader(io.StringIO(to_csv(report.rows))))
    assert [line["name"] for line in read] == [row.name for row in report.rows]
    assert read[0]["risk"] == "high"
    assert (read[0]["days"], read[0]["samples"], read[0]["oom_kills"]) == ("8.00", "4608", "0")
    assert 0 < float(read[0]["cpu_slack"]) < 1
    assert (read[-1]["cpu_slack"], read[-1]["throttled"]) == ("", "")
    lines = to_markdown(report.rows).splitlines()
    assert len(lines) == 2 + len(report.rows)
    assert all(line.replace("\\|", "").count("|") == 10 for line in lines)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("details", [False, True])
def test_the_table_fits_and_begins_with_what_is_too_small(report: Report, width: int, details: bool) -> None:
    lines = [line.plain for line in table(report.rows, width=width, details=details)]
    assert max(map(len, lines)) <= width
    assert "shop/small" in lines[1]
    assert "4 containers: 1 too small, 1 without usage" in " ".join(lines)


def test_a_long_name_keeps_its_ends_and_its_container() -> None:
    name = "payments-service-of-the-european-region-{}"
    containers = (Container("main", Sizes(100, MIB)), Container("proxy-with-a-name", Sizes(100, MIB)))
    both = [replace(WEB, name=name.format(end), containers=containers) for end in ("east", "west")]
    made = rows(both, {key_of(each, one.name): usage() for each in both for one in containers})
    lines = [line.plain for line in table(made)][1:5]
    assert max(map(len, lines)) <= 80
    assert len({line.split("  ")[0] for line in lines}) == 4, "no two rows have the same name"
    assert sum("east deploy [main]" in line for line in lines) == 1
    assert sum("-name]" in line for line in lines) == 2


def test_a_reason_of_many_rows_is_said_once() -> None:
    silent = [replace(WEB, name=name) for name in ("a", "b", "c")]
    reasons = {key_of(each, "main"): "nobody measured it" for each in silent[:2]}
    lines = [line.plain.strip() for line in table(rows(silent, {}, why_missing=reasons))]
    assert [line.split()[0] for line in lines[1:4]] == ["shop/a", "shop/b", "nobody"]
    assert lines[5] == "no usage found"


def test_next_to_nothing_saves_nothing() -> None:
    row = msgspec.structs.replace(one(WEB, usage()), saved_cpu_millis=-22, saved_memory_bytes=-1)
    text = "\n".join(line.plain for line in table([row]))
    assert "0.0c  0.0Gi" in text
    assert "saves 0.0 cores, 0.0 GiB" in text
    assert '"saved_texts":["0.0 cores","0.0 GiB"]' in to_html(Report(rows=(row,)), {})


def test_details_say_what_a_row_rests_on() -> None:
    killed = replace(usage(), ooms=(OomKill(0, START + 600, 300.0 * MIB),))
    text = " ".join(line.plain.strip() for line in table([one(WEB, killed)], details=True))
    assert "8.0 days, 4,608 samples of 2 pods; p90 of CPU and of daily memory peaks, +15 %; 1 OOM kill; in 8.0" in text
    assert text.endswith("1 container: 1 too small, 0 without usage; saves 1.1 cores, 1.0 GiB")
    assert "with this request, in hindsight" in to_markdown([one(WEB, killed)])


def test_a_short_history_is_told_in_minutes() -> None:
    assert "in 30 minutes with this request" in evidence_text(one(WEB, usage(1 / 48)))
    assert "history: 6.0 hours" in one(WEB, usage(0.25)).reason


def test_nothing_found_is_one_sentence_without_a_table() -> None:
    assert " ".join(line.plain for line in table([])).startswith("no workload was found")


def test_sarif_has_a_result_for_what_does_not_fit(report: Report) -> None:
    results = sarif(report.rows)["runs"][0]["results"]
    levels = [(result["ruleId"], result["level"]) for result in results]
    assert levels[0] == ("memory-too-small", "error")
    assert ("request-too-large", "note") in levels
    assert levels[-1] == ("no-usage", "none")


def test_changes_name_what_came_went_and_moved(report: Report) -> None:
    by_name = {row.name: row for row in report.rows}
    web = by_name["web"]
    assert web.recommended is not None
    grown = msgspec.structs.replace(web.recommended, cpu_request_millis=2000)
    after: list[Row] = [
        msgspec.structs.replace(web, recommended=grown),
        msgspec.structs.replace(by_name["small"], risk="none"),
        by_name["silent"],
        msgspec.structs.replace(web, name="fresh"),
    ]
    found = {each.container.split()[2]: each.what for each in compare(report.rows, after)}
    assert found == {"web": "size", "small": "risk", "fresh": "new", LONG.name: "gone"}
    assert compare(report.rows, report.rows) == []


def cpu_of(row: Row) -> int | None:
    return None if row.recommended is None else row.recommended.cpu_request_millis


def test_charts_show_the_band_and_the_sizes(report: Report) -> None:
    row = next(row for row in report.rows if row.name == "web")
    cpu, memory = charts(usage(), row, points=24)
    assert [layer.label for layer in cpu.layers] == [
        "usage p50 to p95",
        "request 1",
        "limit 2",
        f"recommended {cpu_of(row)}m",
    ]
    band = memory.layers[0]
    assert len(getattr(band, "x")) == 24  # noqa: B009
    assert (getattr(band, "low") <= getattr(band, "high")).all()  # noqa: B009


def test_a_name_cannot_leave_its_script_element(report: Report) -> None:
    evil = msgspec.structs.replace(report.rows[0], name="</script><!--<script>alert(1)</script>")
    page = to_html(Report(rows=(evil,)), {})
    assert page.count("</script>") == page.count("<script") == 1
    assert "<!--" not in page


def test_a_plot_shows_the_target_of_the_hpa_and_how_many_pods_there_were(report: Report) -> None:
    row = next(row for row in report.rows if row.name == "web")
    cpu, memory = charts(usage(), row, targets={"cpu": 50})
    line = cpu.layers[-1]
    assert isinstance(line, Line)
    assert (line.label, line.y[0]) == ("HPA target 500m", 0.5)
    assert not any(layer.label.startswith("HPA target") for layer in memory.layers)
    given = usage()
    given.cpu[:10, 1] = np.nan
    (pods,) = replicas(given, row).layers
    assert isinstance(pods, Line)
    assert (pods.y[0], pods.y[10]) == (1.0, 2.0)


def test_a_plot_shows_what_the_vpa_says_and_did() -> None:
    marks = VpaMarks(target=Sizes(300, 2**29), lower=Sizes(200), upper=Sizes(900), evictions=(1.0,), resizes=(2.0, 3.0))
    cpu, memory = charts(usage(), one(WEB, usage()), vpa=marks)
    lines = [(each.label, float(each.y[0])) for each in cpu.layers if isinstance(each, Line)]
    assert lines[-3:] == [("VPA target 300m", 0.3), ("VPA lower bound 200m", 0.2), ("VPA upper bound 900m", 0.9)]
    assert [(each.label, each.x.size) for each in memory.layers if isinstance(each, Marks)] == [
        ("evictions", 1),
        ("resizes", 2),
    ]
    assert "VPA target" in to_svg(cpu)
    assert "VPA upper bound 900m" in to_text(cpu, width=80, height=14)  # no label is left out for want of room
