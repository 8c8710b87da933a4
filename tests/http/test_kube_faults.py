"""What a network and a server do wrong, over real sockets: the client ends up right, with bounded memory."""

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from faulty_api import FaultPlan, FaultyApi, FaultyTransport
from faulty_server import FaultyServer
from kubetide.api.objects.core import ConfigMap
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import CONFIG_MAPS, PODS
from kubetide.clock import SystemClock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.errors import ConnectionLost, RequestTimeout, ResponseTooLarge
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust
from kubetide.kube.client.transport import Response
from kubetide.kube.listener import listening
from kubetide.kube.pacing import Backoff

COLLECTION = "/api/v1/configmaps"
QUICK = Backoff(base=0.01, cap=0.05)


def config_map(name: str, colour: str = "red") -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name}, "data": {"colour": colour}}


def access(url: str) -> Access:
    return Access(server=url, trust=ServerTrust(), credentials=Static())


@asynccontextmanager
async def client_of(url: str, **options: Any) -> AsyncIterator[Client]:
    client = Client(HttpTransport(access(url), **options), clock=SystemClock(), rng=random.Random(1))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def following(client: Client) -> AsyncIterator[Informer[ConfigMap]]:
    informer: Informer[ConfigMap] = Informer(client, CONFIG_MAPS, clock=client.clock, backoff=QUICK)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        yield informer
        task.cancel()


