"""A round of the horizontal autoscaler: all autoscalers once, over 20,000 pods, against a server in its own process.

    python benchmarks/hpa_round.py [--hpas 1000 5000] [--pods 20000] [--rounds 2] [--sync-period 15]
                                   [--changing] [--tls] [--only kubetide] [--profile] [--tracing RATIO]

Each size is run in three ways against the same server: as kubetide does it (one list of pod usage per sync period
for all, targets followed by a watch), without the watch, and as a baseline that asks for the metrics and the scale of
every autoscaler, which is what upstream does. Compared are seconds of CPU of the controller per round, requests
per round, the sync period that autoscalers really got, and peak memory. With `--changing` the usage of every pod is
another one every time it is read, by a few percent around the target, so that every status has new values in every
round. `--profile` shows the functions in which the controller spent its time (and slows it down by about half). With
`--tracing 1` every decision is traced and sent to a collector in another process.
"""

import argparse
import asyncio
import cProfile
import multiprocessing
import resource
import statistics
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from pstats import Stats
from random import Random
from typing import Any

from kubetide import tracing
from kubetide.api.objects.meta import ObjectKey
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.identity import make_identity
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.hpa.controller import HpaController
from kubetide.hpa.settings import HpaSettings
from kubetide.hpa.telemetry import Record
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.decoding import tune_gc
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust
from kubetide.kube.client.transport import Response, Transport
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_hpa, make_pod

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from simulated.autoscaling import kind_of
from simulated.usage import PodUsageOnly

Raw = dict[str, Any]
NAMESPACES = 100
KUBETIDE, SHARED, BASELINE = WAYS = ("kubetide", "kubetide, scales read", "one request each")
STARTED = "2026-01-01T00:00:00Z"


class Usage(PodUsageOnly):
    """Usage of all pods, near the target so that sizes stay; filed by the label that selectors ask for."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.by_namespace: dict[str, list[Raw]] = defaultdict(list)
        self.by_app: dict[tuple[str, str], list[Raw]] = defaultdict(list)
        self.all: list[Raw] = []
        self.changing: Random | None = None

    def change(self, items: list[Raw]) -> list[Raw]:
        """Give every pod another usage, if it is to change."""
        if self.changing is not None:
            stamp = f"{self._now():%Y-%m-%dT%H:%M:%SZ}"
            for item in items:
                item["timestamp"] = stamp
                item["containers"][0]["usage"]["cpu"] = f"{self.changing.randint(46_000, 54_000) * 1000}n"
        return items

    def add(self, namespace: str, app: str, name: str, random: Random) -> None:
        cpu = f"{random.randint(46, 54) * 1_000_000}n"
        item = {
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
            "timestamp": f"{self._now():%Y-%m-%dT%H:%M:%SZ}",
            "window": "15s",
            "containers": [{"name": "main", "usage": {"cpu": cpu, "memory": f"{random.randint(60, 90)}Mi"}}],
        }
        self.all.append(item)
        self.by_namespace[namespace].append(item)
        self.by_app[namespace, app].append(item)

    def pod_metrics(self, namespace: str = "", selector: str = "", name: str = "") -> list[Raw]:
        if selector:
            return self.change(self.by_app[namespace, selector.removeprefix("app=")])
        return self.change(self.by_namespace[namespace] if namespace else self.all)


def fill(api: ApiServer, hpas: int, pods: int, *, changing: bool = False) -> None:
    """Make deployments, their pods and their autoscalers, spread over namespaces."""
    usage, random = Usage(api.clock.now), Random(1)
    for number in range(NAMESPACES):
        api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{number}-ns"}})
    each = pods // hpas
    for number in range(hpas):
        namespace, app = f"{number % NAMESPACES}-ns", f"app-{number}"
        made = make_deployment(app, namespace, replicas=each, cpu="100m", memory="128Mi")
        made["status"] = {"replicas": each}
        api.insert(made)
        api.insert(make_hpa(app, namespace, target=app, maximum=each * 2, cpu_percent=50))
        for index in range(each):
            name = f"{app}-{index}"
            pod = make_pod(
                name, namespace, labels={"app": app}, cpu="100m", memory="128Mi", node="n", ready=True, started=STARTED
            )
            api.insert(pod)
            usage.add(namespace, app, name, random)
    usage.changing = Random(2) if changing else None
    api.metrics_provider = usage


def server(pipe: Connection, hpas: int, pods: int, changing: bool, tls: bool) -> None:
    """Serve a filled cluster until told to stop."""

    async def main() -> None:
        clock = SystemClock()
        api = ApiServer(clock=clock)
        fill(api, hpas, pods, changing=changing)
        identity = make_identity(None, now=clock.now())
        context = identity.tls("127.0.0.1", now=clock.now()) if tls else None
        async with serve(api, anonymous=True, tls=context) as serving:
            pipe.send(serving.url)
            while not pipe.poll():  # noqa: ASYNC110 - a pipe of another process has no event
                await asyncio.sleep(0.2)

    asyncio.run(main())


class Counting:
    """A transport that counts."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.counts: Counter[str] = Counter()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        self.counts[kind_of(method, path)] += 1
        return await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept, timeout=timeout
        )

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        await self._inner.close()


