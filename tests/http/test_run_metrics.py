"""`kubetide run` as a process: its own metrics show the machinery of everything that it runs."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from embedded_server import Running, running
from kubetide import crds
from kubetide.api.objects.scheme import CRDS, NODES
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client

PATIENCE = 60


async def prepare(server: Running) -> None:
    client = Client(server.transport(), clock=SystemClock())
    for definition in crds.load_all():
        await client.create(CRDS, definition)
    await client.create(NODES, {"metadata": {"name": "node-1"}, "status": {"capacity": {"cpu": "4"}}})
    await client.close()


@asynccontextmanager
async def run(kubeconfig: Path, *arguments: str) -> AsyncIterator[str]:
    """Run controllers; yield the address of their endpoints, as the log tells it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubetide", "--kubeconfig", str(kubeconfig), "--log-format", "json", "run"),
        *arguments,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert process.stderr is not None
    drained = None
    try:
        async with asyncio.timeout(PATIENCE):
            port = 0
            while not port:
                line = await process.stderr.readline()
                assert line, "it ended before it served"
                said = msgspec.json.decode(line)
                port = said["port"] if said["msg"] == "serving" else 0
        drained = asyncio.get_running_loop().create_task(process.stderr.read())
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if drained is not None:
            await drained


async def shown(address: str, *wanted: str) -> str:
    """Ask for the metrics until they show what is wanted."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE):
        while True:
            async with session.get(f"{address}/metrics") as answer:
                text = await answer.text()
            if all(part in text for part in wanted):
                return text
            await asyncio.sleep(0.1)


async def test_the_metrics_of_a_process_show_requests_queues_informers_and_leadership(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    async with running() as server:
        await prepare(server)
        kubeconfig.write_text(server.identity.kubeconfig(server.serving.url))
        kubeconfig.chmod(0o600)
        arguments = ("hpa,slo,recommender", "--listen=127.0.0.1:0", "--leader-elect-resource-namespace=kube-system")
        async with run(kubeconfig, *arguments) as address:
            text = await shown(
                address,
                'rest_client_requests_total{code="200",method="GET"}',
                'rest_client_request_duration_seconds_bucket{le="1.0",verb="GET"}',
                'workqueue_depth{name="nodeslo"}',
                'workqueue_depth{name="horizontalpodautoscaler"}',
                'kubetide_informer_objects{component="slo",resource="nodes"} 1.0',
                'kubetide_informer_staleness_seconds{component="slo",resource="nodes"}',
                'kubetide_informer_objects{component="recommender",resource="pods"} 0.0',
                'leader_election_master_status{name="koordinator-manager"} 1.0',
                'controller_runtime_reconcile_total{controller="nodeslo",result="success"}',
                'slo_controller_nodeslo_reconcile_count{reason="createNodeSLO",status="succeeded"} 1.0',
                'kubetide_events_dropped_total{component="nodeslo-controller"} 0.0',
            )
    families = [line for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(families) == len(set(families)), "a family is shown twice"
