"""A node that cannot be read is not a node that has gone."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from kubetide.api.objects.scheme import NODE_METRICS, NODE_SLOS, Resource
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response, Transport
from kubetide.kube.control.recorder import EventRecorder
from kubetide.slo.controller import SloController
from kubetide.slo.settings import SloSettings
from kubetide.telemetry import Telemetry
from simulated.cluster import run

NODES_PATH = "/api/v1/nodes"
OWNED: tuple[Resource[Any], ...] = (NODE_SLOS, NODE_METRICS)


class Garbling:
    """A transport through which the status of one node looks like nonsense."""

    def __init__(self, inner: Transport, node: str) -> None:
        self._inner = inner
        self._node = node

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        answer = await self._inner.request(method, path, **parts)
        if method != "GET" or path != NODES_PATH:
            return answer
        listed = msgspec.json.decode(answer.body)
        listed["items"] = [self._garbled(node) for node in listed["items"]]
        return Response(answer.status, answer.headers, msgspec.json.encode(listed))

    @asynccontextmanager
    async def watch(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._inner.watch(path, query=query) as lines:
            yield self._lines(lines) if path == NODES_PATH else lines

    async def close(self) -> None:
        await self._inner.close()

    async def _lines(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            event = msgspec.json.decode(line)
            yield msgspec.json.encode(event | {"object": self._garbled(event["object"])})

    def _garbled(self, node: dict[str, Any]) -> dict[str, Any]:
        return node | {"status": "garbled"} if node["metadata"].get("name") == self._node else node


def test_the_objects_of_a_node_that_cannot_be_read_stay_and_the_failure_is_counted() -> None:
    telemetry = Telemetry()

    async def main(cluster: SimCluster) -> None:
        client = cluster.client()
        for resource in OWNED:
            for name in ("node-1", "gone"):
                meta = {"name": name}
                body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": {}}
                await client.create(resource, body)
        blurred = Client(Garbling(cluster.transport(), "node-1"), clock=cluster.clock)
        recorder = EventRecorder(client, clock=cluster.clock, component="slo")
        settings = SloSettings(leader_elect=False)
        made = SloController(blurred, cluster.clock, settings, telemetry, recorder, random.Random(1))
        task = asyncio.get_running_loop().create_task(made.run())
        await cluster.run_for(timedelta(minutes=1))
        task.cancel()
        await asyncio.wait({task})
        for resource in OWNED:
            names = {item.metadata.name for item in (await client.list(resource)).items}
            assert names == {"node-1", "node-2"}

    run(main, nodes=2)
    shown = telemetry.render().decode()
    for controller in ("nodeslo", "nodemetric", "node_resource"):
        assert f'slo_controller_{controller}_reconcile_count{{reason="reconcileNodeGetError",status="failed"}}' in shown
    assert 'slo_controller_nodeslo_reconcile_count{reason="deleteNodeSLO",status="succeeded"} 1.0' in shown
