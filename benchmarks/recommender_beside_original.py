"""Our recommender and the original one, as processes, over the same objects on the same API server.

    python -m benchmarks.recommender_beside_original --original PATH [--vpas N] [--pods N] [--loops N] [--qps N]
                                                      [--tls] [--runs N] [--week-old]

PATH is the program `recommender` of the vertical autoscaler (1.7). Each contestant gets a fresh embedded API server in
a process of its own, over plain HTTP on loopback or with `--tls`: the same 1,000 VPAs and 10,000 pods with two
containers each, and new usage every fifteen seconds. Both tell their own step times in the same metric, so both are
read in the same way; CPU time and memory are what the kernel counts for the process. The first loop (reading
everything) is shown apart. Both run at the same time; of several runs the medians are compared. Client-side rate limits
stay as they are by default in both unless `--qps` sets them. With `--week-old` every container has a checkpoint of a
week of such usage, which both read at their start: bounds and estimates hardly move any more.
"""

import argparse
import asyncio
import math
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from benchmarks.beside import free_port, medians, process, samples, side_by_side, spent, wait_for, write_kubeconfig
from benchmarks.recommender_loop import CONTAINERS, STEPS, Raw, Usage, fill

from kubetide.api.values.codec import encode
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.identity import make_identity
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.server import ApiServer

LATENCY = "vpa_recommender_execution_latency_seconds"
INTERVAL = 15
GROWTH = 1.05
"""How much wider each bucket of a histogram is than the one before."""
WEEK = timedelta(days=7)


class LiveUsage(Usage):
    """Usage of now, made once per interval."""

    _made: tuple[datetime, bytes] | None = None

    def pod_items(self, namespace: str = "") -> bytes:
        second = int(time.time()) // INTERVAL * INTERVAL
        self.now = datetime.fromtimestamp(second, UTC)
        if self._made is None or self._made[0] != self.now:
            self._made = (self.now, encode(self.pod_metrics()))
        return self._made[1]


def histogram(first: float, least: float, most: float, weight: float, reference: datetime) -> Raw:
    """Return a checkpoint's histogram of values that are spread evenly between two bounds."""
    shares: dict[str, float] = {}
    low, width, bucket = 0.0, first, 0
    while low < most:
        inside = min(low + width, most) - max(low, least)
        if inside > 0:
            shares[str(bucket)] = inside
        low, width, bucket = low + width, width * GROWTH, bucket + 1
    largest = max(shares.values())
    weights = {name: max(1, round(10_000 * share / largest)) for name, share in shares.items()}
    return {"referenceTimestamp": stamp(reference), "bucketWeights": weights, "totalWeight": weight}


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def add_checkpoints(api: ApiServer, vpas: int, pods: int, now: datetime) -> None:
    """Store what a recommender that has run for a week would have kept of the usage that is served here."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    per_vpa = max(1, pods // vpas)
    # Samples of 0.1 cores of weight, and peaks of weight one, that count half as much every day.
    samples_a_day = per_vpa * 86_400 / INTERVAL
    cpu = histogram(0.01, 0.0, 0.7, 0.1 * samples_a_day / math.log(2), midnight)
    memory = histogram(1e7, 41e6, 450e6, per_vpa / math.log(2), midnight)
    status = {
        "version": "v3",
        "lastUpdateTime": stamp(now),
        "firstSampleStart": stamp(now - WEEK),
        "lastSampleStart": stamp(now),
        "totalSamplesCount": round(7 * samples_a_day),
        "cpuHistogram": cpu,
        "memoryHistogram": memory,
    }
    for number in range(vpas):
        space, name = f"team-{number // 100}", f"app-{number}"
        for container in CONTAINERS:
            api.insert(
                {
                    "apiVersion": "autoscaling.k8s.io/v1",
                    "kind": "VerticalPodAutoscalerCheckpoint",
                    "metadata": {"name": f"{name}-{container}", "namespace": space},
                    "spec": {"vpaObjectName": name, "containerName": container},
                    "status": status,
                }
            )


def be_the_server(vpas: int, pods: int, *, tls: bool, week_old: bool) -> None:
    """Serve the objects until killed; the first line of output is the address."""

    async def main() -> None:
        clock = SystemClock()
        api = ApiServer(clock=clock)
        api.metrics_provider = LiveUsage(fill(api, vpas, 2 * pods))
        if week_old:
            add_checkpoints(api, vpas, pods, clock.now())
        context = make_identity(None, now=clock.now()).tls("127.0.0.1", now=clock.now()) if tls else None
        async with serve(api, anonymous=True, tls=context) as serving:
            print(serving.url, flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())


@dataclass(frozen=True, slots=True)
class Reading:
    """What a contestant has done so far."""

    loops: int
    seconds: dict[str, float]
    cpu: float
    peak_mb: float


def read(port: int, pid: int) -> Reading:
    """Read the metrics page of a contestant, and the kernel's counters of its process."""
    loops, seconds = 0, dict.fromkeys(STEPS, 0.0)
    for sample in samples(f"http://127.0.0.1:{port}/metrics"):
        if sample.name == f"{LATENCY}_sum":
            seconds[sample.labels["step"]] = sample.value
        if sample.name == f"{LATENCY}_count" and sample.labels["step"] == "total":
            loops = int(sample.value)
    return Reading(loops, seconds, *spent(pid))


