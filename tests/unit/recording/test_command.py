"""`kubetide record`: what goes together, what it is told of Prometheus, and what it chooses for replays."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubetide.cli.main import EXIT_USAGE, run_cli
from kubetide.recording.core.layout import period_of
from kubetide.recording.reader import Recording
from kubetide.vpa.recommender.prometheus import PrometheusHttp

pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")

PROMETHEUS = ["--prometheus", "http://127.0.0.1:1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*PROMETHEUS, "--audit"], "--audit goes with --live."),
        (["--live", "1h", "--agent", "a:1"], "--agent goes with --audit."),
        (["--live", "1h", "--load-query", "up"], "--load-query goes with --prometheus."),
        ([*PROMETHEUS, "--load-metric", "x"], "--load-metric goes with --live or --load-query."),
        (["--from-csv", "a.csv", "-n", "shop"], "--namespace goes with --live or --prometheus."),
        (["--from-csv", "a.csv", "--key", "k"], "--key goes with --anonymize."),
        (["--from-csv", "a.csv", "--objects"], "--objects goes with --prometheus."),
        (["--live", "1h", "--audit", "--agent", "a:1", "--anonymize"], "--agent does not go with --anonymize."),
        (["--prometheus", "prometheus:9090"], "'prometheus:9090' is not a URL"),
        ([*PROMETHEUS, "--prometheus-header", "tenant"], "--prometheus-header: 'tenant' is not NAME=VALUE"),
    ],
)
def test_what_has_no_effect_is_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["record", *arguments, "-o", str(tmp_path / "a.tide")]) == EXIT_USAGE
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_prometheus_is_asked_as_the_options_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    async def post(self: PrometheusHttp, path: str, form: Mapping[str, str]) -> bytes:
        asked.append((self._settings.prometheus_bearer_token, self._extra.get("X-Scope-OrgID", "")))
        labels = {"namespace": "shop", "pod": "web-1", "container": "app", "workload": "web"}
        values = [[float(form["start"]), "1"], [float(form["end"]), "2"]]
        data = {"resultType": "matrix", "result": [{"metric": labels, "values": values}]}
        return msgspec.json.encode({"status": "success", "data": data})

    monkeypatch.setattr(PrometheusHttp, "post", post)
    target = tmp_path / "a.tide"
    who = ["--prometheus-token", "secret", "--prometheus-header", "X-Scope-OrgID=team"]
    load = ["--load-query", "sum by (workload) (x)", "--load-metric", "demand_cores"]
    assert run_cli(["record", *PROMETHEUS, "--since", "6h", *who, *load, "-o", str(target)]) == 0
    assert asked
    assert all(each == ("secret", "team") for each in asked)
    recording = Recording(target)
    assert set(recording.rows("load")["metric"]) == {"demand_cores"}
    assert recording.manifest.period_seconds == 3600, "six hours are no day"
    assert b"secret" not in target.read_bytes()


@pytest.mark.parametrize(
    ("hours", "interval", "period"),
    [
        (720, 300, 86400), (72, 300, 86400), (71, 300, 3600), (1, 15, 900), (0.7, 15, 60), (0.01, 15, 60),
        (0.5, 300, 900), (1, 1200, 3600), (720, 7, 86400),
    ],
)  # fmt: skip
def test_a_period_fits_three_times(hours: float, interval: int, period: int) -> None:
    assert period_of(hours * 3600, interval) == period


def test_less_than_one_interval_is_refused(tmp_path: Path, capsys: Any) -> None:
    assert run_cli(["record", *PROMETHEUS, "--since", "1m", "-o", str(tmp_path / "a.tide")]) == EXIT_USAGE
    assert "--since: is shorter than one interval of 300 s" in capsys.readouterr().err


def test_names_with_a_slash_are_refused_with_their_line(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "a.csv").write_text("time,container,workload,cpu_cores\n0,app,web,1\n300,app,team/web,1\n")
    assert run_cli(["record", "--from-csv", str(tmp_path / "a.csv"), "-o", str(tmp_path / "a.tide")]) == EXIT_USAGE
    assert "a.csv:3 workload: 'team/web' has a slash; no name may" in capsys.readouterr().err
