"""The report of a replay: the clairvoyant is the limit, the worst come first, and what is drawn was counted."""

import re
from pathlib import Path

import numpy as np
import pytest

from kubetide.charts import Axis, Chart, Unit
from kubetide.charts.chart import Line, Marks, Points
from kubetide.charts.page import Section
from kubetide.cli.main import run_cli
from kubetide.cli.offline.reports import show_charts, show_table
from kubetide.recording.format import Manifest
from kubetide.recording.writer import Writer
from kubetide.replay.pictures import sections, service_chart, trade_offs, with_clairvoyant, workload_charts
from kubetide.replay.runs import Options, Outcome, load_policy, run
from kubetide.replay.worst import follow, follow_services, worst_services, worst_workloads

pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")

T0, HOUR, DAY, GIB = 1_700_006_400, 3600, 86400, 2**30
DAYS = 6
LEAKY = "ns/Deployment/w1/app"


@pytest.fixture
def tide(tmp_path: Path) -> Path:
    """Three workloads of two pods for six days; w1 passes its memory request on the fourth day and is OOM-killed."""
    path = tmp_path / "a.tide"
    times = (T0 + np.arange(DAYS * 24) * HOUR) * 1_000_000
    hours = np.arange(DAYS * 24) % 24
    with Writer(path, Manifest(interval_seconds=HOUR, start=T0, warmup_periods=1)) as writer:
        for number in range(6):
            container = writer.container("ns", "Deployment", f"w{number // 2}", f"p{number}", "app")
            memory = np.full(times.size, GIB)
            if number == 2:
                memory[80] = 3 * GIB
                writer.row("oom_kills", container_id=container, time=(T0 + 80 * HOUR) * 1_000_000)
            cpu = 200_000 + 20_000 * hours * (1 + number // 2)
            writer.usage(np.full(times.size, container), times, cpu.astype(np.int64), memory.astype(np.int64))
            size = {"cpu_request_millis": 500, "memory_request_bytes": 2 * GIB}
            writer.row("sizes", container_id=container, time=T0 * 1_000_000, **size)
        for day in range(DAYS):
            at = (T0 + day * DAY) * 1_000_000
            writer.row("replicas", namespace="ns", kind="Deployment", workload="w2", time=at, wanted=2 + day % 2)
    return path


def test_the_clairvoyant_stands_beside_sizes_and_only_there() -> None:
    assert [each.name for each in with_clairvoyant([load_policy("vpa")])] == ["vpa", "oracle"]
    assert [each.name for each in with_clairvoyant([load_policy("oracle"), load_policy("vpa")])] == ["oracle", "vpa"]
    assert [each.name for each in with_clairvoyant([load_policy("hpa:60")])] == ["hpa:60"]


def test_trade_offs_place_every_policy_by_its_figures(tide: Path) -> None:
    outcomes = run(tide, [load_policy(name) for name in ("current", "peak", "oracle")])
    memory = next(chart for chart in trade_offs(outcomes) if chart.title.startswith("Memory"))
    placed = {
        name: (x, y)
        for layer in memory.layers
        if isinstance(layer, Points)
        for name, x, y in zip(layer.names, layer.x.tolist(), layer.y.tolist(), strict=True)
    }
    assert placed == {each.policy: (each.figures["memory_footprint"], each.figures["overruns"]) for each in outcomes}
    assert not [chart for chart in trade_offs(outcomes) if chart.title.startswith("Money")], "nobody named prices"


def test_the_worst_workload_is_followed_with_its_overrun_and_oom_kill(tide: Path) -> None:
    policies = [load_policy("current"), load_policy("peak")]
    outcomes = run(tide, policies)
    assert worst_workloads(outcomes[0], 1) == [LEAKY]
    current, peak = follow(tide, policies, {"current": [LEAKY], "peak": [LEAKY]}, Options())
    assert current.oom_kills.tolist() == [T0 + 80 * HOUR]
    assert current.overruns.tolist() == [T0 + 80 * HOUR]
    assert current.memory.max() == 3 * GIB, "of two pods the higher"
    assert set(current.new_memory.tolist()) == {2.0 * GIB}
    assert set(peak.old_memory.tolist()) == {2.0 * GIB}
    assert len(set(peak.new_memory[~np.isnan(peak.new_memory)].tolist())) > 1, "peak follows what it has seen"
    memory, cpu = workload_charts(peak)
    assert [layer.label for layer in memory.layers if isinstance(layer, Line)] == [
        "usage", "old request", "request by peak",
    ]  # fmt: skip
    assert "recorded OOM kill" in [layer.label for layer in memory.layers if isinstance(layer, Marks)]
    assert not [layer for layer in cpu.layers if isinstance(layer, Marks)]


def test_overruns_that_are_drawn_are_those_that_are_counted(tide: Path) -> None:
    policies = [load_policy("current")]
    (outcome,) = run(tide, policies, Options(warmup_periods=0))
    found = follow(tide, policies, {"current": list(outcome.workloads)}, Options(warmup_periods=0))
    cells = {int(at - T0) // DAY for each in found for at in each.overruns.tolist()}
    assert len(cells) == round(outcome.figures["overruns"] * outcome.figures["cells"])


def test_a_service_alone_has_the_replicas_it_has_among_others(tide: Path) -> None:
    policies = [load_policy("hpa:60")]
    (outcome,) = run(tide, policies)
    assert outcome.load is not None
    names = worst_services(outcome, 3)
    assert sorted(names) == ["ns/w0", "ns/w1", "ns/w2"]
    together = {each.service: each for each in follow_services(tide, policies, {"hpa:60": names})}
    (alone,) = follow_services(tide, policies, {"hpa:60": ["ns/w2"]})
    np.testing.assert_array_equal(alone.replicas, together["ns/w2"].replicas)
    labels = [layer.label for layer in service_chart(alone).layers if isinstance(layer, Line)]
    assert labels == ["demand in pods", "recorded replicas", "replicas by hpa:60"]
    assert alone.recorded.tolist() == [2, 3, 2, 3, 2, 3]


def test_replay_writes_a_report_and_draws_it_small(
    tide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.html"
    arguments = ["replay", str(tide), "--policy", "current", "--policy", "peak", "--policy", "hpa:60"]
    assert run_cli([*arguments, "--price-cpu", "0.03", "--charts", "--report", str(out)]) == 0
    printed = capsys.readouterr().out
    html = out.read_text()
    for heading in ("Policies side by side", "Worst workloads under peak", "worst services under hpa:60"):
        assert heading in html
        assert heading in printed
    assert "Worst workloads under oracle" not in html
    for text in ("money for sizes", "Money against overruns", "clairvoyant: the limit", "recorded OOM kill"):
        assert text in html
    assert run_cli([*arguments, "--price-cpu", "0.03", "--report", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text() == html


def test_a_report_that_cannot_be_written_is_one_line(tide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["replay", str(tide), "--policy", "peak", "--report", str(tide / "out.html")]) == 2
    assert re.fullmatch(r".*out\.html: cannot be written: Not a directory", capsys.readouterr().err.strip())


def test_every_section_has_something_to_show(tide: Path) -> None:
    policies = with_clairvoyant([load_policy("vpa")])
    for section in sections(tide, policies, run(tide, policies), Options()):
        assert section.charts


def test_a_table_in_a_narrow_terminal_loses_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    show_table("t", ["", "a", "b", "c"], [["samples-without-any-request", *["1.04 (1.00–1.08)"] * 3]])
    shown = capsys.readouterr().out
    assert "…" not in shown
    columns = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    assert "".join(row[0] for row in columns) == "samples-without-any-request"
    assert max(map(len, shown.splitlines())) <= 44


def test_where_next_to_nothing_goes_wrong_the_axis_does_not_grow_it() -> None:
    outcome = Outcome(
        policy="p",
        figures={"replicas_to_minimum": 1.0, "late": 1e-6},
        intervals={},
        workloads=(),
        sums=np.zeros((0, 0)),
    )
    (chart,) = trade_offs([outcome])
    assert chart.scales()[1].high == 0.001


@pytest.mark.parametrize(
    ("environment", "terminal", "coloured"), [("", True, True), ("1", True, False), ("", False, False)]
)
def test_charts_are_coloured_where_somebody_looks(
    environment: str,
    terminal: bool,
    coloured: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", environment)
    monkeypatch.setattr("kubetide.cli.offline.reports.sys.stdout.isatty", lambda: terminal)
    line = Line(label="usage", x=np.arange(3.0), y=np.arange(3.0))
    chart = Chart(title="t", x=Axis(unit=Unit.NUMBER), y=Axis(unit=Unit.NUMBER), layers=[line])
    show_charts([Section(heading="h", charts=[chart])])
    assert ("\x1b[" in capsys.readouterr().out) == coloured
