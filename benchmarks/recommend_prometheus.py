"""What `kubetide recommend` costs Prometheus, beside one percentile and one maximum per container as krr asks for.

    python benchmarks/recommend_prometheus.py [--workloads 500] [--days 14] [--smallest] [--limit MIB] [--data FOLDER]

Fills a real Prometheus (needs `prometheus` and `promtool`) with generated usage of one pod each, starts it afresh for
each way of asking with its blocks dropped from the page cache, and prints time, requests, CPU seconds of whoever asks
and of the Prometheus process, and its memory in MiB, looked at every 5 ms, at its peak:

    allocated   anonymous memory (RssAnon): what it needs and cannot give back, so what has to be provisioned
    added       the same above one that nobody asks
    of files    pages of its program and of its blocks (RssFile): clean, so the kernel takes them back when needed
    resident    both at once (VmHWM)
    working set what Kubernetes shows and evicts by: all of its memory cgroup without pages of files that were used
                once (root)
    smallest    the smallest memory cgroup, in steps of 4 MiB, in which it survives being asked (root, `--smallest`)

Ratios to the last way follow. What is allocated depends on Go's collector, which by default lets the heap grow to twice
of what is in use before it looks (GOGC=100 in the environment). `--limit` gives Prometheus a memory cgroup of that size
(root), and says whether it survives. All rows are compared with what the generated numbers say, computed here without
kubetide's code.
"""

import argparse
import asyncio
import math
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
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
IDLE, ONE_BY_ONE = "nothing asked", "one by one"


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


@dataclass(frozen=True)
class Figures:
    """What one way of asking took; memory in MiB at its peak, NaN where it cannot be seen."""

    seconds: float
    requests: int
    samples: int
    own: float
    """CPU seconds of this process."""
    cpu: float
    anon: float
    file: float
    both: float
    working: float
    smallest: float = math.nan


V1 = Path("/sys/fs/cgroup/memory")


@contextmanager
def confined(limit: int | None) -> Iterator[Path | None]:
    """Make a memory cgroup, of a size in MiB if there is one, and remove it; None where that is not allowed."""
    folder = (V1 if V1.is_dir() else V1.parent) / f"kubetide-benchmark-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        if limit is not None:
            raise
        yield None
        return
    try:
        if limit is not None:
            (folder / ("memory.limit_in_bytes" if V1.is_dir() else "memory.max")).write_text(str(limit * 2**20))
        yield folder
    finally:
        folder.rmdir()


def working_set_mib(cgroup: Path) -> float:
    """Return the memory of a cgroup without pages of files that were used once, as the kubelet counts it."""
    usage, inactive = (
        ("memory.usage_in_bytes", "total_inactive_file") if V1.is_dir() else ("memory.current", "inactive_file")
    )
    fields = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    return max(0, int((cgroup / usage).read_text()) - int(fields[inactive])) / 2**20


async def measured(
    folder: Path, ask: Callable[[str], Awaitable[tuple[int, int]]], limit: int | None = None
) -> Figures | None:
    """Start Prometheus, ask, and return what it took; None where it did not survive."""
    with confined(limit) as cgroup:
        return await _measured(folder, ask, cgroup)


async def smallest(folder: Path, ask: Callable[[str], Awaitable[tuple[int, int]]]) -> int:
    """Return the smallest memory cgroup in which Prometheus survives being asked, in steps of 4 MiB."""
    low, high = 4, 32
    while await measured(folder, ask, high) is None:
        low, high = high, high * 2
    while high - low > 4:
        middle = (low + high) // 8 * 4
        low, high = (low, middle) if await measured(folder, ask, middle) is not None else (middle, high)
    return high