@asynccontextmanager
async def raw_server(handler: Callable[[web.Request], Any]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    async with listening(runner, "127.0.0.1", 0) as port:
        yield f"http://127.0.0.1:{port}"


async def first_line(client: Client) -> bytes:
    async with client.transport.watch(COLLECTION, query={"watch": "true", "timeoutSeconds": "0"}) as lines:
        return await anext(aiter(lines), b"")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the state of a store has no event
            await asyncio.sleep(0.01)


def same(informer: Informer[ConfigMap], api: FaultyApi) -> Callable[[], bool]:
    def check() -> bool:
        stored = {
            ObjectKey(each.metadata.namespace, each.metadata.name): each.metadata.resource_version
            for each in informer.store.values()
        }
        return stored == {key: raw["metadata"]["resourceVersion"] for key, raw in api.objects(COLLECTION).items()}

    return check


async def test_a_server_that_is_down_at_start_is_waited_for() -> None:
    api = FaultyApi()
    api.put(COLLECTION, config_map("a"))
    server = FaultyServer(FaultyTransport(api))
    await server.start()
    await server.stop()
    async with client_of(server.url) as client, following(client) as informer:
        with pytest.raises(ConnectionLost):
            await client.get(CONFIG_MAPS, "a", namespace="shop")
        assert len(informer.store) == 0
        await server.start()
        await until(same(informer, api))
        assert informer.has_synced
        await server.stop()


async def test_a_restart_in_the_middle_of_a_watch_loses_nothing() -> None:
    api = FaultyApi()
    api.put(COLLECTION, config_map("a"))
    server = FaultyServer(FaultyTransport(api))
    await server.start()
    async with client_of(server.url) as client, following(client) as informer:
        await until(lambda: informer.has_synced)
        await server.stop()
        api.put(COLLECTION, config_map("b"))
        api.remove(COLLECTION, ObjectKey("shop", "a"))
        await server.start()
        await until(same(informer, api))
        assert [each.metadata.name for each in informer.store.values()] == ["b"]
        assert informer.relists == 1
        api.put(COLLECTION, config_map("c"))
        await until(same(informer, api))
        await server.stop()


async def test_a_restart_that_forgets_history_leads_to_a_new_list() -> None:
    api = FaultyApi()
    api.put(COLLECTION, config_map("a"))
    server = FaultyServer(FaultyTransport(api))
    await server.start()
    async with client_of(server.url) as client, following(client) as informer:
        await until(lambda: informer.has_synced)
        await server.stop()
        api.put(COLLECTION, config_map("b"))
        api.remove(COLLECTION, ObjectKey("shop", "a"))
        api.forget_history()
        await server.start()
        await until(same(informer, api))
        assert informer.relists == 2
        await server.stop()


class Storm(FaultPlan):
    """For a while, most things go wrong."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.raging = True
        self.count = 0

    def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
        if not self.raging or self.rng.random() < 0.3:
            return None
        self.count += 1
        kind = self.rng.choice(("reset", "busy", "broken"))
        if kind == "reset":
            raise ConnectionLost("reset")
        if kind == "busy":
            return Response(429, {"retry-after": "0.01"}, b'{"kind":"Status","code":429,"reason":"TooManyRequests"}')
        return Response(500, {}, b'{"kind":"Status","code":500,"reason":"InternalError"}')

    def lines(self, line: bytes) -> Iterable[bytes | Exception]:
        if not self.raging or self.rng.random() < 0.6:
            return (line,)
        return (line[: self.rng.randrange(len(line))], ConnectionLost("reset"))


@pytest.mark.parametrize("seed", range(3))
async def test_a_storm_of_rejections_and_resets_ends_in_the_servers_state(seed: int) -> None:
    api, storm = FaultyApi(), Storm(seed)
    async with (
        FaultyServer(FaultyTransport(api, storm)) as server,
        client_of(server.url) as client,
        following(client) as informer,
    ):
        for number in range(100):
            api.put(COLLECTION, config_map(f"c{number % 7}", str(number)))
            if number % 5 == 0:
                api.remove(COLLECTION, ObjectKey("shop", f"c{(number + 3) % 7}"))
            await asyncio.sleep(0.005)
        storm.raging = False
        await until(same(informer, api))
        assert storm.count > 0


async def test_an_expired_continue_token_starts_the_list_over() -> None:
    class Forgets(FaultPlan):
        def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
            if query.get("continue"):
                api.put(COLLECTION, config_map("late"))
                api.forget_history()
            return None

    api = FaultyApi()
    for number in range(10):
        api.put(COLLECTION, config_map(f"c{number}"))
    async with FaultyServer(FaultyTransport(api, Forgets())) as server, client_of(server.url) as client:
        listing = await client.list(CONFIG_MAPS, limit=4)
        assert len(listing.items) == 11


async def test_a_line_that_is_no_json_leads_to_a_new_list() -> None:
    class Garbles(FaultPlan):
        done = False

        def lines(self, line: bytes) -> Iterable[bytes | Exception]:
            if self.done:
                return (line,)
            self.done = True
            return (b'{"type":"ADDED","object":{"metadata":{"name"\xff\xfe garbage',)

    api = FaultyApi()
    async with (
        FaultyServer(FaultyTransport(api, Garbles())) as server,
        client_of(server.url) as client,
        following(client) as informer,
    ):
        await until(lambda: informer.has_synced)
        api.put(COLLECTION, config_map("a"))
        await until(same(informer, api))
        assert informer.relists == 2


async def test_a_slow_reader_holds_the_server_back_instead_of_filling_memory() -> None:
    line = json.dumps({"type": "ADDED", "object": config_map("x" * 50, "y" * 64_000)}).encode() + b"\n"
    total = 2000
    sent = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(total):
            await response.write(line)
            sent += 1
        return response

    async with (
        raw_server(flood) as url,
        client_of(url) as client,
        client.transport.watch(COLLECTION, query={"watch": "true"}) as lines,
    ):
        iterator = aiter(lines)
        await anext(iterator)
        previous = -1
        while sent != previous:  # until the pipe is full
            previous = sent
            await asyncio.sleep(0.1)
        # 128 MB wait on the server's side; what is under way is a few buffers.
        assert sent < total / 4
        received = 1
        async for _ in iterator:
            received += 1
        assert received == total


async def test_a_silent_server_is_given_up_in_time() -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(30)
        return response

    async with raw_server(silent) as url, client_of(url, silence=0.05) as client:
        with pytest.raises(RequestTimeout, match="no answer within"):
            await client.request("GET", "/api", timeout=0.05)
        with pytest.raises(RequestTimeout, match="silent"):
            await first_line(client)


@pytest.mark.parametrize("form", ["declared", "chunked", "gzip", "line"])
async def test_a_body_over_the_limit_is_refused_before_it_is_read_to_the_end(form: str) -> None:
    megabyte = b"x" * (1 << 20)
    written = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal written
        if form == "gzip":
            bomb = gzip.compress(b" " * (64 << 20))
            written += len(bomb)
            return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})
        response = web.StreamResponse()
        if form == "declared":
            response.content_length = 64 << 20
        await response.prepare(request)
        try:
            for _ in range(64):
                await response.write(megabyte)
                written += len(megabyte)
        except ConnectionError:
            pass
        return response

    async with raw_server(endless) as url, client_of(url, body_limit=2 << 20) as client:
        with pytest.raises(ResponseTooLarge, match="longer than the limit of 2097152 bytes"):
            await (first_line(client) if form == "line" else client.list(CONFIG_MAPS))
        assert written < 32 << 20
        # The client is as good as before.
        with pytest.raises(ResponseTooLarge):
            await client.list(CONFIG_MAPS)


async def test_a_list_of_165_megabytes_is_read_within_the_default_limit() -> None:
    managed = [{"manager": "kubelet", "fieldsV1": {f"f:{'k' * 40}-{number}": {} for number in range(120)}}]
    pod = {
        "metadata": {"name": "web-NNNNN", "namespace": "shop", "managedFields": managed},
        "spec": {"nodeName": "node-1", "containers": [{"name": "app", "image": "x" * 1000}]},
        "status": {"phase": "Running"},
    }
    item = json.dumps(pod).encode()
    count = 165_000_000 // len(item)

    async def long_list(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"metadata":{"resourceVersion":"7"},"items":[')
        step = 500
        for start in range(0, count, step):
            names = (b"web-%05d" % number for number in range(start, min(count, start + step)))
            chunk = b",".join(item.replace(b"web-NNNNN", name) for name in names)
            await response.write(chunk if start == 0 else b"," + chunk)
        await response.write(b"]}")
        return response

    async with raw_server(long_list) as url, client_of(url) as client:
        listing = await client.list(PODS, limit=0)
        assert len(listing.items) == count
        assert listing.items[-1].metadata.name == f"web-{count - 1:05}"
        assert listing.resource_version == "7"


async def test_answers_come_compressed_where_the_server_likes() -> None:
    async def compressed(request: web.Request) -> web.Response:
        assert "gzip" in request.headers["Accept-Encoding"]
        body = gzip.compress(json.dumps({"metadata": {"resourceVersion": "1"}, "items": [config_map("a")]}).encode())
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async with raw_server(compressed) as url, client_of(url) as client:
        assert len((await client.list(CONFIG_MAPS)).items) == 1


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="closed-without-a-word"),
        pytest.param(b"HTTP/1.1 200", id="half-a-status-line"),
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x16", id="tls-on-a-plain-port"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="another-protocol"),
        pytest.param(HEAD + b"Content-Length: 100\r\n\r\n{}", id="shorter-than-declared"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", id="a-chunk-without-a-size"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", id="chunks-without-an-end"),
        pytest.param(HEAD + b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\nno gzip!!", id="no-gzip"),
        pytest.param(HEAD + b"X: " + b"y" * 100_000 + b"\r\n\r\n", id="a-header-without-an-end"),
        pytest.param(b"HTTP/1.1 500 Oops\r\nContent-Length: 50\r\n\r\n{", id="half-a-refusal"),
    ],
)
async def test_a_broken_answer_is_a_lost_connection(answer: bytes) -> None:
    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answers, "127.0.0.1", 0)
    async with server, client_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        with pytest.raises(ConnectionLost):
            await client.request("GET", "/api")
        with pytest.raises(ConnectionLost):
            await first_line(client)


async def test_a_closed_transport_reports_it() -> None:
    async with client_of("http://127.0.0.1:1") as client:
        await client.close()
        with pytest.raises(ConnectionLost, match="closed"):
            await client.request("GET", "/api")


async def test_connections_are_used_again() -> None:
    ports: set[int] = set()

    async def note(request: web.Request) -> web.Response:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        return web.json_response(config_map("a"))

    async with raw_server(note) as url, client_of(url) as client:
        for _ in range(10):
            await client.get(CONFIG_MAPS, "a", namespace="shop")
        assert len(ports) == 1


async def test_names_and_selectors_are_escaped_once() -> None:
    seen: list[tuple[str, str]] = []

    async def note(request: web.Request) -> web.Response:
        seen.append((request.rel_url.raw_path, request.query.get("labelSelector", "")))
        return web.json_response({"items": []})

    async with raw_server(note) as url, client_of(url) as client:
        await client.list(CONFIG_MAPS, label_selector="app in (a,b),x!=1&2")
        await client.request("GET", "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/a%7Cb")
    assert seen == [
        (COLLECTION, "app in (a,b),x!=1&2"),
        ("/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/a%7Cb", ""),
    ]
