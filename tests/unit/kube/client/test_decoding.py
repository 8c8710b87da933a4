"""Lists and watch lines: in slices, and one bad item at a time."""

import asyncio
import json

import pytest

from kubetide.api.objects.core import ConfigMap
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.codec import SLICE
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.errors import DecodeError
from kubetide.kube.client.decoding import AT_ONCE, Rejected, WatchEvent, decode_page, parse_line
from kubetide.kube.client.errors import ApiError, Gone
from kubetide.kube.client.http import _proxy_from_environment


def test_other_tasks_get_their_turn_while_a_long_list_is_decoded() -> None:
    items = [{"metadata": {"name": f"c{number}", "note": "long " * 100}} for number in range(10 * SLICE)]
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
    assert len(body) > AT_ONCE

    async def main() -> int:
        turns = 0

        async def tick() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(tick())
            _, found, _ = await decode_page(body, ConfigMap)
            ticking.cancel()
        assert len(found) == len(items)
        return turns

    assert run_virtual(main()) >= 9


def test_a_list_without_items_is_empty() -> None:
    for body in (b"{}", b'{"items":null}', b'{"items":[],"metadata":{"continue":"x"}}'):
        meta, items, rejected = asyncio.run(decode_page(body, ConfigMap))
        assert (items, rejected) == ([], [])
    assert meta.continue_ == "x"


def test_what_is_no_list_is_an_error_with_its_path() -> None:
    with pytest.raises(DecodeError, match="/api/v1/configmaps"):
        asyncio.run(decode_page(b"<html>", ConfigMap, what="/api/v1/configmaps"))


def test_a_bookmark_with_nulls_is_read() -> None:
    line = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","creationTimestamp":null},"data":null}}'
    event = parse_line(line, ConfigMap)
    assert isinstance(event, WatchEvent)
    assert (event.type, event.resource_version) == ("BOOKMARK", "7")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"kind": "Status", "code": 410, "reason": "Expired"}, Gone, id="too-old"),
        pytest.param({"kind": "Status", "code": 500}, ApiError, id="other"),
    ],
)
def test_an_error_event_is_raised(status: dict[str, object], expected: type[ApiError]) -> None:
    with pytest.raises(expected):
        parse_line(json.dumps({"type": "ERROR", "object": status}).encode(), ConfigMap)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"type":"ADDED"}', id="no-object"),
        pytest.param(b'{"type":"ADDED","object":{}}', id="no-name"),
        pytest.param(b'{"type":"CHANGED","object":{"metadata":{"name":"a"}}}', id="unknown-type"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{"name":"a"', id="cut-off"),
        pytest.param(b"\xff\xfe", id="no-text"),
    ],
)
def test_what_is_no_event_is_an_error(line: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_line(line, ConfigMap)


def test_an_object_that_does_not_fit_is_named() -> None:
    raw = {"metadata": {"namespace": "x", "name": "a", "resourceVersion": "5"}, "data": [1]}
    event = parse_line(json.dumps({"type": "MODIFIED", "object": raw}).encode(), ConfigMap)
    assert isinstance(event, Rejected)
    assert (event.key, event.resource_version) == (ObjectKey("x", "a"), "5")


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        pytest.param("https://api.example.com:6443", "http://proxy:3128", id="by-scheme"),
        pytest.param("https://api.internal:6443", "", id="excepted"),
        pytest.param("https://127.0.0.1:6443", "", id="this-machine"),
        pytest.param("https://localhost:6443", "", id="this-machine-by-name"),
        pytest.param("http://api.example.com", "", id="no-proxy-for-http"),
    ],
)
def test_the_environment_names_a_proxy(monkeypatch: pytest.MonkeyPatch, server: str, expected: str) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "https_proxy", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", ".internal")
    assert _proxy_from_environment(server) == expected
