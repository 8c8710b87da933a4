"""Input nobody means well with: every one gets a proper refusal, and the server goes on as if nothing had been."""

import asyncio
import contextlib
import gzip
import json
import ssl
from collections.abc import AsyncIterator

import pytest

from embedded_server import Running, running
from kubetide.embedded.apiserver.http import ServerOptions
from kubetide.kube.client.transport import Response

PATH = "/api/v1/namespaces/default/configmaps"
LIMITS = ServerOptions(body_limit=200_000, header_seconds=0.5, body_seconds=0.5)


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    async with running(LIMITS) as up:
        yield up
        transport = up.transport()
        answer = await transport.request("GET", "/healthz")
        assert (answer.status, answer.body) == (200, b"ok")
        await transport.close()


async def send(server: Running, method: str, path: str, body: bytes | None = None, **options: str) -> Response:
    transport = server.transport()
    try:
        return await transport.request(method, path, body=body, **options)  # type: ignore[arg-type]
    finally:
        await transport.close()


def status_of(answer: Response) -> tuple[int, str]:
    parsed = json.loads(answer.body)
    assert parsed["kind"] == "Status"
    assert parsed["code"] == answer.status
    return answer.status, parsed["reason"]


DEEP = b'{"metadata":{"name":"deep"},"data":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_001


LARGE = b'{"metadata":{"name":"a"},"data":"' + b"x" * 300_000 + b'"}'
SMUGGLED = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"", (400, "BadRequest"), id="empty"),
        pytest.param(b"[]", (400, "BadRequest"), id="a-list"),
        pytest.param(b'"text"', (400, "BadRequest"), id="a-text"),
        pytest.param(b"{", (400, "BadRequest"), id="half"),
        pytest.param(DEEP, (400, "BadRequest"), id="deep"),
        pytest.param(b'{"metadata":{"name":"\xff\xfe"}}', (400, "BadRequest"), id="bad-utf8"),
        pytest.param(b'{"metadata":[]}', (400, "BadRequest"), id="metadata-is-a-list"),
        pytest.param(b'{"metadata":{"name":7}}', (400, "BadRequest"), id="name-is-a-number"),
        pytest.param(b'{"metadata":{"name":"../../etc/passwd"}}', (422, "Invalid"), id="traversal-in-the-name"),
        pytest.param(b'{"metadata":{"name":"a","labels":{"x":1}}}', (400, "BadRequest"), id="label-is-a-number"),
        pytest.param(b'{"metadata":{"name":"a","labels":"x"}}', (400, "BadRequest"), id="labels-are-a-text"),
        pytest.param(b'{"metadata":{"name":"a","finalizers":"x"}}', (400, "BadRequest"), id="finalizers-are-a-text"),
        pytest.param(b'{"kind":"Pod","metadata":{"name":"a"}}', (400, "BadRequest"), id="another-kind"),
        pytest.param(LARGE, (413, "RequestEntityTooLarge"), id="too-large"),
    ],
)  # fmt: skip
async def test_a_bad_body_is_refused(server: Running, body: bytes, expected: tuple[int, str]) -> None:
    assert status_of(await send(server, "POST", PATH, body)) == expected


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": "x"}, id="containers-are-a-text"),
        pytest.param({"containers": [1, 2]}, id="containers-are-numbers"),
        pytest.param({"containers": [{"name": 1, "image": 2}]}, id="names-are-numbers"),
        pytest.param({"containers": [{"name": "a", "image": "b", "resources": 3}]}, id="resources-are-a-number"),
        pytest.param(
            {"containers": [{"name": "a", "image": "b", "resources": {"requests": {"cpu": "lots"}}}]}, id="no-quantity"
        ),
        pytest.param(7, id="spec-is-a-number"),
    ],
)
async def test_a_pod_that_is_no_pod_is_refused(server: Running, spec: object) -> None:
    body = json.dumps({"metadata": {"name": "a"}, "spec": spec}).encode()
    answer = await send(server, "POST", "/api/v1/namespaces/default/pods", body)
    assert answer.status in (400, 422), answer.body