def after(loops: int, port: int, pid: int) -> Reading:
    """Wait until a contestant has finished so many loops."""
    return wait_for(lambda: read(port, pid), lambda reading: reading.loops >= loops)


def run(name: str, program: list[str], options: argparse.Namespace, folder: Path) -> tuple[Reading, Reading]:
    """Return what a contestant had done after the first loop, and after the others."""
    this = (sys.executable, "-m", __spec__.name, "--serve", "--vpas", str(options.vpas), "--pods", str(options.pods))
    switches = [f"--{name}" for name in ("tls", "week-old") if getattr(options, name.replace("-", "_"))]
    with process(*this, *switches) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        kubeconfig = folder / f"{name}.kubeconfig"
        write_kubeconfig(kubeconfig, url)
        port = free_port()
        flags = [
            f"--kubeconfig={kubeconfig}",
            f"--address=127.0.0.1:{port}",
            f"--recommender-interval={INTERVAL}s",
            "--leader-elect=false",
        ]
        if options.qps:
            flags += [f"--kube-api-qps={options.qps}", f"--kube-api-burst={options.qps}"]
        with process(*program, *flags, log=folder / f"{name}.log") as contestant:
            first = after(1, port, contestant.pid)
            return first, after(1 + options.loops, port, contestant.pid)


def show(name: str, first: Reading, last: Reading) -> dict[str, float]:
    """Print one contestant; return its figures per loop."""
    loops = last.loops - first.loops
    each = {step: (last.seconds[step] - first.seconds[step]) / loops for step in STEPS}
    figures = {"loop s": each["total"], "CPU s": (last.cpu - first.cpu) / loops, "peak MB": last.peak_mb}
    print(f"{name}: first loop {first.seconds['total']:.2f} s, then over {loops} loops, each:")
    print("  " + "  ".join(f"{step} {seconds:.3f}" for step, seconds in each.items()))
    print("  " + "  ".join(f"{what} {figure:.2f}" for what, figure in figures.items()), flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--original", default="")
    parser.add_argument("--vpas", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--loops", type=int, default=4)
    parser.add_argument("--qps", type=int, default=0)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--week-old", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        be_the_server(options.vpas, options.pods, tls=options.tls, week_old=options.week_old)
        return
    if not os.access(options.original, os.X_OK):
        raise SystemExit("--original: the path of upstream's recommender is needed")
    limits = f"{options.qps} requests/s" if options.qps else "as by default"
    print(f"{options.vpas:,} VPAs, {options.pods:,} pods with two containers; client-side limits: {limits}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        programs = {
            "kubetide": [sys.executable, "-m", "kubetide", "run", "recommender"],
            "original": [options.original],
        }
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in programs}
        for _ in range(options.runs):
            contestants = {
                name: partial(run, name, program, options, Path(folder)) for name, program in programs.items()
            }
            for name, readings in side_by_side(contestants).items():
                runs[name].append(show(name, *readings))
    mine, theirs = (medians(runs[name]) for name in runs)
    for what, figure in mine.items():
        print(f"{what}: {theirs[what]:.2f}, {theirs[what] / figure:.1f} times ours ({figure:.2f})")


if __name__ == "__main__":
    main()
