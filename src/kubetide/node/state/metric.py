"""Writes the status of the NodeMetric at every report interval: its time is the node's heartbeat.

The status is written also when nothing changed, on the object as the watch showed it last: one request. A conflict is
answered by the same status on the fresh object. Writes
have a limit of their own, counted per attempt, so that conflicts cannot make a node write more than one report each ten
seconds for long; a report that found no room waits for the next slot, unless a newer one is there first.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import Conflict, NotFound
from kubetide.kube.pacing import TokenBucket
from kubetide.log import get_logger
from kubetide.node.core.report import Status, report_interval
from kubetide.node.state.objects import RAW_NODE_METRICS, NodeObjects
from kubetide.telemetry import Telemetry

log = get_logger("node.report")

_ATTEMPTS = 4
_RETRY_SECONDS = 0.01
_LOOK_AGAIN_SECONDS = 5.0
_SLOT_SECONDS = 1.0

WRITES_PER_SECOND = 0.1
WRITE_BURST = 2
OVER_THE_LIMIT = "over the limit of NodeMetric writes, waiting for the next slot"


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
        self.written_at: str = ""
        self.problem = ""
        self._client = client
        self._clock = clock
        self._objects = objects
        self._build = build
        self._node_name = node_name
        self._limit = TokenBucket(WRITES_PER_SECOND, WRITE_BURST)
        self._waiting: dict[str, Any] | None = None
        self._reclaimable = telemetry.gauge(
            "koordlet_node_priority_resource_reclaimable",
            "Resources of a priority class that could be overcommitted.",
            ("node", "priority", "resource", "unit"),
        )

        self._status = telemetry.gauge(
            "koordlet_node_resource_priority_reclaimable_status",
            "1 while it is not known what of a priority class could be overcommitted, else 0.",
            ("node", "priority"),
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
                await asyncio.sleep(min(due, _LOOK_AGAIN_SECONDS if self._waiting is None else _SLOT_SECONDS))
                await self.write_waiting()
                continue
            began = self._clock.monotonic()
            if spec is not None:
                await self.report(spec)

    async def report(self, spec: dict[str, Any]) -> None:
        """Build and write one status."""
        status = self._build(spec)
        reclaimable = status.reclaimable
        for resource, unit, value in (
            ("cpu", "core", reclaimable.cpu_millis / 1000 if reclaimable else 0.0),
            ("memory", "byte", float(reclaimable.memory_bytes) if reclaimable else 0.0),
        ):
            self._reclaimable.labels(self._node_name, "koord-prod", resource, unit).set(value)
        self._status.labels(self._node_name, "koord-prod").set(0.0 if reclaimable else 1.0)
        self._waiting = status.body
        await self.write_waiting()

    async def write_waiting(self) -> None:
        """Write the report that waits, if there is one and the limit allows it."""
        body = self._waiting
        if body is None:
            return
        try:
            if await self._write(body):
                self._waiting, self.problem = None, ""
            elif not self.problem:
                self.problem = OVER_THE_LIMIT
                log.info("NodeMetric waits for the next slot")
        except KubetideError as error:
            self._waiting, self.problem = None, str(error)
            log.warning("NodeMetric not written", error=self.problem)

    async def _write(self, body: dict[str, Any]) -> bool:
        """Write a status; return whether it need not be tried again. False: the limit is reached."""
        for attempt in range(_ATTEMPTS):
            if not self._limit.allow(self._clock.monotonic()):
                return False
            try:
                version = self._objects.metric_version()
                if attempt or not version:
                    current = await self._client.get_raw(RAW_NODE_METRICS, self._node_name)
                    version = current["metadata"]["resourceVersion"]
                # An update of the status takes nothing else from what is sent.
                whole = {
                    "apiVersion": RAW_NODE_METRICS.api_version,
                    "kind": RAW_NODE_METRICS.kind,
                    "metadata": {"name": self._node_name, "resourceVersion": version},
                    "status": body,
                }
                await self._client.update(RAW_NODE_METRICS, self._node_name, whole, subresource="status")
            except NotFound:
                return True
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(_RETRY_SECONDS * 5**attempt)
                continue
            self.written_at = body["updateTime"]
            return True
        return True