@pytest.mark.parametrize(
    ("path", "code"),
    [
        pytest.param("/api/v1/namespaces/../configmaps", 400, id="dots"),
        pytest.param("/api/v1/namespaces/default/configmaps/..%2F..%2Fsecrets", 400, id="quoted-slash"),
        pytest.param("/api/v1/namespaces/default/configmaps/%00", 400, id="zero-byte"),
        pytest.param("/api/v1/namespaces/default/configmaps/%ff%fe", 400, id="bad-utf8"),
        pytest.param("/api/v1/namespaces/%2e%2e/configmaps", 400, id="quoted-dots"),
        pytest.param("/static/../../../../etc/passwd", 400, id="files"),
        pytest.param("/" + "a" * 20_000, 400, id="long"),
        pytest.param(f"{PATH}?labelSelector=%ff", 400, id="bad-query"),
        pytest.param(f"{PATH}?labelSelector=a%20b%20c", 400, id="bad-selector"),
        pytest.param(f"{PATH}?limit=-1", 400, id="negative-limit"),
        pytest.param(f"{PATH}?continue=nonsense", 400, id="bad-token"),
        pytest.param(f"{PATH}?resourceVersion=abc", 400, id="bad-version"),
        pytest.param(f"{PATH}?watch=true&resourceVersion=99999999999999999999999", 400, id="huge-version"),
        pytest.param(f"{PATH}?resourceVersion=999999999", 504, id="version-of-the-future"),
    ],
)
async def test_a_bad_path_or_query_is_refused(server: Running, path: str, code: int) -> None:
    answer = await send(server, "GET", path)
    assert answer.status == code, answer.body


@pytest.mark.parametrize(
    ("content_type", "code"),
    [
        pytest.param("application/x-www-form-urlencoded", 415, id="form"),
        pytest.param("text/plain", 415, id="text"),
        pytest.param("application/vnd.kubernetes.protobuf", 400, id="protobuf-that-is-none"),
        pytest.param("application/cbor", 415, id="cbor"),
    ],
)
async def test_an_unknown_content_type_is_refused(server: Running, content_type: str, code: int) -> None:
    answer = await send(server, "POST", PATH, b'{"metadata":{"name":"a"}}', content_type=content_type)
    assert answer.status == code


async def test_an_answer_nobody_could_make_is_not_acceptable(server: Running) -> None:
    answer = await send(server, "GET", PATH, accept="image/png")
    assert status_of(answer) == (406, "NotAcceptable")


async def test_yaml_that_explodes_is_refused(server: Running) -> None:
    lines = ["metadata: {name: bomb}", "a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    answer = await send(server, "POST", PATH, "\n".join(lines).encode(), content_type="application/yaml")
    assert answer.status in (400, 413, 422)


async def test_a_body_that_grows_when_unpacked_is_refused(server: Running) -> None:
    reader, writer = await connect(server)
    packed = gzip.compress(b'{"metadata":{"name":"a"},"data":{"x":"' + b"y" * 50_000_000 + b'"}}')
    writer.write(head(server, "POST", PATH, f"Content-Encoding: gzip\r\nContent-Length: {len(packed)}") + packed)
    answer = await reader.readline()
    writer.close()
    assert b" 413 " in answer or b" 400 " in answer


async def test_a_body_that_never_ends_is_cut_off(server: Running) -> None:
    reader, writer = await connect(server)
    writer.write(head(server, "POST", PATH, "Content-Length: 1000") + b'{"metadata"')
    answer = await asyncio.wait_for(reader.readline(), 20)
    writer.close()
    assert b" 504 " in answer


async def test_headers_that_never_end_are_cut_off(server: Running) -> None:
    slow = [await connect(server) for _ in range(20)]
    for _, writer in slow:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    for reader, writer in slow:
        with contextlib.suppress(ConnectionError):
            assert b"200" not in await asyncio.wait_for(reader.read(1000), 20)
        writer.close()


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"\x16\x03\x01\x02\x00" * 50, id="tls-inside-tls"),
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", id="no-such-http"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n", id="long-header"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", id="negative-length"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
            id="smuggling",
        ),
        pytest.param(b"\x00" * 10_000, id="zeros"),
    ],
)
async def test_what_is_not_http_is_closed(server: Running, garbage: bytes) -> None:
    reader, writer = await connect(server)
    writer.write(garbage)
    try:
        answer = await asyncio.wait_for(reader.readline(), 20)
    except ConnectionError:
        answer = b""
    writer.close()
    assert b" 200 " not in answer


async def connect(server: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context(cadata=server.identity.ca.certificate)
    return await asyncio.open_connection("127.0.0.1", server.serving.port, ssl=context)


def head(server: Running, method: str, path: str, more: str) -> bytes:
    token = server.identity.token
    lines = (f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", more)
    return "\r\n".join(lines).encode() + b"\r\n\r\n"
