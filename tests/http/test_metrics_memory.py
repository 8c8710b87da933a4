"""Many large metrics answers at once take the memory of one."""

import asyncio
import tracemalloc

from aiohttp import web

from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust
from kubetide.kube.listener import listening
from kubetide.kube.metrics import ResourceMetrics

ANSWERS = 8
LENGTH = 8 * 1024 * 1024
BLANKS = b" " * (256 * 1024)


async def answer(request: web.Request) -> web.StreamResponse:
    """Answer with one sample and blanks, which JSON allows, without saying how many."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b'{"items":[{"metadata":{"name":"web-0"},"containers":[]}')
    for _ in range(LENGTH // len(BLANKS)):
        await response.write(BLANKS)
    await response.write(b"]}")
    return response


async def test_large_answers_are_not_in_memory_together() -> None:
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with listening(web.AppRunner(app, access_log=None, shutdown_timeout=0.1), "127.0.0.1", 0) as port:
        access = Access(server=f"http://127.0.0.1:{port}", trust=ServerTrust(), credentials=Static(()))
        client = Client(HttpTransport(access), clock=SystemClock())
        metrics = ResourceMetrics(client)
        tracemalloc.start()
        try:
            found = await asyncio.gather(*(metrics.pods(f"namespace-{number}") for number in range(ANSWERS)))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            await client.close()
    assert [len(items) for items in found] == [1] * ANSWERS
    # One that is read (its buffer grows by copying), and the beginnings of the others.
    assert peak < 4 * LENGTH
