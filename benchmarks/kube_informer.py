"""The informer at scale: the first sync of 20,000 pods, and thousands of changes a second for as long as asked.

    python benchmarks/kube_informer.py [--pods N] [--rate EVENTS_PER_SECOND] [--seconds S]

The server runs in a process of its own, so the CPU shown is the informer's: decoding, store, three indexes, a handler.
The stream is paced (the rate is what it should sustain on one core) and then sent as fast as the client takes it.
Lag is the time between the server's writing of a change and the handler's call.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

from aiohttp import web

from kubetide.api.objects.core import Pod
from kubetide.api.objects.scheme import PODS
from kubetide.clock import SystemClock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.decoding import tune_gc
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from simulated.large_objects import pod

BATCH_SECONDS = 0.02
STAMP = b'"resourceVersion":"STAMP"'


class Server:
    """Serves pages made beforehand, and a stream in two parts: paced, then as fast as it goes."""

    def __init__(self, pods: int, rate: int, seconds: float) -> None:
        self._rate, self._seconds = rate, seconds
        raw = [pod(number) for number in range(pods)]
        self._items = [json.dumps(each, separators=(",", ":")).encode() for each in raw]
        self._changes = []
        for each in raw:
            each["metadata"]["resourceVersion"] = "STAMP"
            line = json.dumps({"type": "MODIFIED", "object": each}, separators=(",", ":"))
            self._changes.append(line.encode() + b"\n")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a list or a watch."""
        if request.query.get("watch") == "true":
            return await self._stream(request)
        start = int(request.query.get("continue") or 0)
        end = start + int(request.query["limit"])
        more = b',"continue":"%d"' % end if end < len(self._items) else b""
        head = b'{"metadata":{"resourceVersion":"1"%b},"items":[' % more
        return web.Response(body=head + b",".join(self._items[start:end]) + b"]}", content_type="application/json")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        begin, sent = loop.time(), 0
        total = int(self._rate * self._seconds)
        while sent < total:
            due = min(total, int((loop.time() - begin) * self._rate))
            if due > sent:
                await response.write(self._lines(sent, due))
                sent = due
            await asyncio.sleep(BATCH_SECONDS)
        for start in range(total, 2 * total, 100):
            await response.write(self._lines(start, min(2 * total, start + 100)))
        await asyncio.sleep(3600)
        return response

    def _lines(self, start: int, end: int) -> bytes:
        # Versions are nanoseconds: they grow, and tell the reader when the line was written.
        base = time.time_ns()
        count = len(self._changes)
        return b"".join(
            self._changes[number % count].replace(STAMP, b'"resourceVersion":"%d"' % (base + number - start))
            for number in range(start, end)
        )


def serve(options: argparse.Namespace) -> None:
    """Be the server: print the port, then answer until killed."""

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", Server(options.pods, options.rate, options.seconds).handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())


class Meter:
    """Counts changes and how late they came."""

    def __init__(self) -> None:
        self.count = 0
        self.lags: list[float] = []

    def __call__(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None:
            self.count += 1
            if self.count % 50 == 0:
                self.lags.append(time.time() - int(new.metadata.resource_version) / 1e9)


async def follow(port: int, options: argparse.Namespace) -> None:
    """Be the client: sync, follow, and print what it cost."""
    clock = SystemClock()
    access = Access(server=f"http://127.0.0.1:{port}", trust=ServerTrust(), credentials=Static())
    client = Client(HttpTransport(access), clock=clock)
    informer: Informer[Pod] = Informer(
        client,
        PODS,
        clock=clock,
        indexes={
            "node": lambda each: [each.spec.node_name],
            "owner": lambda each: [owner.uid for owner in each.metadata.owner_references or ()],
            "app": lambda each: [(each.metadata.labels or {}).get("app", "")],
        },
    )
    meter = Meter()
    async with asyncio.TaskGroup() as group:
        wall, cpu = time.perf_counter(), time.process_time()
        task = group.create_task(informer.run())
        await informer.wait_synced()
        print(
            f"first sync of {len(informer.store)} pods: {time.perf_counter() - wall:.2f} s, "
            f"{time.process_time() - cpu:.2f} s CPU, {_memory():.0f} MB resident"
        )
        informer.add_handler(meter)
        total = int(options.rate * options.seconds)
        for name, goal in ((f"paced at {options.rate}/s", total), ("as fast as it goes", 2 * total)):
            wall, cpu, before = time.perf_counter(), time.process_time(), meter.count
            meter.lags.clear()
            while meter.count < goal:  # noqa: ASYNC110 - polling costs nothing here
                await asyncio.sleep(0.05)
            elapsed, used = time.perf_counter() - wall, time.process_time() - cpu
            lags = sorted(meter.lags)
            print(
                f"{name}: {(meter.count - before) / elapsed:.0f} changes/s, {100 * used / elapsed:.0f} % of a core, "
                f"{1e6 * used / (meter.count - before):.0f} µs CPU each, "
                f"lag p50 {1e3 * lags[len(lags) // 2]:.0f} ms, p99 {1e3 * lags[int(len(lags) * 0.99)]:.0f} ms"
            )
        print(f"after it: {_memory():.0f} MB resident, {informer.relists} list")
        task.cancel()
    await client.close()


def _memory() -> float:
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return float("nan")
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:")) / 1024


def main() -> None:
    """Start the server, run the client, stop the server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return
    tune_gc()
    command = [sys.executable, __file__, "--serve", *sys.argv[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            asyncio.run(follow(int(server.stdout.readline()), options))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
