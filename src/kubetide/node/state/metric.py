"""Writes the status of the NodeMetric at every report interval: its time is the node's heartbeat.

The status is written also when nothing changed. A conflict is answered by the same status on the fresh object.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client import Client
from kubetide.kube.errors import Conflict, NotFound
from kubetide.log import get_logger
from kubetide.node.report import Status, report_interval
from kubetide.node.state.objects import RAW_NODE_METRICS, NodeObjects
from kubetide.telemetry import Telemetry

log = get_logger("node.report")

_ATTEMPTS = 4
_RETRY_SECONDS = 0.01
_LOOK_AGAIN_SECONDS = 5.0


class MetricReporter:
    """Reports usage to the API server."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        objects: NodeObjects,
        build: Callable[[dict[str, Any]], Status],
        node_name: str,
        telemetry: Telemetry,
    ) -> None:
        self.last: Status | None = None
        self.written_at: str = ""
        self.problem = ""
        self._client = client
        self._clock = clock
        self._objects = objects
        self._build = build
        self._node_name = node_name
        self._reclaimable = telemetry.gauge(
            "koordlet_node_priority_resource_reclaimable",
            "Resources of a priority class that could be lent out.",
            ("node", "priority", "resource", "unit"),
        )

    async def run(self) -> None:
        """Report until cancelled; the first report comes one interval after the start."""
        began = self._clock.monotonic()
        while True:
            spec = self._objects.metric_spec
            wait = report_interval(spec).total_seconds() if spec is not None else _LOOK_AGAIN_SECONDS
            due = began + wait - self._clock.monotonic()
            if due > 0:
                # The interval may become shorter while waiting.
                await asyncio.sleep(min(due, _LOOK_AGAIN_SECONDS))
                continue
            began = self._clock.monotonic()
            if spec is not None:
                await self.report(spec)

    async def report(self, spec: dict[str, Any]) -> None:
        """Build and write one status."""
        status = self._build(spec)
        self.last = status
        reclaimable = status.reclaimable
        for resource, unit, value in (
            ("cpu", "core", reclaimable.cpu_millis / 1000 if reclaimable else 0.0),
            ("memory", "byte", float(reclaimable.memory_bytes) if reclaimable else 0.0),
        ):
            self._reclaimable.labels(self._node_name, "koord-prod", resource, unit).set(value)
        try:
            await self._write(status.body)
            self.problem = ""
        except KubetideError as error:
            self.problem = str(error)
            log.warning("NodeMetric not written", error=self.problem)

    async def _write(self, body: dict[str, Any]) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                current = await self._client.get_raw(RAW_NODE_METRICS, self._node_name)
                await self._client.update(
                    RAW_NODE_METRICS, self._node_name, {**current, "status": body}, subresource="status"
                )
            except NotFound:
                return
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(_RETRY_SECONDS * 5**attempt)
                continue
            self.written_at = body["updateTime"]
            return
