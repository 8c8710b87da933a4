"""Asking a kubelet over HTTP: its pods, its configuration, and what happens when it does not answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from kubetide.cli.node.command import _kubelet
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static, bearer
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust
from kubetide.kube.listener import listening
from kubetide.node.settings import NodeSettings, PodSource
from kubetide.node.state.kubelet import HttpKubelet

ACCESS = Access(server="http://unused", trust=ServerTrust(), credentials=Static(bearer("secret")))


@asynccontextmanager
async def kubelet_at() -> AsyncIterator[tuple[int, list[str]]]:
    """Serve a kubelet's read-only port; yield the port and the credentials it saw."""
    seen: list[str] = []

    async def pods(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response({"items": [{"metadata": {"name": "a", "uid": "a"}}]})

    async def config(request: web.Request) -> web.Response:
        return web.json_response({"kubeletconfig": {"cpuManagerPolicy": "static"}})

    app = web.Application()
    app.router.add_get("/pods/", pods)
    app.router.add_get("/configz", config)
    runner = web.AppRunner(app, access_log=None)
    async with listening(runner, "127.0.0.1", 0) as port:
        yield port, seen


def api_client(address: str | None) -> Client:
    clock = SystemClock()
    api = ApiServer(clock=clock)
    addresses = [{"type": "InternalIP", "address": address}] if address else []
    node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}}
    api.insert({**node, "status": {"addresses": addresses}})
    return Client(InProcessTransport(api), clock=clock)


def settings(port: int, source: PodSource = PodSource.AUTO) -> NodeSettings:
    return NodeSettings(
        node_name="here", kubelet_insecure_tls=True, kubelet_read_only_port=port, pod_source=source, audit_log_dir=""
    )


async def test_a_kubelet_that_answers_is_used_with_the_agents_identity() -> None:
    async with kubelet_at() as (port, seen):
        found = await _kubelet(api_client("127.0.0.1"), ACCESS, settings(port))
        assert isinstance(found, HttpKubelet)
        assert b'"uid": "a"' in await found.pods()
        assert (await found.config())["kubeletconfig"]["cpuManagerPolicy"] == "static"
        assert set(seen) == {"Bearer secret"}
        await found.close()


async def test_without_an_answer_the_api_server_is_asked_instead() -> None:
    assert await _kubelet(api_client("127.0.0.1"), ACCESS, settings(1)) is None
    assert await _kubelet(api_client(None), ACCESS, settings(1)) is None


async def test_a_kubelet_that_was_asked_for_must_answer() -> None:
    with pytest.raises(KubetideError):
        await _kubelet(api_client("127.0.0.1"), ACCESS, settings(1, PodSource.KUBELET))


async def test_the_api_server_can_be_chosen() -> None:
    async with kubelet_at() as (port, seen):
        assert await _kubelet(api_client("127.0.0.1"), ACCESS, settings(port, PodSource.API_SERVER)) is None
        assert seen == []


async def test_a_rejection_is_an_error_with_its_reason() -> None:
    async with kubelet_at() as (port, _):
        access = Access(server=f"http://127.0.0.1:{port}", trust=ServerTrust(), credentials=Static())
        from kubetide.kube.client.http import HttpTransport

        kubelet = HttpKubelet(HttpTransport(access))
        with pytest.raises(KubetideError):
            await kubelet._get("/nowhere")
        await kubelet.close()
