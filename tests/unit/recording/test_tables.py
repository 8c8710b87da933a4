"""Imports of CSV and packs: honest gaps, counted leftovers, one line for what is wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kubetide.cli.main import EXIT_USAGE, run_cli
from kubetide.recording.core.layout import rates
from kubetide.recording.reader import Recording

pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")

T0 = 1_700_006_400


def imported(folder: Path, text: str, *more: str) -> Recording:
    source = folder / "usage.csv"
    source.write_text(text)
    assert run_cli(["record", "--from-csv", str(source), "-o", str(folder / "a.tide"), *more]) == 0
    return Recording(folder / "a.tide")


def test_csv_with_sizes_gaps_and_duplicates(tmp_path: Path) -> None:
    recording = imported(
        tmp_path,
        "time,workload,container,cpu_cores,memory_bytes,memory_request_bytes\n"
        f"{T0},web,app,0.25,1000,5000\n"
        f"{T0 + 300},web,app,0.5,,5000\n"
        f"{T0 + 300},web,app,0.75,3000,5000\n"
        f"{T0 + 1200},web,app,,4000,6000\n",
    )
    (grid,) = recording.grids(0)
    assert grid.cpu[:2, 0].tolist() == [0.25, 0.75]
    assert np.isnan(grid.cpu[2:, 0]).all()
    assert np.isnan(grid.memory[2:4, 0]).all()
    assert recording.rows("sizes")["memory_request_bytes"] == [5000, 6000]
    assert recording.manifest.notes == {"duplicate samples": 1}


def test_a_csv_of_a_spreadsheet_begins_with_a_mark(tmp_path: Path) -> None:
    recording = imported(tmp_path, f"\ufefftime,container,cpu_cores\n{T0},app,0.25\n")
    assert recording.containers.container == ("app",)
    assert recording.manifest.period_seconds == 900, "five minutes are no day"


def test_samples_that_share_an_interval_are_counted(tmp_path: Path) -> None:
    text = "".join(f"{T0 + at},app,{at / 100}\n" for at in (0, 60, 240, 300, 700, 700))
    recording = imported(tmp_path, f"time,container,cpu_cores\n{text}")
    assert recording.manifest.notes == {"duplicate samples": 1, "samples that share an interval with a later one": 2}
    (grid,) = recording.grids(0)
    assert grid.cpu[:, 0].tolist() == [2.4, 3.0, 7.0]


def test_a_counter_that_goes_back_makes_a_gap(tmp_path: Path) -> None:
    rows = [(0, 10.0), (300, 40.0), (600, 5.0), (900, 35.0)]
    text = "".join(f"{T0 + at},app,{value}\n" for at, value in rows)
    recording = imported(tmp_path, f"time,container,cpu_seconds_total\n{text}")
    (grid,) = recording.grids(0)
    assert np.isnan(grid.cpu[:, 0]).tolist() == [True, False, True, False]
    assert grid.cpu[1, 0] == grid.cpu[3, 0] == pytest.approx(0.1)
    assert recording.manifest.notes == {"counters that went back": 1}


def test_rates_are_made_only_of_neighbours_that_grow() -> None:
    times = np.array([0, 10, 10, 20, 30]) * 1_000_000
    at, found = rates(times, np.array([0.0, 5.0, 6.0, 7.0, 1.0]))
    assert (at // 1_000_000).tolist() == [10, 20]
    assert found.tolist() == [0.5, pytest.approx(0.1)]


def test_names_are_hidden(tmp_path: Path) -> None:
    text = f"time,namespace,workload,container,cpu_cores\n{T0},secret-ns,secret-app,secret-box,1\n"
    hidden = imported(tmp_path, text, "--anonymize", "--key", "k").containers
    again = imported(tmp_path, text, "--anonymize", "--key", "k").containers
    other = imported(tmp_path, text, "--anonymize").containers
    assert hidden.workload == again.workload != other.workload
    assert b"secret" not in (tmp_path / "a.tide").read_bytes()
    assert hidden.workload[0].startswith("x-")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "needs the columns time and container", id="empty"),
        pytest.param("time,container\n", "has no rows", id="only-a-header"),
        pytest.param("time,container,cpu\n", "unknown columns cpu", id="unknown-column"),
        pytest.param("time,container,cpu_cores\nnoon,app,1\n", ":2 time: 'noon' is neither", id="no-time"),
        pytest.param("time,container,cpu_cores\n0,app,-1\n", ":2 cpu_cores: -1 is negative", id="negative"),
        pytest.param("time,container,cpu_cores\n0,app,one\n", ":2 cpu_cores: 'one' is not a number", id="no-number"),
        pytest.param("time,container,cpu_cores\nnan,app,1\n", ":2 time: 'nan' is not in the years", id="time-nan"),
        pytest.param("time,container,cpu_cores\ninf,app,1\n", ":2 time: 'inf' is not in the years", id="time-inf"),
        pytest.param("time,container,cpu_cores\n-5,app,1\n", ":2 time: '-5' is not in the years", id="before-1970"),
        pytest.param("time,container,cpu_cores\n1e13,app,1\n", ":2 time: '1e13' is not in", id="after-9999"),
        pytest.param("time,container,cpu_cores\n0,app,1\n1.7e9,app,1\n", "goes from 1970-01-01 to 2023", id="wide"),
        pytest.param("time,container,memory_bytes\n0,app,1e30\n", ":2 memory_bytes: 1e30 is above", id="bytes"),
        pytest.param("time,container,cpu_cores\n0,app,1e6\n", ":2 cpu_cores: 1e6 is above 2147", id="cores"),
        pytest.param("time,container,memory_request_bytes\n0,app,1e30\n", ":2 memory_request_bytes", id="request"),
        pytest.param("time,container,throttled\n0,app,2\n", ":2 throttled: 2 is above 1", id="share"),
        pytest.param("time,container,cpu_cores\n0,,1\n", ":2 container: is empty", id="no-name"),
        pytest.param("time,container,container\n0,a,b\n", "header: has a column twice", id="twice"),
        pytest.param("time,container,cpu_cores\n0,app\n", ":2: has another number of fields", id="cut-off"),
    ],
)
def test_what_is_wrong_with_a_csv_is_one_line(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "usage.csv"
    source.write_text(text)
    assert run_cli(["record", "--from-csv", str(source), "-o", str(tmp_path / "a.tide")]) == EXIT_USAGE
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "a.tide").exists()


def pack(folder: Path, **changes: Any) -> Path:
    about = {
        "name": "web", "kind": "usage", "file": "web.npz", "entities": 2, "interval_seconds": 300, "cpu_unit": 0.001,
        "memory_unit": 1024, "period_seconds": 86400, "warmup_periods": 1,
    }  # fmt: skip
    arrays: dict[str, Any] = {
        "names": np.array(["a", "b"]),
        "starts": np.array([T0, T0 + 300]),
        "cpu": np.array([[100, -1, 300], [400, 500, -1]], dtype=np.int32),
        "memory": np.array([[10, 20, -1], [40, 50, 60]], dtype=np.int32),
        "memory_provisioned": np.array([100, 200], dtype=np.int32),
    }
    (folder / "index.json").write_text(json.dumps({"format": 1, "datasets": [about | changes]}))
    np.savez(folder / "web.npz", **arrays)
    return folder


def test_a_pack_is_read_with_its_gaps(tmp_path: Path) -> None:
    target = tmp_path / "a.tide"
    assert run_cli(["record", "--from-pack", str(pack(tmp_path)), "--dataset", "web", "-o", str(target)]) == 0
    recording = Recording(target)
    (grid,) = recording.grids(0)
    assert grid.cpu[:, 0][[0, 2]].tolist() == [0.1, pytest.approx(0.3)]
    assert np.isnan(grid.cpu[[1, 3], 0]).all()
    assert grid.memory[:, 1][1:].tolist() == [40 * 1024, 50 * 1024, 60 * 1024]
    assert recording.rows("sizes")["memory_request_bytes"] == [100 * 1024, 200 * 1024]
    assert recording.manifest.warmup_periods == 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(lambda folder: (folder / "index.json").write_text("{"), "not the index of a pack", id="index"),
        pytest.param(lambda folder: (folder / "web.npz").write_bytes(b"PK\x03\x04no"), "was cut off", id="cut-off"),
        pytest.param(lambda folder: (folder / "web.npz").unlink(), "was cut off", id="missing"),
    ],
)
def test_what_is_wrong_with_a_pack_is_one_line(
    tmp_path: Path, spoil: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(pack(tmp_path))
    command = ["record", "--from-pack", str(tmp_path), "--dataset", "web", "-o", str(tmp_path / "a.tide")]
    assert run_cli(command) == EXIT_USAGE
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
