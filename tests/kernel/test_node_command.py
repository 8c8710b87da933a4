"""`kubetide node` as a process of its own: started with flags, asked, stopped by a signal."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from kernel.tree import Tree, cgroup_tree
from kubetide import crds
from kubetide.api.objects.scheme import CRDS, NODES
from kubetide.cli.main import Invocation
from kubetide.cli.node.status import fetch
from kubetide.cli.places import Place
from kubetide.clock import SystemClock
from kubetide.errors import Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.connect import connect
from kubetide.kube.client.errors import AlreadyExists
from kubetide.kube.client.settings import KubeSettings

PATIENCE = 600.0 if "KUBETIDE_IN_VM" in os.environ else 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kubetide",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def seed(kubeconfig: Path) -> None:
    client, _ = connect(KubeSettings(kubeconfig=kubeconfig), clock=SystemClock())
    for definition in crds.load_all():
        await create(client, CRDS, dict(definition))
    await create(client, NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}})
    await client.close()


async def create(client: Client, resource: Any, body: dict[str, Any]) -> None:
    try:
        await client.create(resource, body)
    except AlreadyExists:
        return


async def answered(address: str, agent: asyncio.subprocess.Process) -> dict[str, Any]:
    """Ask until the agent has measured something."""
    async with asyncio.timeout(PATIENCE):
        while agent.returncode is None:
            try:
                status = await fetch(Invocation(), Place(address), "self", "")
                if status["cpuCores"] is not None:
                    return status
            except Unavailable:
                pass
            await asyncio.sleep(0.2)
    raise AssertionError("the agent ended")


def flags(tree: Tree, port: int, folder: Path) -> list[str]:
    return [
        "--node-name=here",
        f"--cgroup-prefix={tree.prefix}",
        "-cgroup-driver=cgroupfs",
        f"--addr=127.0.0.1:{port}",
        f"--audit-log-dir={folder / 'audit'}",
        f"--metric-history-path={folder / 'history'}",
        "--pod-source",
        "apiserver",
        "--tsdb-path=/ignored",
        "--enable-nri-runtime-hook=false",
        "--v=2",
    ]


async def test_the_agent_runs_answers_and_stops_on_a_signal(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with cgroup_tree() as tree:
        tree.tiers()
        async with process("up", "--bare", "--port", "0", "--kubeconfig", str(kubeconfig)) as api:
            assert api.stdout is not None
            async with asyncio.timeout(PATIENCE):
                await api.stdout.readline()
            await seed(kubeconfig)
            port = free_port()
            async with process("--kubeconfig", str(kubeconfig), "node", *flags(tree, port, tmp_path)) as agent:
                address = f"127.0.0.1:{port}"
                status = await answered(address, agent)
                assert status["node"] == "here"
                async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
                    assert "koordlet_node_used_cpu_cores" in await answer.text()
                agent.send_signal(signal.SIGTERM)
                async with asyncio.timeout(PATIENCE):
                    assert await agent.wait() == 0
        assert (tmp_path / "history" / "samples.sqlite").exists()


async def test_a_dry_run_says_once_what_would_be_written_and_writes_nothing(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with cgroup_tree() as tree:
        tree.tiers()
        async with process("up", "--bare", "--port", "0", "--kubeconfig", str(kubeconfig)) as api:
            assert api.stdout is not None
            async with asyncio.timeout(PATIENCE):
                await api.stdout.readline()
            await seed(kubeconfig)
            given = [*flags(tree, free_port(), tmp_path), "--dry-run", "--once", "-o", "json"]
            async with process("--kubeconfig", str(kubeconfig), "node", *given) as agent:
                assert agent.stdout is not None
                async with asyncio.timeout(PATIENCE):
                    told = await agent.stdout.read()
                    assert await agent.wait() == 0
        lines = [json.loads(line) for line in told.decode().splitlines()]
        assert lines
        assert all(line["component"] == "node" for line in lines)
        assert still_as_told(lines)
    assert not (tmp_path / "audit").exists()
    assert not (tmp_path / "history").exists()


def still_as_told(lines: list[dict[str, Any]]) -> bool:
    """Whether every file still has what it had when it was said that it would change."""
    writes = [line for line in lines if line.get("action") == "write"]
    return all(Path(line["object"]).read_text().strip("\n") == line["changes"][0]["from"] for line in writes)
