"""The history on disk: restart, damage, retention, a kill in the middle of writing."""

import os
import signal
import sqlite3
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Ring, series_key
from kubetide.node.series_history import MOST_SET_ASIDE, History, restored, rounded

NODE = series_key(kinds.NODE_CPU)
START = 1_700_000_000_000


def pod(uid: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return series_key(kinds.POD_CPU, {kinds.POD_UID: uid})


def test_a_restart_brings_the_window_back(tmp_path: Path) -> None:
    history = History(tmp_path / "samples.sqlite")
    for second in range(200):
        history.append("node", 1.0, START + second * 1000, [(NODE, 1.0 + second / 7)])
    history.close()
    ring = Ring(retention_seconds=120)
    again = History(tmp_path / "samples.sqlite")
    assert again.restore(ring, START + 200_000) == 120
    points = ring.query(kinds.NODE_CPU, None, START, START + 200_000)
    exact = np.array([1.0 + second / 7 for second in range(80, 200)])
    assert np.max(np.abs(points.values / exact - 1)) < 1.3e-4
    again.close()


def test_the_minute_that_is_running_is_exact(tmp_path: Path) -> None:
    history = History(tmp_path / "samples.sqlite")
    history.append("node", 1.0, START, [(NODE, 0.123456789)])
    history.close()
    ring = Ring()
    again = History(tmp_path / "samples.sqlite")
    again.restore(ring, START + 1000)
    assert ring.query(kinds.NODE_CPU, None, START, START).values.tolist() == [0.123456789]
    again.close()


def test_what_is_too_old_goes_with_its_series(tmp_path: Path) -> None:
    history = History(tmp_path / "samples.sqlite", retention=timedelta(minutes=5))
    for minute in range(30):
        at = START + minute * 60_000
        history.append("pods", 60.0, at, [(pod(f"p{minute}"), 1.0)])
        history.trim(at)
    found = list(history.batches(0))
    assert len(found) <= 7
    assert history._database.execute("SELECT count(*) FROM series").fetchone()[0] <= 8
    history.close()


def test_the_file_stays_below_its_size(tmp_path: Path) -> None:
    history = History(tmp_path / "samples.sqlite", max_bytes=300_000)
    random = np.random.default_rng(1)
    for tick in range(400):
        at = START + tick * 10_000
        history.append("pods", 10.0, at, [(pod(str(n)), float(random.random())) for n in range(200)])
    history.trim(START + 400 * 10_000)
    assert history.size <= 300_000
    history.close()


GARBAGE = b"this is no database" * 100


def filled(path: Path) -> None:
    history = History(path)
    for second in range(600):
        history.append("pods", 1.0, START + second * 1000, [(pod(str(n)), float(n)) for n in range(20)])
    history.close()


def kept(history: History) -> int:
    return len(list(history.batches(0)))


def test_a_file_that_is_no_database_is_renamed_and_a_new_one_begins(tmp_path: Path) -> None:
    path = tmp_path / "samples.sqlite"
    path.write_bytes(GARBAGE)
    history = History(path)
    history.append("node", 1.0, START, [(NODE, 1.0)])
    assert kept(history) == 1
    assert (tmp_path / "samples.sqlite.corrupt-1").read_bytes() == GARBAGE
    assert (history.problem, history.lost) == ("", 0)
    history.close()


def test_a_file_that_turns_corrupt_while_it_is_used_is_renamed_with_its_log(tmp_path: Path) -> None:
    path = tmp_path / "samples.sqlite"
    filled(path)
    history = History(path)
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    for second in range(5):
        history.append("pods", 1.0, START + (601 + second) * 1000, [(pod(f"new{second}"), 1.0)])
    assert (tmp_path / "samples.sqlite.corrupt-1").stat().st_size == size
    assert history.problem == ""
    assert 0 < kept(history) <= 5
    history.close()


def test_a_disk_that_damages_every_file_is_not_filled_with_them(tmp_path: Path) -> None:
    path = tmp_path / "samples.sqlite"
    for _ in range(MOST_SET_ASIDE):
        path.write_bytes(GARBAGE)
        History(path).close()
        path.unlink()
    path.write_bytes(GARBAGE)
    history = History(path)
    assert "3 corrupt files already lie beside it" in history.problem
    history.append("node", 1.0, START, [(NODE, 1.0)])
    assert history.lost == 1
    assert path.read_bytes() == GARBAGE
    history.close()


def test_a_locked_file_is_left_alone_and_used_again_once_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "samples.sqlite"
    filled(path)
    before = path.read_bytes()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    history = History(path)
    history.append("node", 1.0, START + 700_000, [(NODE, 1.0)])
    assert "locked" in history.problem
    assert history.lost == 1
    other.execute("COMMIT")
    other.close()
    history.append("node", 1.0, START + 701_000, [(NODE, 1.0)])
    assert history.lost == 2  # the file is left alone for a while
    history.append("node", 1.0, START + 720_000, [(NODE, 1.0)])
    assert (history.problem, history.lost) == ("", 2)
    assert kept(history) == 601
    assert [one.name for one in tmp_path.iterdir() if "corrupt" in one.name] == []
    assert path.read_bytes()[:16] == before[:16]
    history.close()


@pytest.mark.parametrize("place", ["file/samples.sqlite", "directory"])
def test_a_place_that_cannot_be_used_leaves_the_agent_without_history(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("not a directory")
    (tmp_path / "directory").mkdir()
    history = History(tmp_path / place)
    assert history.problem
    history.append("node", 1.0, START, [(NODE, 1.0)])
    history.trim(START)
    assert history.restore(Ring(), START) == 0
    assert history.lost == 1
    history.close()
    assert (tmp_path / "file").read_text() == "not a directory"


def test_a_full_disk_is_said_once_loses_no_file_and_is_over_when_there_is_space(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "samples.sqlite"
    filled(path)
    history = History(path)
    pages = history._database.execute("PRAGMA page_count").fetchone()[0]
    history._database.execute(f"PRAGMA max_page_count = {pages}")
    for second in range(600, 900):
        history.append("pods", 1.0, START + second * 1000, [(pod(f"new{second}-{n}"), 1.0) for n in range(50)])
    assert "full" in history.problem
    assert history.lost > 200
    kept_before = kept(history)
    history._database.execute("PRAGMA max_page_count = 1000000")
    history.append("node", 1.0, START + 2_000_000, [(NODE, 1.0)])
    assert history.problem == ""
    assert kept(history) == kept_before + 1
    assert len([one for one in caplog.records if "not kept" in one.getMessage()]) == 1
    assert list(tmp_path.glob("*corrupt*")) == []
    history.close()


def test_special_values_survive_the_rounding() -> None:
    values = np.array([0.0, -1.5, 1e-300, 1e300, np.inf, 2.0**40 + 1])
    back = restored(rounded(values))
    assert back[0] == 0.0
    assert np.isinf(back[4])
    assert np.allclose(back[[1, 2, 3, 5]], values[[1, 2, 3, 5]], rtol=1.3e-4)


_WRITER = """
import sys
from pathlib import Path
from kubetide.node.series_history import History
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import series_key
history = History(Path(sys.argv[1]))
node = series_key(kinds.NODE_CPU)
second = 0
while True:
    history.append("node", 1.0, 1_700_000_000_000 + second * 1000, [(node, float(second))])
    second += 1
    sys.stdout.write(f"{second}\\n")
    sys.stdout.flush()
"""


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "samples.sqlite"
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = 0
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged >= 300:
                break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    ring = Ring(retention_seconds=10_000)
    history = History(path)
    end = START + 9_000_000
    assert history.restore(ring, end) >= acknowledged
    points = ring.query(kinds.NODE_CPU, None, 0, end)
    assert points.values[:acknowledged].tolist() == pytest.approx(list(range(acknowledged)), rel=1.3e-4)
    history.close()
