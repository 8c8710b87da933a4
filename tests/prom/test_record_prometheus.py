"""A recording from a real Prometheus on loopback, by the command line."""

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from kubetide.cli.main import run_cli
from kubetide.recording.reader import Recording
from prom.test_prometheus_history import free_port, prometheus

pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")

STEP, HOURS, KILLED = 300, 30, 7200


def written(directory: Path, end: int) -> None:
    """Fill a store: a counter that is reset in the middle, a gauge with a hole of two hours, sizes and owners."""
    begin = end - HOURS * 3600
    who = 'namespace="shop",pod="web-1",container="app"'
    lines = ["# TYPE container_cpu_usage_seconds counter"]
    total = 0.0
    for number, at in enumerate(range(begin, end + 1, 60)):
        total = 0.0 if number == HOURS * 30 else total + 0.25 * 60
        lines.append(f"container_cpu_usage_seconds_total{{{who}}} {total} {at}")
    lines.append("# TYPE container_memory_working_set_bytes gauge")
    lines += [
        f"container_memory_working_set_bytes{{{who}}} {at - begin + 1000} {at}"
        for at in range(begin, end + 1, 60)
        if not begin + 36000 <= at < begin + 43200
    ]
    lines.append("# TYPE kube_pod_owner gauge")
    lines += [
        f'kube_pod_owner{{namespace="shop",pod="web-1",owner_kind="StatefulSet",owner_name="web"}} 1 {at}'
        for at in range(begin, end + 1, 60)
    ]
    lines.append("# TYPE kube_pod_container_resource_requests gauge")
    lines += [
        f'kube_pod_container_resource_requests{{{who},resource="memory"}} {2**20 * (1 + (at > end - 36000))} {at}'
        for at in range(begin, end + 1, 60)
    ]
    lines.append("# TYPE kube_pod_container_status_restarts counter")
    lines += [
        f"kube_pod_container_status_restarts_total{{{who}}} {int(at >= end - KILLED)} {at}"
        for at in range(begin, end + 1, 60)
    ]
    lines.append("# TYPE kube_pod_container_status_last_terminated_reason gauge")
    lines += [
        f'kube_pod_container_status_last_terminated_reason{{{who},reason="OOMKilled"}} 1 {at}'
        for at in range(end - KILLED, end + 1, 60)
    ]
    (directory / "past.om").write_text("\n".join([*lines, "# EOF\n"]))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q"]
    subprocess.run(
        [*command, str(directory / "past.om"), str(directory / "data")], check=True, stdout=subprocess.DEVNULL
    )


async def test_the_past_of_a_real_prometheus(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("no Prometheus: install the Debian package prometheus")
    written(tmp_path, int(time.time()) // 60 * 60)
    target = tmp_path / "my.tide"
    async with prometheus(tmp_path, free_port()) as url:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kubetide", "record", "--prometheus", url),
            *("--since", "29h", "-o", str(target)),
        )
        async with asyncio.timeout(120):
            assert await process.wait() == 0
    recording = Recording(target)
    assert (recording.containers.kind, recording.containers.workload) == (("StatefulSet",), ("web",))
    cpu = np.concatenate([grid.cpu[:, 0] for grid in recording.grids(0)])
    memory = np.concatenate([grid.memory[:, 0] for grid in recording.grids(0)])
    known = cpu[~np.isnan(cpu)]
    assert known.size > 330
    # The reset loses at most what was counted since the last scrape, and never makes a spike.
    assert (np.abs(known - 0.25) < 0.06).all()
    hole = np.isnan(memory)
    # Prometheus repeats the last value for five minutes; after that there is nothing.
    assert 20 <= hole.sum() <= 26
    assert recording.rows("sizes")["memory_request_bytes"] == [2**20, 2**21]
    kills = recording.rows("oom_kills")
    assert len(kills["time"]) == 1
    assert kills["memory_bytes"] == [None], "Prometheus does not know what was requested"
    # Nobody may stumble over what is not known.
    assert run_cli(["replay", str(target), "--policy", "vpa", "--policy", "current", "--workers", "1"]) == 0
