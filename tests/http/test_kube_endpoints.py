"""Metrics, health, readiness and explanations over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from kubetide.kube.endpoints import Endpoints, is_loopback
from kubetide.telemetry import Telemetry


class Component:
    """Something with a health, a readiness and an opinion."""

    fine = True
    started = False

    def healthy(self) -> bool:
        return self.fine

    def ready(self) -> bool:
        return self.started

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        return {"kind": kind, "key": key, "decision": "keep"} if kind in ("hpa", "node") else None


@asynccontextmanager
async def serving(component: Component, telemetry: Telemetry | None = None, **options: Any) -> AsyncIterator[str]:
    endpoints = Endpoints(
        telemetry or Telemetry(),
        healthy=component.healthy,
        ready=component.ready,
        explain=component.explain,
        host="127.0.0.1",
        port=0,
        **options,
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(endpoints.run())
        async with asyncio.timeout(10):
            while not endpoints.ready():  # noqa: ASYNC110 - readiness has no event
                await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{endpoints.port}"
        task.cancel()


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_telemetry_is_shown_in_the_prometheus_format() -> None:
    telemetry = Telemetry()
    telemetry.counter("kubetide_things_total", "Things.", ("kind",)).labels("good").inc(3)
    async with serving(Component(), telemetry) as url:
        for path in ("metrics", "internal-metrics", "external-metrics", "all-metrics"):
            status, text = await get(f"{url}/{path}")
            assert status == 200
            assert 'kubetide_things_total{kind="good"} 3.0' in text


async def test_health_and_readiness_follow_the_component() -> None:
    component = Component()
    async with serving(component) as url:
        assert (await get(f"{url}/readyz"))[0] == 503
        component.started = True
        assert (await get(f"{url}/readyz")) == (200, "ok")
        for path in ("/healthz", "/livez"):
            assert (await get(url + path)) == (200, "ok")
        assert (await get(f"{url}/health-check")) == (200, "OK")
        component.fine = False
        for path in ("/healthz", "/livez"):
            assert (await get(url + path))[0] == 503
        status, text = await get(f"{url}/health-check")
        assert (status, text.split(":")[0]) == (500, "Error")


async def test_what_components_have_to_tell_stands_below_the_verdict() -> None:
    component = Component()
    notes = ["hpa: stands by"]
    async with serving(component, notes=lambda: notes) as url:
        assert await get(f"{url}/readyz") == (503, "not yet\nhpa: stands by")
        component.started = True
        for path in ("/healthz", "/livez", "/readyz"):
            assert await get(url + path) == (200, "ok\nhpa: stands by")
        notes.clear()
        assert await get(f"{url}/healthz") == (200, "ok")


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        pytest.param("/explain/hpa/shop/web", 200, '"key":"shop/web"', id="namespaced"),
        pytest.param("/explain/node/n1", 200, '"key":"n1"', id="cluster-scoped"),
        pytest.param("/explain/pod/shop/web", 404, "nothing is known about pod shop/web", id="unknown"),
        pytest.param("/explain/hpa", 404, "", id="no-name"),
    ],
)
async def test_decisions_are_explained(path: str, status: int, text: str) -> None:
    async with serving(Component()) as url:
        answered, body = await get(url + path)
        assert answered == status
        assert text in body


async def test_explanations_are_for_loopback_or_those_with_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubetide.kube.endpoints.is_loopback", lambda _: False)
    async with serving(Component(), explain_token="secret") as url, aiohttp.ClientSession() as session:
        for headers, expected in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 403),
            ({"Authorization": "secret"}, 403),
            ({"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1"}, 401),
            ({"Authorization": "Bearer secret"}, 200),
        ):
            async with session.get(f"{url}/explain/hpa/shop/web", headers=headers) as response:
                assert response.status == expected


async def test_without_a_token_explanations_are_for_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubetide.kube.endpoints.is_loopback", lambda _: False)
    async with serving(Component()) as url, aiohttp.ClientSession() as session:
        for presented in ("Bearer ", "Bearer", ""):
            headers = {"Authorization": presented} if presented else {}
            async with session.get(f"{url}/explain/hpa/shop/web", headers=headers) as response:
                assert response.status in (401, 403)
                assert "decision" not in await response.text()
        for path in ("/metrics", "/healthz", "/readyz"):
            async with session.get(url + path) as response:
                assert response.status in (200, 503), "probes and scrapes need no token"


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), (None, False), ("unix", False)],
)
def test_which_peers_are_of_this_machine(address: str | None, expected: bool) -> None:
    assert is_loopback(address) is expected