async def _measured(
    folder: Path, ask: Callable[[str], Awaitable[tuple[int, int]]], cgroup: Path | None
) -> Figures | None:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "prometheus.yml").write_text("{}")
    forget_pages(folder / "data")  # to a cgroup they are charged when it reads them
    join = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh"] if cgroup is not None else []
    process = await asyncio.create_subprocess_exec(
        *join,
        "prometheus",
        *(f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"),
        *("--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"),
    )
    try:
        url = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as session:
            for _ in range(600):
                if process.returncode is not None:
                    return None
                try:
                    async with session.get(f"{url}/-/ready") as answer:
                        if answer.status == 200:
                            break
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)
        with Peak(process.pid, cgroup) as peak:
            before, began, own = cpu_seconds(process.pid), time.perf_counter(), time.process_time()
            asking = asyncio.ensure_future(ask(url))
            ended = asyncio.ensure_future(process.wait())
            await asyncio.wait((asking, ended), return_when=asyncio.FIRST_COMPLETED)
            if asking.done() and asking.exception() is not None:
                await asyncio.wait((ended,), timeout=5)  # connections break before the end of the process is known
            if ended.done():
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                return None
            requests, samples = await asking
            seconds, own = time.perf_counter() - began, time.process_time() - own - peak.cpu()
        used = cpu_seconds(process.pid) - before
        whole = memory_mib(process.pid, "VmHWM")
        kinds = (peak.mib["RssAnon"], peak.mib["RssFile"], whole, peak.mib.get("working", math.nan))
        return Figures(seconds, requests, samples, own, used, *kinds)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def forget_pages(folder: Path) -> None:
    """Let the kernel drop the pages of all files below a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Peak:
    """Watches how much memory of each kind a process has; the kernel keeps a peak of the sum only."""

    def __init__(self, pid: int, cgroup: Path | None) -> None:
        self._looks: dict[str, Callable[[], float]] = {
            field: partial(memory_mib, pid, field) for field in ("RssAnon", "RssFile")
        }
        if cgroup is not None:
            self._looks["working"] = partial(working_set_mib, cgroup)
        self.mib = dict.fromkeys(self._looks, 0.0)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def cpu(self) -> float:
        """Return the CPU time that watching took."""
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident or 0))

    def _watch(self) -> None:
        while not self._end.wait(0.005):
            for name, look in self._looks.items():
                with suppress(OSError, StopIteration):  # it has ended
                    self.mib[name] = max(self.mib[name], look())


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


def plain_percentile(values: np.ndarray, share: float) -> float:
    """Return the smallest value that a share of all values is not above."""
    return float(np.sort(values)[int(np.ceil(share * values.size)) - 1])


def plain_target(values: list[float], ages: list[float], first: float, share: float) -> float:
    """Return what a recommender makes of values: buckets that grow by 5 %, weights that halve in a day, + 15 %."""
    weights: dict[int, float] = {}
    for value, age in zip(values, ages, strict=True):
        bucket = int(math.log(value * 0.05 / first + 1.0, 1.05)) if value > 0 else 0
        weights[bucket] = weights.get(bucket, 0.0) + 0.5 ** (age / 86400)
    needed, seen = share * sum(weights.values()), 0.0
    for bucket in sorted(weights):
        seen += weights[bucket]
        if seen >= needed:
            return first * (1.05 ** (bucket + 1) - 1.0) / 0.05 * 1.15
    raise AssertionError("no weight")


def check(workloads: list[Workload], usage: object, cpu: np.ndarray, memory: np.ndarray) -> None:
    """Compare the rows of three estimators with the generated numbers."""
    for name in ("percentile=95", "krr", "vpa"):
        found = rows(workloads, usage, Options(estimator=name))  # type: ignore[arg-type]
        apart = []
        for row in found:
            i = int(row.name.removeprefix("web-"))
            assert row.recommended is not None
            # The sample at a time covers the slot before it.
            used, held = cpu[i, :-1][-row.evidence.samples :], memory[i, 1 - row.evidence.samples :]
            if name == "vpa":
                ages = [float(age) for age in (np.arange(used.size)[::-1] * SLOT)]
                days = held[: held.size // 288 * 288 + 287].size // 288 + 1
                peaks = [float(part.max()) for part in np.array_split(held, days)]
                cores = plain_target((np.rint(used * 1000) / 1000).tolist(), ages, 0.01, 0.9)
                wanted = max(
                    250 * 2**20, plain_target(peaks, [86400.0 * (days - day) for day in range(days)], 1e7, 0.9)
                )
            else:
                cores = plain_percentile(used, 0.95)
                wanted = float(held.max()) * (1.15 if name == "krr" else 1.0)
            millis, size = row.recommended.cpu_request_millis or 0, row.recommended.memory_request_bytes or 0
            apart.append((abs(millis / 1000 - cores) / cores, abs(size - wanted) / wanted))
        worst = np.array(apart)
        print(
            f"{name}: {len(found)} rows; CPU differs from the generated numbers by at most {worst[:, 0].max():.2%}, "
            f"memory by {worst[:, 1].max():.2%}; by more than 1 %: {int((worst > 0.01).any(axis=1).sum())} rows"
        )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=500)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--per-query", type=int, nargs="+", default=[SAMPLES_PER_QUERY], help="Samples per query.")
    parser.add_argument("--parallel", type=int, nargs="+", default=[2], help="Queries at a time.")
    parser.add_argument("--data", type=Path, help="Where blocks are kept for the next run of the same size.")
    parser.add_argument("--limit", type=int, help="MiB that Prometheus may have (needs root).")
    parser.add_argument("--smallest", action="store_true", help="Find the fewest MiB that suffice (needs root).")
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
        folder = arguments.data or Path(name)
        if not (folder / "data").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(fill, folder, cpu, memory)
        found: dict[str, object] = {}

        async def ours(url: str, per_query: int, parallel: int) -> tuple[int, int]:
            settings = msgspec.structs.replace(RecommenderSettings(), prometheus_address=url)
            source = PrometheusUsage(PrometheusHttp(settings, Telemetry(), SystemClock()), FixedClock(), Random(1))
            question = Question(history=timedelta(days=days), per_query=per_query, parallel=parallel)
            found["usage"] = await source.load(workloads, question)
            return source.cost.requests, source.cost.samples

        print(f"{count} workloads, {days} days, a sample every {SCRAPE} s")
        heads = ("seconds", "requests", "samples", "own CPU", "CPU s", "allocated", "added", "of files", "resident")
        print(f"{'':26}" + " ".join(f"{head:>9}" for head in (*heads, "working set", "smallest")))
        ways: list[tuple[str, Callable[[str], Awaitable[tuple[int, int]]]]] = [
            (IDLE, idle),
            *(
                (f"kubetide {each:,}, {at_once} at a time", partial(ours, per_query=each, parallel=at_once))
                for each in arguments.per_query
                for at_once in arguments.parallel
            ),
            (ONE_BY_ONE, partial(one_by_one, count=count, days=days)),
        ]
        took: dict[str, Figures] = {}
        for title, ask in ways:
            each = await measured(folder, ask, arguments.limit)
            if each is None:
                print(f"{title:26}Prometheus was killed: {arguments.limit} MiB are not enough")
                continue
            if arguments.smallest:
                each = replace(each, smallest=await smallest(folder, ask))
            took[title] = each
            added = each.anon - took[IDLE].anon if IDLE in took else math.nan
            sizes = " ".join(
                f"{figure:9.1f}" for figure in (each.own, each.cpu, each.anon, added, each.file, each.both)
            )
            print(f"{title:26}{each.seconds:9.1f} {each.requests:9} {each.samples:9} {sizes}", end=" ")
            print(f"{each.working:11.1f} {each.smallest:9.0f}", flush=True)
        print_ratios(took)
        if "usage" in found:
            check(workloads, found["usage"], cpu, memory)


def print_ratios(took: dict[str, Figures]) -> None:
    """Print each way as a share of the last."""
    if IDLE not in took or ONE_BY_ONE not in took:
        return
    base, most = took[IDLE], took[ONE_BY_ONE]
    for title, each in took.items():
        if title in (IDLE, ONE_BY_ONE):
            continue
        shares = [f"time {each.seconds / most.seconds:.2f}", f"CPU {each.cpu / most.cpu:.2f}"]
        for name, field in (
            ("allocated", "anon"),
            ("of files", "file"),
            ("resident", "both"),
            ("working set", "working"),
            ("smallest", "smallest"),
        ):
            mine, theirs = getattr(each, field), getattr(most, field)
            shares.append(f"{name} {mine / theirs:.2f}")
        if most.anon > base.anon:
            shares.insert(2, f"added {(each.anon - base.anon) / (most.anon - base.anon):.2f}")
        print(f"{title}, ratio to {ONE_BY_ONE}: {', '.join(shares)}")


if __name__ == "__main__":
    asyncio.run(main())
