"""`kubetide explain` as a process: it asks the running controller, or recomputes and says so."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from embedded_server import running
from kubetide import crds
from kubetide.api.objects.scheme import CONFIG_MAPS, CRDS, NODE_METRICS, NODES
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.kube.endpoints import Endpoints
from kubetide.telemetry import Telemetry

PATIENCE = 60
CAPACITY = {"cpu": "10", "memory": "10Gi"}


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Path]:
    """Serve a node with colocation switched on; yield a kubeconfig."""
    async with running() as server:
        client = Client(server.transport(), clock=SystemClock())
        for definition in crds.load_all():
            await client.create(CRDS, definition)
        namespace = msgspec.json.encode({"metadata": {"name": "koordinator-system"}})
        await client.request("POST", "/api/v1/namespaces", body=namespace)
        status = {"capacity": CAPACITY, "allocatable": CAPACITY}
        await client.create(NODES, {"metadata": {"name": "node-1"}, "status": status})
        meta = {"name": "slo-controller-config"}
        data = {"colocation-config": '{"enable": true}'}
        await client.create(CONFIG_MAPS, {"metadata": meta, "data": data}, namespace="koordinator-system")
        body = {"apiVersion": NODE_METRICS.api_version, "kind": "NodeMetric", "metadata": {"name": "node-1"}}
        await client.create(NODE_METRICS, body)
        await client.close()
        kubeconfig = folder / "config"
        text = server.identity.kubeconfig(server.serving.url)
        kubeconfig.write_text(text)
        kubeconfig.chmod(0o600)
        yield kubeconfig


@asynccontextmanager
async def controller(known: dict[tuple[str, str], dict[str, Any]]) -> AsyncIterator[str]:
    """Serve explanations of what is known; yield the address."""
    endpoints = Endpoints(
        Telemetry(),
        healthy=lambda: True,
        ready=lambda: True,
        explain=lambda kind, key: known.get((kind, key)),
        host="127.0.0.1",
        port=0,
    )
    task = asyncio.get_running_loop().create_task(endpoints.run())
    async with asyncio.timeout(PATIENCE):
        while not endpoints.ready():  # noqa: ASYNC110 - readiness has no event
            await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{endpoints.port}"
    finally:
        task.cancel()
        await asyncio.wait({task})


async def explain(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubetide", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_without_a_controller_the_sum_of_a_node_is_recomputed_and_says_so(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kubeconfig:
        given = ("--kubeconfig", str(kubeconfig), "explain", "node")
        code, out, err = await explain(*given, "node-1", "--recompute")
        assert code == 0, err
        assert "Node node-1" in out
        assert "last report   never" in out
        assert "nothing is lent" in out
        assert "history is missing" in err
        code, out, _ = await explain(*given, "node-1", "--recompute", "-o", "json")
        assert code == 0
        trace = msgspec.json.decode(out)
        assert trace["recomputed"] is True
        assert trace["overcommit"]["strategy"]["cpuReclaimThresholdPercent"] == 60
        code, out, err = await explain(*given, "no-such-node", "--recompute")
        assert code == 1
        assert out == ""
        assert "no-such-node" in err
        assert "Traceback" not in err


@pytest.mark.parametrize("namespace", ["shop", "default"])
async def test_a_running_controller_is_asked_in_the_namespace_of_the_context(tmp_path: Path, namespace: str) -> None:
    kubeconfig = tmp_path / "config"
    context: dict[str, str] = {"cluster": "c", "user": "u"}
    if namespace != "default":
        context["namespace"] = namespace
    body = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    kubeconfig.write_bytes(msgspec.json.encode(body))
    known = {("hpa", f"{namespace}/web"): {"told": namespace}, ("hpa", "other/web"): {"told": "other"}}
    async with controller(known) as address:
        given = ("--kubeconfig", str(kubeconfig))
        asked = ("explain", "hpa", "web", "--address", address, "-o", "json")
        code, out, err = await explain(*given, *asked)
        assert (code, msgspec.json.decode(out)) == (0, {"told": namespace}), err
        code, out, _ = await explain(*given, "-n", "other", *asked)
        assert (code, msgspec.json.decode(out)) == (0, {"told": "other"})
        code, _, err = await explain(*given, "-n", "third", *asked)
        assert code == 1
        assert err == f"kubetide: {address} does not know hpa third/web\n"