class Silent:
    """Events are not what is measured."""

    def publish(self, event: object) -> None:
        """Drop it."""


class Measured(HpaController):
    """A controller that notes when each autoscaler was reconciled, by itself or together with others at rest."""

    reconciles: dict[ObjectKey, list[float]]

    def note_reconciles(self, now: Callable[[], float] = time.monotonic) -> None:
        self.reconciles = defaultdict(list)
        add, rested = self._history.add, self._history.rested

        def noted_add(key: ObjectKey, *given: Any, **named: Any) -> None:
            self.reconciles[key].append(now())
            add(key, *given, **named)

        def noted_rested(key: ObjectKey, *given: Any) -> Record | None:
            self.reconciles[key].append(now())
            return rested(key, *given)

        vars(self._history).update(add=noted_add, rested=noted_rested)


class Collector(BaseHTTPRequestHandler):
    """Takes spans and forgets them."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def collecting() -> Iterator[str]:
    """Serve a collector on loopback; yield its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()


def controller(
    pipe: Connection,
    url: str,
    hpas: int,
    rounds: int,
    period: float,
    way: str,
    profile: bool,
    traces: str = "",
    ratio: float = 1.0,
) -> None:
    """Run the controller for some rounds and send what was measured."""
    profiler = cProfile.Profile()

    async def main() -> Raw:
        tune_gc()
        trust = ServerTrust(insecure=url.startswith("https"))
        transport = Counting(HttpTransport(Access(server=url, trust=trust, credentials=Static())))
        clock = SystemClock()
        client = Client(transport, clock=clock)
        settings = HpaSettings(
            sync_period=timedelta(seconds=period),
            leader_elect=False,
            take_over=True,
            scale_watch_from=200 if way == KUBETIDE else 0,
        )
        running = Measured(client, clock, settings, Telemetry(), Silent(), Random(1))
        running.note_reconciles()
        if way == BASELINE:
            # The baseline: no list that others could use, so every autoscaler asks for its own pods.
            running._metrics._scopes = lambda namespace: ()  # type: ignore[method-assign]
            running._reconciler._alone.applies = False
        task = asyncio.get_running_loop().create_task(running.run())
        # The first reconcile of each writes its status; measured is what comes after.
        await _until(lambda: sum(map(len, running.reconciles.values())) >= 2 * hpas)
        before, cpu, begin = Counter(transport.counts), time.process_time(), time.monotonic()
        done = sum(map(len, running.reconciles.values()))
        if profile:
            profiler.enable()
        await _until(lambda: sum(map(len, running.reconciles.values())) >= done + rounds * hpas)
        profiler.disable()
        cpu, seconds = time.process_time() - cpu, time.monotonic() - begin
        turns = sum(map(len, running.reconciles.values())) - done
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
        gaps = sorted(after - before for times in running.reconciles.values() for before, after in pairwise(times[1:]))
        full = turns / hpas
        requests = {name: (count - before[name]) / full for name, count in transport.counts.items()}
        return {
            "cpu": cpu / full,
            "each": 1000 * cpu / turns,
            "p50": statistics.median(gaps),
            "p99": gaps[int(len(gaps) * 0.99)],
            "metrics": requests.get("metrics", 0.0),
            "requests": sum(requests.values()),
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "turns": turns / seconds,
        }

    with tracing.exporting(traces, ratio):
        pipe.send(asyncio.run(main()))
    if profile:
        Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(35)


async def _until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110 - the controller says nothing when a round is over
        await asyncio.sleep(0.1)


def measure(hpas: int, options: argparse.Namespace) -> dict[str, Raw]:
    """Measure all ways against one server."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    serving = context.Process(target=server, args=(far, hpas, options.pods, options.changing, options.tls), daemon=True)
    serving.start()
    url = near.recv()
    found = {}
    with collecting() if options.tracing is not None else nullcontext("") as traces:
        for way in options.only or WAYS:
            mine, theirs = context.Pipe()
            how = (options.rounds, options.sync_period, way, options.profile, traces, options.tracing)
            running = context.Process(target=controller, args=(theirs, url, hpas, *how), daemon=True)
            running.start()
            found[way] = mine.recv()
            running.join()
    near.send("stop")
    serving.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hpas", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sync-period", type=float, default=15.0)
    parser.add_argument("--changing", action="store_true", help="other usage in every round")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--only", nargs="+", choices=WAYS)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--tracing", type=float, metavar="RATIO", help="trace this share of the decisions")
    options = parser.parse_args()
    heads = (
        "autoscalers",
        "way",
        "CPU s/round",
        "ms each",
        "requests/round",
        "of them metrics",
        "period p50",
        "p99",
        "peak MiB",
    )
    print(" | ".join(heads))
    for hpas in options.hpas:
        found = measure(hpas, options)
        for way, one in found.items():
            print(
                f"{hpas} | {way} | {one['cpu']:.2f} | {one['each']:.2f} | {one['requests']:.0f} | "
                f"{one['metrics']:.1f} | {one['p50']:.2f} s | {one['p99']:.2f} s | {one['memory']:.0f}",
                flush=True,
            )
        if KUBETIDE in found and BASELINE in found:
            ratio = found[KUBETIDE]["cpu"] / found[BASELINE]["cpu"]
            print(f"{hpas} | CPU as a share of the baseline's: {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
