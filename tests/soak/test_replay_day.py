"""A day of 30 workloads, live and again from its recording."""

from datetime import timedelta
from pathlib import Path

import pytest

from kubetide.recording.reader import Recording
from kubetide.replay.audit import audit_autoscaler, audit_recommender
from simulated.recording import record

pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")


def test_a_day_of_thirty_workloads_comes_out_the_same(tmp_path: Path) -> None:
    path, loop = tmp_path / "day.tide", timedelta(minutes=5)
    record(path, workloads=30, duration=timedelta(days=1), resolution=timedelta(minutes=1), loop=loop)
    recording = Recording(path)
    sizes = audit_recommender(recording, interval=loop)
    assert sizes.made > 15 * 280
    assert sizes.differences == []
    counts = audit_autoscaler(recording)
    assert counts.made > 15 * 1400
    assert (counts.left_out, counts.differences) == (0, [])
