"""Our horizontal autoscaler and the one in kube-controller-manager, as processes, over the same objects.

    python -m benchmarks.hpa_beside_original --original PATH [--hpas N …] [--pods N] [--seconds N] [--qps N]
                                              [--changing] [--tls] [--runs N]

PATH is kube-controller-manager; only its horizontal autoscaler is switched on, with five workers. Each contestant gets
a fresh embedded API server in a process of its own, over plain HTTP on loopback or with `--tls`, with usage near the
targets, so that sizes stay; with `--changing` it is another one in every sync period. Both count their turns in the
same metric; once every autoscaler has had a first turn, turns, requests, CPU time and memory are taken over
`--seconds`. Both run at the same time; of several runs the medians are compared. Both may send `--qps` requests a
second: with the default of kube-controller-manager (20) its limiter would be all that is measured.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.beside import free_port, medians, process, samples, side_by_side, spent, wait_for, write_kubeconfig
from benchmarks.hpa_round import fill

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.identity import make_identity
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.server import ApiServer

TURNS = "horizontal_pod_autoscaler_controller_reconciliations_total"
REQUESTS = "rest_client_requests_total"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a contestant has done so far."""

    second: float
    turns: float
    requests: float
    cpu: float
    peak_mb: float


def be_the_server(hpas: int, pods: int, *, changing: bool, tls: bool) -> None:
    """Serve the objects until killed; the first line of output is the address."""

    async def main() -> None:
        clock = SystemClock()
        api = ApiServer(clock=clock)
        fill(api, hpas, pods, changing=changing)
        identity = make_identity(None, now=clock.now())
        context = identity.tls("127.0.0.1", now=clock.now()) if tls else None
        async with serve(api, anonymous=True, tls=context) as serving:
            print(serving.url, flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())


def read(url: str, pid: int) -> Reading:
    """Read the metrics page of a contestant, and the kernel's counters of its process."""
    totals = {TURNS: 0.0, REQUESTS: 0.0}
    for sample in samples(url):
        if sample.name in totals:
            totals[sample.name] += sample.value
    return Reading(time.monotonic(), totals[TURNS], totals[REQUESTS], *spent(pid))


def run(command: list[str], url: str, hpas: int, seconds: float, log: Path) -> dict[str, float]:
    """Return what a contestant does per round of all autoscalers."""
    with process(*command, log=log) as contestant:
        first = wait_for(lambda: read(url, contestant.pid), lambda reading: reading.turns >= hpas)
        time.sleep(seconds)
        last = read(url, contestant.pid)
    rounds = (last.turns - first.turns) / hpas
    if rounds == 0:
        raise SystemExit(f"no turn in {seconds:.0f} s")
    return {
        "sync period s": (last.second - first.second) / rounds,
        "CPU s per round": (last.cpu - first.cpu) / rounds,
        "requests per round": (last.requests - first.requests) / rounds,
        "peak MB": last.peak_mb,
    }


def commands(original: str, kubeconfig: Path, port: int, qps: int) -> dict[str, tuple[list[str], str]]:
    """Return how each contestant is started, and where its metrics are."""
    shared = [f"--kubeconfig={kubeconfig}", f"--kube-api-qps={qps}", f"--kube-api-burst={qps}", "--leader-elect=false"]
    ours = [sys.executable, "-m", "kubetide", "run", "hpa", *shared, f"--listen=127.0.0.1:{port}"]
    theirs = [
        original,
        *shared,
        "--controllers=horizontal-pod-autoscaler-controller",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--authorization-always-allow-paths=/metrics",
    ]
    return {
        "kubetide": (ours, f"http://127.0.0.1:{port}/metrics"),
        "original": (theirs, f"https://127.0.0.1:{port}/metrics"),
    }


def contest(name: str, hpas: int, options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Return the figures of one contestant, which gets an API server of its own."""
    this = (sys.executable, "-m", __spec__.name, "--serve", "--hpas", str(hpas), "--pods", str(options.pods))
    kind = [f"--{each}" for each in ("changing", "tls") if getattr(options, each)]
    with process(*this, *kind) as server:
        assert server.stdout is not None
        kubeconfig = folder / f"{name}.kubeconfig"
        write_kubeconfig(kubeconfig, server.stdout.readline().strip())
        command, url = commands(options.original, kubeconfig, free_port(), options.qps)[name]
        return run(command, url, hpas, options.seconds, folder / f"{name}.log")


def compare(hpas: int, options: argparse.Namespace, folder: Path) -> None:
    print(f"{hpas:,} autoscalers, {options.pods:,} pods, sync period 15 s", flush=True)
    runs: dict[str, list[dict[str, float]]] = {"kubetide": [], "original": []}
    contestants = {name: partial(contest, name, hpas, options, folder) for name in runs}
    for _ in range(options.runs):
        for name, figures in side_by_side(contestants).items():
            runs[name].append(figures)
            print(f"  {name}: " + "  ".join(f"{what} {figure:,.2f}" for what, figure in figures.items()), flush=True)
    ours, theirs = (medians(runs[name]) for name in runs)
    ratios = {what: theirs[what] / max(figure, 1e-9) for what, figure in ours.items()}
    print("  times ours: " + "  ".join(f"{what} {ratio:,.1f}" for what, ratio in ratios.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--original", default="")
    parser.add_argument("--hpas", type=int, nargs="+", default=[1_000, 4_000])
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--qps", type=int, default=2_000)
    parser.add_argument("--changing", action="store_true", help="other usage in every sync period")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        be_the_server(options.hpas[0], options.pods, changing=options.changing, tls=options.tls)
        return
    if not os.access(options.original, os.X_OK):
        raise SystemExit("--original: the path of kube-controller-manager is needed")
    with tempfile.TemporaryDirectory() as folder:
        for hpas in options.hpas:
            compare(hpas, options, Path(folder))


if __name__ == "__main__":
    main()
