"""What `kubetide recommend` costs Prometheus, beside one percentile and one maximum per container as krr asks for.

    python benchmarks/recommend_prometheus.py [--workloads 500] [--days 14]

Fills a real Prometheus (needs `prometheus` and `promtool`) with generated usage of one pod each, starts it afresh for
each way of asking, and prints time, requests, and of the Prometheus process CPU seconds, peak memory that it allocated
("heap") and peak resident memory, in which the pages of its program and of the blocks that both ways read are counted
too. The rows are checked against the percentile of the generated numbers.
"""

import argparse
import asyncio
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from socket import socket

import aiohttp
import msgspec
import numpy as np

from kubetide.clock import SystemClock
from kubetide.recommend import Container, Options, Workload, rows
from kubetide.recommend.prometheus_usage import SAMPLES_PER_QUERY, PrometheusUsage, Question
from kubetide.telemetry import Telemetry
from kubetide.vpa.recommender.prometheus import PrometheusHttp
from kubetide.vpa.recommender.settings import RecommenderSettings

SLOT, SCRAPE = 300, 150
END = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
KRR_STEP = "75s"
KRR_WORKERS = 10


class FixedClock(SystemClock):
    """Real seconds, but always the date at which the samples end."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(END, UTC)


def generate(count: int, days: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cores and bytes of each workload in each slot."""
    rng = np.random.default_rng(7)
    slots = days * 86400 // SLOT + 2
    return rng.uniform(0.05, 0.5, (count, slots)), rng.integers(50, 500, (count, slots)) * 2**20


def fill(folder: Path, cpu: np.ndarray, memory: np.ndarray) -> None:
    """Write blocks of samples."""
    first = END - (cpu.shape[1] - 1) * SLOT
    each = SLOT // SCRAPE
    with (folder / "past.om").open("w") as out:
        for metric, kind in (
            ("container_cpu_usage_seconds", "counter"),
            ("container_memory_working_set_bytes", "gauge"),
        ):
            out.write(f"# TYPE {metric} {kind}\n")
            for i in range(len(cpu)):
                labels = f'{{namespace="shop",pod="web-{i}-0",container="main"}}'
                if kind == "counter":
                    values = np.concatenate(([0.0], np.cumsum(np.repeat(cpu[i], each) * SCRAPE)))[:-1]
                    head = f"{metric}_total{labels}"
                    lines = [f"{head} {v:.4f} {first + k * SCRAPE}\n" for k, v in enumerate(values.tolist())]
                else:
                    held = np.repeat(memory[i], each).tolist()
                    lines = [f"{metric}{labels} {v} {first + k * SCRAPE}\n" for k, v in enumerate(held)]
                out.writelines(lines[: (cpu.shape[1] - 1) * each + 1])
        out.write("# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=400h", "-q"]
    subprocess.run([*command, str(folder / "past.om"), str(folder / "data")], check=True, stdout=subprocess.DEVNULL)
    (folder / "past.om").unlink()


async def measured(
    folder: Path, ask: Callable[[str], Awaitable[tuple[int, int]]]
) -> tuple[float, int, int, float, float, float]:
    """Start Prometheus, ask, and return seconds, requests, samples, CPU seconds, and peak MiB of heap and in all."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "prometheus.yml").write_text("{}")
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        *(f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"),
        *("--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"),
    )
    try:
        url = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as session:
            for _ in range(600):
                try:
                    async with session.get(f"{url}/-/ready") as answer:
                        if answer.status == 200:
                            break
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)
        with Peak(process.pid) as heap:
            before, began = cpu_seconds(process.pid), time.perf_counter()
            requests, samples = await ask(url)
            seconds = time.perf_counter() - began
        used = cpu_seconds(process.pid) - before
        return seconds, requests, samples, used, heap.mib, memory_mib(process.pid, "VmHWM")
    finally:
        process.terminate()
        await process.wait()


class Peak:
    """Watches how much memory a process has allocated; the kernel keeps no peak of that."""

    def __init__(self, pid: int) -> None:
        self.mib = 0.0
        self._pid, self._end = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.005):
            self.mib = max(self.mib, memory_mib(self._pid, "RssAnon"))


def memory_mib(pid: int, field: str) -> float:
    """Return a field of the status of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(field)).split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def idle(_: str) -> tuple[int, int]:
    """Ask for nothing."""
    await asyncio.sleep(2)
    return 0, 0


