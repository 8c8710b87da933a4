"""The history on disk: restart, damage, retention, a kill in the middle of writing."""

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from kubetide.node.series import kinds
from kubetide.node.series.history import History, restored, rounded
from kubetide.node.series.ring import Ring, series_key

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


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "samples.sqlite"
    path.write_bytes(b"this is no database" * 100)
    history = History(path)
    history.append("node", 1.0, START, [(NODE, 1.0)])
    assert len(list(history.batches(0))) == 1
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
from kubetide.node.series.history import History
from kubetide.node.series import kinds
from kubetide.node.series.ring import series_key
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


def test_a_full_disk_loses_the_past_and_not_the_agent(tmp_path: Path) -> None:
    history = History(tmp_path / "samples.sqlite")
    history._database.execute("PRAGMA max_page_count = 12")
    for second in range(300):
        history.append("pods", 1.0, START + second * 1000, [(pod(str(n)), 1.0) for n in range(100)])
    assert history.lost > 0
    history.trim(START)
    history.close()
