"""Replay of recordings, against a straightforward implementation of the same rule.

    python -m benchmarks.replay [--containers 1000 10000 100000] [--days 2] [--every 3600] [--plain 20]
    python -m benchmarks.replay --goals          # 10,000 containers for 30 days, and 1,000 autoscalers for 7 days

A recording is made and replayed under `vpa` in one process: samples per second of CPU and the most memory used. The
straightforward way keeps one object per container and adds sample by sample; it replays a few containers of the same
recording, its sizes are compared with those of the replay, and the ratio is of CPU time per sample: the rule alone on
that side, with reading, decoding and counting on ours.
"""

import argparse
import math
import resource
import subprocess
import sys
import tempfile
import time
from multiprocessing import active_children
from pathlib import Path

import numpy as np

from kubetide.recording.format import Manifest
from kubetide.recording.reader import Recording
from kubetide.recording.writer import Writer
from kubetide.replay.core.block import SizeReplay, clairvoyant_plans
from kubetide.replay.core.services import Services, replay_services
from kubetide.replay.core.spec import Replicas
from kubetide.replay.runs import Options, load_policy, recorded_of, run, with_cadence

START = 1_767_571_200
STEP, DAY = 300, 86400
LINES = DAY // STEP
MIB = 2**20


def write(path: Path, containers: int, days: int) -> None:
    """Write containers with a daily course, noise, and memory that creeps."""
    rng = np.random.default_rng(7)
    base, held = 0.02 + 0.4 * rng.random(containers), (100 + 2000 * rng.random(containers)) * MIB
    course = 1.0 + 0.5 * np.abs((np.arange(LINES) % LINES) / (LINES / 2) - 1.0)
    with Writer(path, Manifest(interval_seconds=STEP, start=START)) as writer:
        ids = np.array([writer.container("ns", "Deployment", f"w{n}", f"p{n}", "app") for n in range(containers)])
        for day in range(days):
            times = (START + day * DAY + np.arange(LINES) * STEP) * 1_000_000
            for part in np.array_split(ids, max(1, containers // 8192)):
                shape = (part.size, LINES)
                cpu = base[part, None] * course * (0.7 + 0.6 * rng.random(shape)) * 1e6
                memory = held[part, None] * (1.0 + 0.02 * day + 0.1 * rng.random(shape))
                writer.usage(np.repeat(part, LINES), np.tile(times, part.size), cpu.ravel(), memory.ravel())


class PlainContainer:
    """The straightforward way: lists of weights, one sample after the other."""

    def __init__(self) -> None:
        self.cpu: dict[int, float] = {}
        self.memory: dict[int, float] = {}
        self.reference = 0.0
        self.window_end = 0
        self.peak = 0.0

    def add(self, at: int, cpu: float, memory: float) -> None:
        if not self.reference:
            self.reference, self.window_end = at, at
        weight = 0.1 * math.exp2((at - self.reference) / DAY)
        bucket = _bucket(round(cpu * 1000) / 1000, 0.01)
        self.cpu[bucket] = self.cpu.get(bucket, 0.0) + weight
        amount = round(memory)
        if at >= self.window_end:
            self.window_end += DAY
            self.peak = 0.0
        elif amount <= self.peak:
            return
        weight = math.exp2((self.window_end - self.reference) / DAY)
        if self.peak:
            old = _bucket(self.peak, 1e7)
            self.memory[old] -= weight
        bucket = _bucket(amount, 1e7)
        self.memory[bucket] = self.memory.get(bucket, 0.0) + weight
        self.peak = amount

    def sizes(self) -> tuple[int, int]:
        cpu = int(_percentile(self.cpu, 0.01) * 1000)
        memory = int(_percentile(self.memory, 1e7))
        return max(cpu + int(cpu * 0.15), 25), max(memory + int(memory * 0.15), 250 * MIB)


def _bucket(value: float, first: float) -> int:
    return 0 if value < first else int(math.log(value * (1.05 - 1.0) / first + 1.0) / math.log(1.05))


def _percentile(weights: dict[int, float], first: float) -> float:
    total, running = sum(weights.values()), 0.0
    for bucket in sorted(weights):
        running += weights[bucket]
        if running >= 0.9 * total:
            return first * (1.05 ** (bucket + 1) - 1.0) / (1.05 - 1.0)
    return 0.0


def plain_seconds(recording: Recording, containers: int, every: int) -> tuple[float, list[tuple[int, int]]]:
    """Return the CPU seconds per sample of the straightforward way, and the sizes it ends with."""
    listed = [PlainContainer() for _ in range(containers)]
    seconds, samples = 0.0, 0
    for grid in recording.grids(0):
        cpu, memory = grid.cpu[:, :containers].tolist(), grid.memory[:, :containers].tolist()
        began = time.process_time()
        for line in range(len(cpu)):
            at = grid.start_seconds + line * STEP
            for number, each in enumerate(listed):
                each.add(at, cpu[line][number], memory[line][number])
            if (line + 1) * STEP % every == 0:
                for each in listed:
                    each.sizes()
        seconds += time.process_time() - began
        samples += len(cpu) * containers
    return seconds / samples, [each.sizes() for each in listed]


def replay_seconds(path: Path, every: int) -> float:
    """Return the CPU seconds of a replay in this process, reading and counting included."""
    spec = with_cadence(load_policy("vpa"), f"{every}s")
    began = time.process_time()
    run(path, [spec], Options(warmup_periods=0, draws=0))
    return time.process_time() - began


def last_sizes(recording: Recording, every: int, compared: int) -> list[tuple[int, int]]:
    """Return the sizes of a few containers at the end."""
    recorded = recorded_of(recording, 0, Options(warmup_periods=0))
    replay = SizeReplay(with_cadence(load_policy("vpa"), f"{every}s"), recorded)
    for grid in recording.grids(0):
        plans = clairvoyant_plans(grid.cpu, recorded)
        replay.feed(grid.cpu, grid.memory, grid.throttled, grid.start_seconds, plans)
    now = replay.in_force
    return [(round(now.cpu[n] * 1000), round(now.memory[n])) for n in range(compared)]


def measure(containers: int, days: int, every: int, plain: int) -> None:
    """Print one line for a number of containers; called in a process of its own, so that memory is that of one size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.tide"
        # In a process of its own, so that what writing takes does not count.
        make = "import sys; from pathlib import Path; from benchmarks.replay import write; "
        make += f"write(Path(sys.argv[1]), {containers}, {days})"
        subprocess.run([sys.executable, "-c", make, str(path)], check=True)
        began = time.perf_counter()
        recording = Recording(path)
        blocks = len(recording.blocks)
        opened = time.perf_counter() - began
        seconds = replay_seconds(path, every)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sizes = last_sizes(recording, every, plain)
        single, expected = plain_seconds(recording, plain, every)
        agree = sum(
            abs(one[0] - other[0]) <= 1 and abs(one[1] - other[1]) <= 1
            for one, other in zip(sizes, expected, strict=True)
        )
        samples = containers * days * LINES
        ratio, size = single * samples / seconds, path.stat().st_size / 1e6
        print(
            f"{containers:>10,} {days:>5} {samples / 1e6:>9.1f} {seconds:>8.1f} {samples / seconds / 1e6:>9.2f} "
            f"{memory:>7.0f} {size:>8.0f} {opened * 1000:>7.0f} {blocks:>7} {ratio:>7.1f} {agree:>5}/{plain}",
            flush=True,
        )


HEADINGS = "containers  days  samples M    CPU s M/CPU s  MiB RSS  file MB open ms  blocks   ratio  equal"


def goals() -> None:
    """Print the goals: a month of 10,000 containers with two workers, a week of 1,000 autoscalers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.tide"
        write(path, 10_000, 30)
        began, before = time.perf_counter(), _cpu_seconds()
        blocks = len(Recording(path).blocks)
        took = time.perf_counter() - began
        print(
            f"10,000 containers × 30 days, opened: {took:.2f} s (goal 1 s), {_cpu_seconds() - before:.2f} s of CPU, "
            f"{path.stat().st_size / 1e6:.0f} MB, {blocks} blocks",
            flush=True,
        )
        for every, least in (("1h", 20), ("0s", 60)):
            began, before = time.perf_counter(), _cpu_seconds()
            run(path, [with_cadence(load_policy("vpa"), every)], Options(workers=2, draws=0))
            took = time.perf_counter() - began
            for child in active_children():
                child.join()  # Only then its CPU time and memory are known.
            used, memory = _cpu_seconds() - before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            print(
                f"10,000 containers × 30 days, every {every}: {took:.1f} s (goal {least} s), "
                f"{used:.1f} s of CPU, at most {memory:.0f} MiB in a process",
                flush=True,
            )
    autoscalers()


def autoscalers() -> None:
    """Print how long the replica counts of a week of 1,000 autoscalers take."""
    lines = 7 * DAY // 15
    rng = np.random.default_rng(3)
    level = 5.0 + 4.0 * np.abs((np.arange(lines)[:, None] % 5760) / 2880.0 - 1.0)
    services = Services(
        names=tuple(f"s{n}" for n in range(1000)),
        demand=level * (0.8 + 0.4 * rng.random((lines, 1000))),
        start_seconds=START,
        pod_cores=np.ones(1000),
        skip=np.zeros(1000, dtype=np.int64),
    )
    began, before = time.perf_counter(), _cpu_seconds()
    replay_services(services, Replicas(target=60))
    used = _cpu_seconds() - before
    print(f"1,000 autoscalers × 7 days at 15 s: {time.perf_counter() - began:.1f} s (goal 120 s), {used:.1f} s of CPU")


def _cpu_seconds() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--containers", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--every", type=int, default=3600, help="seconds between recommendations")
    parser.add_argument("--plain", type=int, default=20, help="containers of the straightforward way")
    parser.add_argument("--goals", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.goals:
        goals()
        return
    if given.one is not None:
        measure(given.one, given.days, given.every, given.plain)
        return
    print(HEADINGS, flush=True)
    for containers in given.containers:
        more = ["--one", str(containers), "--days", str(given.days), "--every", str(given.every)]
        subprocess.run([sys.executable, "-m", "benchmarks.replay", *more, "--plain", str(given.plain)], check=True)


if __name__ == "__main__":
    main()
