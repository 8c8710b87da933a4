"""Memory of metrics lists that are read at once: `python benchmarks/metrics_answers.py [--lists 8] [--pods 200000]`.

`--unbounded` reads them without a budget and gives nothing back, for comparison. The server is in the same process and
makes its answers as it sends them, so what it adds is small.
"""

import argparse
import asyncio
from pathlib import Path

from aiohttp import web

from kubetide.clock import SystemClock
from kubetide.errors import KubetideError
from kubetide.kube.client.answers import AnswerBudget
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust
from kubetide.kube.listener import listening
from kubetide.kube.metrics import ResourceMetrics

ITEM = (
    b'{"metadata":{"name":"web-%06d","namespace":"default","labels":{"app":"web"}},"timestamp":"2026-01-01T00:00:00Z",'
    b'"window":"15s","containers":[{"name":"main","usage":{"cpu":"1m","memory":"1Mi"}}]}'
)
AT_ONCE = 2000


def memory() -> str:
    """Return how much memory this process has, and had at most."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    now, most = (int(lines[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM"))
    return f"{now} MB resident, {most} MB at most"


def server(pods: int) -> web.AppRunner:
    """Return a metrics API that does not say how long its answers are."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"items":[')
        for start in range(0, pods, AT_ONCE):
            some = b",".join(ITEM % number for number in range(start, min(pods, start + AT_ONCE)))
            await response.write(some if start == 0 else b"," + some)
        await response.write(b"]}")
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    return web.AppRunner(app, access_log=None, shutdown_timeout=0.1)


async def main(lists: int, pods: int, *, unbounded: bool) -> None:
    """Read the lists and print the memory."""
    async with listening(server(pods), "127.0.0.1", 0) as port:
        access = Access(server=f"http://127.0.0.1:{port}", trust=ServerTrust(), credentials=Static(()))
        client = Client(HttpTransport(access), clock=SystemClock(), timeout=600)
        if unbounded:
            client.answers = AnswerBudget(1 << 40, give_back=lambda: None)
        metrics = ResourceMetrics(client)

        async def read(namespace: str) -> str:
            try:
                return f"{len(await metrics.pods(namespace))} samples"
            except KubetideError as error:
                return str(error)

        print("before:", memory())
        for found in sorted(set(await asyncio.gather(*(read(f"namespace-{number}") for number in range(lists))))):
            print("read:  ", found)
        print("after: ", memory())
        await client.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lists", type=int, default=8)
    parser.add_argument("--pods", type=int, default=200_000)
    parser.add_argument("--unbounded", action="store_true")
    chosen = parser.parse_args()
    asyncio.run(main(chosen.lists, chosen.pods, unbounded=chosen.unbounded))
