"""What one write costs the client: CPU of a status patch, with the event loop of the standard library and with uvloop.

    python benchmarks/write_requests.py [--writes 2000] [--runs 5] [--plain]

The embedded API server runs in a process of its own, over TLS unless `--plain`. Each run is a fresh client process, the
loops in turn; shown are medians. uvloop is no dependency: without it only the standard loop is measured.
"""

import argparse
import asyncio
import importlib.util
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

from kubetide import crds
from kubetide.api.objects.scheme import VPAS
from kubetide.api.values.patch import JsonPatch
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.identity import make_identity
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust
from kubetide.testing.builders import make_vpa

OBJECTS, WORKERS = 100, 10


def be_server(pipe: Connection, tls: bool) -> None:
    """Serve VPAs until told to stop."""

    async def main() -> None:
        clock = SystemClock()
        api = ApiServer(clock=clock)
        for crd in crds.load_all():
            api.insert(crd)
        for number in range(OBJECTS):
            api.insert(make_vpa(f"web-{number}", target="web"))
        context = make_identity(None, now=clock.now()).tls("127.0.0.1", now=clock.now()) if tls else None
        async with serve(api, anonymous=True, tls=context) as serving:
            pipe.send(serving.url)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(main())


def status(number: int) -> dict[str, Any]:
    """Return the status of a VPA with two containers."""
    amounts = {"cpu": f"{100 + number % 50}m", "memory": str(262144000 + number)}
    entries = [
        {"containerName": name, "target": amounts, "lowerBound": amounts, "upperBound": amounts}
        for name in ("app", "proxy")
    ]
    return {"recommendation": {"containerRecommendations": entries}, "conditions": []}


def be_client(pipe: Connection, url: str, writes: int, loop: str) -> None:
    """Write statuses and send the CPU seconds that took."""

    async def main() -> float:
        trust = ServerTrust(insecure=url.startswith("https"))
        client = Client(HttpTransport(Access(server=url, trust=trust, credentials=Static())), clock=SystemClock())
        queue = list(range(writes))

        async def worker() -> None:
            while queue:
                number = queue.pop()
                patch = JsonPatch([{"op": "add", "path": "/status", "value": status(number)}])
                name = f"web-{number % OBJECTS}"
                await client.send_patch(VPAS, name, patch, namespace="default", subresource="status")

        await client.list(VPAS)
        started = time.process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(worker())
        spent = time.process_time() - started
        await client.close()
        return spent

    if loop == "uvloop":
        import uvloop

        pipe.send(uvloop.run(main()))
    else:
        pipe.send(asyncio.run(main()))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writes", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="HTTP instead of TLS")
    options = parser.parse_args()
    loops = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    serving = context.Process(target=be_server, args=(far, not options.plain), daemon=True)
    serving.start()
    url = near.recv()
    spent: dict[str, list[float]] = {loop: [] for loop in loops}
    for _ in range(options.runs):
        for loop in loops:
            mine, theirs = context.Pipe()
            running = context.Process(target=be_client, args=(theirs, url, options.writes, loop), daemon=True)
            running.start()
            spent[loop].append(mine.recv() / options.writes * 1e6)
            running.join()
    near.send("stop")
    serving.join()
    for loop, figures in spent.items():
        each = ", ".join(f"{figure:.0f}" for figure in sorted(figures))
        print(f"{loop:8s} {statistics.median(figures):6.0f} µs of CPU a write ({each})")


if __name__ == "__main__":
    main()