async def one_by_one(url: str, count: int, days: int) -> tuple[int, int]:
    """Ask for one container after the other, ten at a time."""
    slots = asyncio.Semaphore(KRR_WORKERS)
    sizes = [0]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:

        async def ask(query: str) -> None:
            async with slots, session.post(f"{url}/api/v1/query", data={"query": query, "time": str(END)}) as answer:
                assert answer.status == 200, await answer.text()
                sizes[0] += len(await answer.read())

        async with asyncio.TaskGroup() as group:
            for i in range(count):
                chosen = f'{{namespace="shop",pod=~"web-{i}-0",container="main"}}'
                rate = f"max(rate(container_cpu_usage_seconds_total{chosen}[5m])) by (container, pod)"
                peak = f"max(container_memory_working_set_bytes{chosen}) by (container, pod)"
                group.create_task(ask(f"quantile_over_time(0.95, {rate}[{days}d:{KRR_STEP}])"))
                group.create_task(ask(f"max_over_time({peak}[{days}d:{KRR_STEP}])"))
    return 2 * count, 0


def check(workloads: list[Workload], usage: object, cpu: np.ndarray, memory: np.ndarray) -> float:
    """Return the largest relative difference between the rows and the generated numbers."""
    found = rows(workloads, usage, Options(estimator="percentile=95"))  # type: ignore[arg-type]
    worst = 0.0
    for row in found:
        i = int(row.name.removeprefix("web-"))
        assert row.recommended is not None
        # The sample at a time covers the slot before it.
        kept = np.sort(cpu[i, :-1][-row.evidence.samples :])
        exact = kept[int(np.ceil(0.95 * kept.size)) - 1] * 1000
        worst = max(worst, abs((row.recommended.cpu_request_millis or 0) - exact) / exact)
        assert row.recommended.memory_request_bytes == memory[i, 1 - row.evidence.samples :].max(), row
    return worst


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=500)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--per-query", type=int, nargs="+", default=[SAMPLES_PER_QUERY], help="Samples per query.")
    arguments = parser.parse_args()
    count, days = arguments.workloads, arguments.days
    cpu, memory = generate(count, days)
    workloads = [
        Workload(
            api_version="apps/v1",
            kind="StatefulSet",
            namespace="shop",
            name=f"web-{i}",
            replicas=1,
            containers=(Container("main"),),
        )
        for i in range(count)
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await asyncio.to_thread(fill, folder, cpu, memory)
        found: dict[str, object] = {}

        async def ours(url: str, per_query: int) -> tuple[int, int]:
            settings = msgspec.structs.replace(RecommenderSettings(), prometheus_address=url)
            source = PrometheusUsage(PrometheusHttp(settings, Telemetry(), SystemClock()), FixedClock(), Random(1))
            found["usage"] = await source.load(workloads, Question(history=timedelta(days=days), per_query=per_query))
            return source.cost.requests, source.cost.samples

        print(f"{count} workloads, {days} days, a sample every {SCRAPE} s")
        print(f"{'':24} {'seconds':>8} {'requests':>9} {'samples':>10} {'CPU s':>7} {'heap MiB':>9} {'RSS MiB':>8}")
        ways: list[tuple[str, Callable[[str], Awaitable[tuple[int, int]]]]] = [
            ("nothing asked", idle),
            *((f"kubetide {each // 1000}k a query", partial(ours, per_query=each)) for each in arguments.per_query),
        ]
        ways.append(("one by one", partial(one_by_one, count=count, days=days)))
        for title, ask in ways:
            seconds, requests, samples, used, heap, peak = await measured(folder, ask)
            print(f"{title:24} {seconds:8.1f} {requests:9} {samples:10} {used:7.1f} {heap:9.0f} {peak:8.0f}")
        print(
            f"rows differ from the generated percentiles by at most {check(workloads, found['usage'], cpu, memory):.2%}"
        )


if __name__ == "__main__":
    asyncio.run(main())
