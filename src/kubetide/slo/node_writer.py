"""Writes what was decided about a node: zones, status, metadata, each counted under upstream's reason.

Zones come first and may fail without harm: the node's own numbers do not rest on them. Everything else that fails is
tried again as a whole; what was written already is then found equal and left alone.
"""

from collections.abc import Awaitable
from datetime import datetime
from typing import Any

from kubetide.api.objects.scheme import NODES
from kubetide.api.values.patch import MergePatch
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.log import get_logger
from kubetide.slo.cluster_view import RAW_TOPOLOGIES
from kubetide.slo.core.observation import NodeDecision
from kubetide.slo.telemetry import NODE_RESOURCE, SloInstruments

log = get_logger("slo")

# What is written: the reason that counts it, and the one when the node has gone meanwhile.
_REASONS = {
    "zones": ("updateNodeResourceTopology", "updateNodeResourceTopology"),
    "status": ("updateNodeStatus", "updateNodeNotFound"),
    "metadata": ("patchNodeMeta", "updateNodeMetaNotFound"),
}


class NodeWriter:
    """Writes decisions, and remembers when it wrote what."""

    def __init__(self, client: Client, *, clock: Clock, instruments: SloInstruments) -> None:
        self._client = client
        self._clock = clock
        self._instruments = instruments
        self._written: dict[str, dict[str, datetime]] = {}

    def written(self, node: str) -> dict[str, datetime]:
        """Return when this process last wrote which part of a node."""
        return self._written.get(node, {})

    def forget(self, node: str) -> None:
        """Forget when a node was written."""
        self._written.pop(node, None)

    async def write(self, node: str, decision: NodeDecision) -> None:
        """Write what a decision asks for."""
        if decision.zones is not None:
            try:
                # The agent writes zones too: what it wrote since they were read must not be lost.
                seen = {"metadata": {"resourceVersion": decision.zones_version}} if decision.zones_version else {}
                body = MergePatch({**seen, "zones": decision.zones})
                await self._write(node, "zones", self._client.patch(RAW_TOPOLOGIES, node, body))
            except KubetideError as error:
                log.warning("cannot write the zones", node=node, error=str(error))
        if decision.status_patch:
            await self._write_node(node, "status", decision.status_patch)
        if decision.metadata_patch:
            await self._write_node(node, "metadata", decision.metadata_patch)

    async def _write_node(self, node: str, what: str, patch: dict[str, Any]) -> None:
        """Write status through its subresource and metadata through the object: each takes only its own part."""
        if "status" in patch:
            body = MergePatch({"status": patch["status"]})
            await self._write(node, what, self._client.patch(NODES, node, body, subresource="status"))
        if "metadata" in patch:
            await self._write(node, what, self._client.patch(NODES, node, MergePatch({"metadata": patch["metadata"]})))

    async def _write(self, node: str, what: str, request: Awaitable[Any]) -> None:
        reason, gone = _REASONS[what]
        await self._instruments.counted(NODE_RESOURCE, reason, request, gone=gone)
        self._written.setdefault(node, {})[what] = self._clock.now()
        log.debug("wrote", node=node, part=what)
