"""A dashboard of a kubeconfig with several contexts: each cluster by itself, and one that is away is a page."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from dashboard_world import PATIENCE, cluster, template, visitor
from embedded_server import Running
from kubetide.api.objects.scheme import DEPLOYMENTS
from kubetide.cli.dashboard.command import Options, served
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client


def merged(named: dict[str, Running], away: str) -> str:
    """Return one kubeconfig with a context per server, and one for a server that nobody answers at."""
    found: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}
    files = {name: yaml.safe_load(server.identity.kubeconfig(server.serving.url)) for name, server in named.items()}
    nowhere = {"clusters": [{"cluster": {"server": away}}], "users": [{"user": {"token": "none"}}]}
    for name, each in {**files, "away": nowhere}.items():
        for part in ("clusters", "users"):
            found[part].append({**each[part][0], "name": name})
        found["contexts"].append({"name": name, "context": {"cluster": name, "user": name}})
    return yaml.safe_dump({**found, "current-context": next(iter(named))})


@asynccontextmanager
async def two_clusters(folder: Path) -> AsyncIterator[str]:
    """Serve a dashboard of two clusters; only the second has a Deployment `blue`."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        away = f"https://127.0.0.1:{taken.getsockname()[1]}"
        async with cluster() as green, cluster() as blue, asyncio.timeout(PATIENCE):
            client = Client(blue.transport(), clock=SystemClock())
            spec = {"replicas": 1, "selector": {"matchLabels": {"app": "blue"}}, "template": template("blue")}
            await client.create(DEPLOYMENTS, {"metadata": {"name": "blue"}, "spec": spec}, namespace="shop")
            await client.close()
            file = folder / "config"
            file.write_text(merged({"green/1": green, "blue": blue}, away))
            file.chmod(0o600)
            async with served(Options(kubeconfig=file, port=0, interval=timedelta(milliseconds=200))) as url:
                yield url.rstrip("/")


async def names(session: aiohttp.ClientSession, url: str) -> set[tuple[str, str]]:
    async with session.get(f"{url}/workloads?format=json") as answer:
        assert answer.status == 200, await answer.text()
        rows = (await answer.json())["workloads"]["rows"]
    return {(row["namespace"], row["name"]) for row in rows}


async def test_each_context_is_a_cluster_by_itself(tmp_path: Path) -> None:
    both = {("shop", "web"), ("other", "web")}
    async with two_clusters(tmp_path) as url, visitor() as session:
        async with session.get(f"{url}/") as answer:
            assert answer.url.raw_path == "/c/green%2F1/"
            text = await answer.text()
        # The menu leads from one to the other, also where a name has a slash.
        assert all(f'href="../../c/{name}/"' in text for name in ("green%2F1", "blue", "away"))
        for _ in range(2):
            assert await names(session, f"{url}/c/green%2F1") == both
            assert await names(session, f"{url}/c/blue") == both | {("shop", "blue")}
        async with session.get(f"{url}/c/green%2F1/workloads/shop/Deployment/blue") as answer:
            assert answer.status == 404
        async with session.get(f"{url}/c/blue/workloads/shop/Deployment/blue") as answer:
            assert answer.status == 200


async def test_a_cluster_that_is_away_is_a_page_and_leaves_the_others(tmp_path: Path) -> None:
    async with two_clusters(tmp_path) as url, visitor() as session:
        for page in ("", "workloads", "nodes", "health"):
            async with session.get(f"{url}/c/away/{page}") as answer:
                text = await answer.text()
                assert (answer.status, answer.content_type) == (502, "text/html")
            assert "Traceback" not in text
            assert 'c/blue/">blue</a>' in text  # a way out, also where the current context is away
        async with session.get(f"{url}/c/away/", headers={"Accept": "application/json"}) as answer:
            assert "error" in await answer.json()
        async with session.get(f"{url}/c/unknown/") as answer:
            assert answer.status == 400
        assert ("shop", "blue") in await names(session, f"{url}/c/blue")
