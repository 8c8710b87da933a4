"""Rows from a real Prometheus, against an independent computation on the numbers that were written into it."""

import shutil
import subprocess
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest

from kubetide.clock import SystemClock
from kubetide.recommend import Container, Options, Row, Sizes, Workload, rows
from kubetide.recommend.prometheus_usage import SAMPLES_PER_QUERY, PrometheusUsage, Question
from kubetide.telemetry import Telemetry
from kubetide.vpa.recommender.prometheus import PrometheusHttp
from kubetide.vpa.recommender.settings import RecommenderSettings
from prom.test_prometheus_history import free_port, prometheus

MIB = 2**20
SCRAPE, SLOT, DAYS = 60, 300, 3
SLOTS = DAYS * 86400 // SLOT
NAMES = ("web", "api")
NIGHTLY = 'namespace="batch",pod="nightly-29916126-x2k7z",container="main"'
"""It ran once, at the beginning."""


class Ending(SystemClock):
    """Real seconds, but the date at which the samples end."""

    def __init__(self, end: int) -> None:
        self._end = end

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._end, UTC)


def written(folder: Path, end: int, cpu: np.ndarray, memory: np.ndarray) -> None:
    """Fill a store; every container is scraped twice, and the second scraper sees a little less memory."""
    begin = end - SLOTS * SLOT
    lines = ["# TYPE container_cpu_usage_seconds counter"]
    once = range(0, 1800, SCRAPE)
    lines += [f"container_cpu_usage_seconds_total{{{NIGHTLY}}} {at * 0.2:.1f} {begin + at}" for at in once]
    for number, name in enumerate(NAMES):
        for job in ("a", "b"):
            who = f'namespace="shop",pod="{name}-0",container="main",job="{job}"'
            total = 0.0
            for slot in range(SLOTS):
                for part in range(SLOT // SCRAPE):
                    at = begin + slot * SLOT + part * SCRAPE
                    lines.append(f"container_cpu_usage_seconds_total{{{who}}} {total:.6f} {at}")
                    total += cpu[number, slot] * SCRAPE
            lines.append(f"container_cpu_usage_seconds_total{{{who}}} {total:.6f} {end}")
    lines.append("# TYPE container_memory_working_set_bytes gauge")
    lines += [f"container_memory_working_set_bytes{{{NIGHTLY}}} {77 * MIB} {begin + at}" for at in once]
    for number, name in enumerate(NAMES):
        for job in ("a", "b"):
            who = f'namespace="shop",pod="{name}-0",container="main",job="{job}"'
            for slot in range(SLOTS):
                value = int(memory[number, slot]) - (MIB if job == "b" else 0)
                lines.append(f"container_memory_working_set_bytes{{{who}}} {value} {begin + slot * SLOT + SLOT // 2}")
            lines.append(f"container_memory_working_set_bytes{{{who}}} {MIB} {end}")
    for metric, share in (("container_cpu_cfs_periods", 1.0), ("container_cpu_cfs_throttled_periods", 0.25)):
        lines.append(f"# TYPE {metric} counter")
        for at in range(end - 86400, end + 1, SCRAPE):
            who = 'namespace="shop",pod="web-0",container="main"'
            lines.append(f"{metric}_total{{{who}}} {(at - end + 86400) * 10 * share} {at}")
    (folder / "past.om").write_text("\n".join([*lines, "# EOF\n"]))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", "--max-block-duration=100h"]
    subprocess.run([*command, str(folder / "past.om"), str(folder / "data")], check=True, stdout=subprocess.DEVNULL)


async def test_rows_are_what_the_samples_say(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("no Prometheus: install the Debian package prometheus")
    rng = np.random.default_rng(3)
    cpu = rng.uniform(0.05, 0.5, (2, SLOTS))
    memory = rng.integers(50, 500, (2, SLOTS)) * MIB
    end = int(time.time()) // 3600 * 3600 - 3600
    written(tmp_path, end, cpu, memory)
    workloads = [
        Workload(
            api_version="apps/v1",
            kind="StatefulSet",
            namespace="shop",
            name=name,
            replicas=1,
            containers=(Container("main", requests=Sizes(1000, 1024 * MIB)),),
        )
        for name in NAMES
    ]
    workloads.append(replace(workloads[0], kind="CronJob", api_version="batch/v1", namespace="batch", name="nightly"))
    async with prometheus(tmp_path, free_port()) as url:
        settings = msgspec.structs.replace(RecommenderSettings(), prometheus_address=url)

        async def asked(budget: int = 10**6, per_query: int = SAMPLES_PER_QUERY) -> dict[str, Row]:
            source = PrometheusUsage(PrometheusHttp(settings, Telemetry(), SystemClock()), Ending(end), Random(1))
            question = Question(history=timedelta(days=DAYS), budget=budget, per_query=per_query)
            usage = await source.load(workloads, question)
            requests.append(source.cost.requests)
            return {row.name: row for row in rows(workloads, usage, Options(estimator="percentile=95"))}

        requests: list[int] = []
        whole, folded = await asked(), await asked(budget=5 * 2 * DAYS)
        assert await asked(per_query=480) == whole  # pod by pod, in two slices of CPU and one of memory
        # Series are counted three times; the pods of shop are listed, and each part has OOM kills and throttling.
        assert requests[-1] == 3 + 1 + 3 * (2 + 1 + 1 + 1)
    for number, name in enumerate(NAMES):
        row, bound = whole[name].recommended, folded[name].recommended
        assert row is not None
        assert bound is not None
        p95 = np.sort(cpu[number])[int(np.ceil(0.95 * SLOTS)) - 1] * 1000
        assert row.cpu_request_millis == pytest.approx(p95, rel=0.02)
        assert row.memory_request_bytes == bound.memory_request_bytes == memory[number].max()
        assert whole[name].evidence.samples >= SLOTS - 2
        daily = [np.quantile(cpu[number, day * 288 : (day + 1) * 288], 0.95) * 1000 for day in range(DAYS)]
        assert bound.cpu_request_millis == pytest.approx(max(daily), rel=0.02)
        assert (bound.cpu_request_millis or 0) >= (row.cpu_request_millis or 0) * 0.99  # Prometheus interpolates
        assert "an upper bound" not in whole[name].reason
    nightly = whole["nightly"].recommended
    assert nightly is not None
    assert (nightly.cpu_request_millis, nightly.memory_request_bytes) == (200, 77 * MIB)
    assert whole["web"].evidence.throttled == pytest.approx(0.25, abs=0.01)
    assert whole["api"].evidence.throttled is None
