"""How many watch events the embedded API server delivers, and what they cost.

    python benchmarks/embedded_watch.py [--watchers 200] [--rate 1000] [--seconds 10] [--batch-ms 20]

The server runs in a process of its own and changes ConfigMaps at the given rate by itself, through its verbs. The
readers, in this process, are raw sockets that count lines: a client that decodes would be the slower side. Lag is the
time from a change to the arrival of its line; both processes read the same steady clock. A second part measures what
one request costs the server in process: CPU time for a get, a create, a patch, and a durable patch.
"""

import argparse
import asyncio
import json
import multiprocessing
import re
import resource
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.journal import Journal

PATH = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"
OBJECTS = 100
STAMP = re.compile(rb'"at":"([0-9.]+)"')


async def change(transport: InProcessTransport, number: int) -> None:
    """Change one object; its value is the time."""
    body = json.dumps({"data": {"at": f"{time.monotonic():.6f}", "filler": "x" * 1000}}).encode()
    answer = await transport.request("PATCH", f"{PATH}/c{number % OBJECTS}", body=body, content_type=MERGE)
    if answer.status != 200:
        raise RuntimeError(answer.body)


async def fill(transport: InProcessTransport) -> None:
    """Create the objects."""
    for number in range(OBJECTS):
        await transport.request("POST", PATH, body=json.dumps({"metadata": {"name": f"c{number}"}}).encode())


def run_server(rate: float, seconds: float, batch: float, pipe: Connection) -> None:
    """The server process: serve, wait for the readers, write, report CPU time."""

    async def main() -> None:
        api = ApiServer(clock=SystemClock())
        transport = InProcessTransport(api)
        await fill(transport)
        async with serve(api, anonymous=True) as serving:
            pipe.send((serving.port, api.store.revision))
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            begin, cpu, number = time.monotonic(), time.process_time(), 0
            while (elapsed := time.monotonic() - begin) < seconds:
                due = int(elapsed * rate)
                async with asyncio.TaskGroup() as group:
                    for each in range(number, due):
                        group.create_task(change(transport, each))
                number = due
                await asyncio.sleep(batch)
            pipe.send((number, time.monotonic() - begin, time.process_time() - cpu))
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    asyncio.run(main())


class Reader(asyncio.Protocol):
    """Counts lines and remembers how late some of them were."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.lines = 0
        self.lags: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.lines += data.count(b'{"type":')
        stamp = STAMP.search(data)
        if stamp is not None:
            self.lags.append(time.monotonic() - float(stamp.group(1)))


async def watch(watchers: int, rate: float, seconds: float, batch: float) -> None:
    """Measure deliveries."""
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    server = processes.Process(target=run_server, args=(rate, seconds, batch, theirs), daemon=True)
    server.start()
    loop = asyncio.get_running_loop()
    port, revision = await loop.run_in_executor(None, ours.recv)
    request = f"GET {PATH}?watch=true&resourceVersion={revision} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    readers = [(await loop.create_connection(lambda: Reader(request), "127.0.0.1", port))[1] for _ in range(watchers)]
    await asyncio.sleep(1)
    ours.send("go")
    written, elapsed, cpu = await loop.run_in_executor(None, ours.recv)
    before = -1
    for _ in range(60):
        seen = sum(reader.lines for reader in readers)
        if seen == before:
            break
        before = seen
        await asyncio.sleep(1)
    ours.send("stop")
    memory = await loop.run_in_executor(None, ours.recv)
    server.join()
    delivered = sum(reader.lines for reader in readers)
    lags = sorted(lag for reader in readers for lag in reader.lags)
    print(f"{watchers} watchers, {written / elapsed:.0f} writes/s for {elapsed:.1f} s")
    print(f"  delivered        {delivered} of {written * watchers} events, {delivered / elapsed:.0f}/s")
    print(f"  server CPU       {100 * cpu / elapsed:.0f} % of a core, {1e6 * cpu / max(delivered, 1):.1f} µs/event")
    print(f"  lag p50 / p99    {1000 * lags[len(lags) // 2]:.1f} / {1000 * lags[int(len(lags) * 0.99)]:.1f} ms")
    print(f"  server memory    {memory / 1024:.0f} MB at most")


async def requests(journal: Journal | None, count: int) -> None:
    """Measure the CPU time of single requests in process."""
    store = journal.load() if journal is not None else None
    api = ApiServer(clock=SystemClock(), store=store)
    if journal is not None:
        journal.start()
    transport = InProcessTransport(api)
    await fill(transport)
    begin = time.process_time()
    if journal is None:
        for number in range(count):
            await transport.request("GET", f"{PATH}/c{number % OBJECTS}")
        print(f"get                {1e6 * (time.process_time() - begin) / count:6.0f} µs CPU")
        begin = time.process_time()
    wall = time.monotonic()
    for start in range(0, count, 50):
        async with asyncio.TaskGroup() as group:
            for number in range(start, start + 50):
                group.create_task(change(transport, number))
    name = "patch" if journal is None else "durable patch"
    rate = count / (time.monotonic() - wall)
    print(f"{name:18} {1e6 * (time.process_time() - begin) / count:6.0f} µs CPU, {rate:.0f}/s with 50 at once")
    if journal is not None:
        await journal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watchers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--batch-ms", type=float, default=20)
    parser.add_argument("--requests", type=int, default=5000)
    options = parser.parse_args()
    asyncio.run(watch(options.watchers, options.rate, options.seconds, options.batch_ms / 1000))
    asyncio.run(requests(None, options.requests))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(requests(Journal(Path(folder)), options.requests))


if __name__ == "__main__":
    main()
