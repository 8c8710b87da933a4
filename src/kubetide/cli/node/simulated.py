"""The agents of simulated nodes: `kubetide demo` and `kubetide up --with node` run one per node, in this process.

They see a simulated machine and otherwise are the agents of real nodes. Asked over HTTP, they answer together:
`kubetide node status` shows one node or all of them.
"""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from kubetide.cli.asking import join
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.endpoints import NodeEndpoints
from kubetide.node.enforcement import make_modules
from kubetide.node.executor.audit_log import MAX_PAGE, UnknownToken
from kubetide.node.settings import NodeSettings
from kubetide.telemetry import Telemetry

_MAX_READERS = 4


def make_agent(
    cluster: SimCluster,
    node: str,
    seed: int,
    *,
    interval: timedelta,
    telemetry: Telemetry,
    audit: Path | None = None,
) -> NodeAgent:
    """Return the agent of a simulated node that looks and acts once per `interval`.

    `audit` is the directory in which the agents keep their audit logs, a folder each; without it they keep none.
    """
    host = cluster.hosts[node]
    settings = NodeSettings(
        node_name=node,
        audit_log_dir=str(audit / node) if audit is not None else "",
        feature_gates="AuditEvents=true" if audit is not None else "",
        collect_res_used_interval=interval,
        collect_sys_metric_outdated_interval=4 * interval,
        kubelet_sync_interval=interval,
        runtime_hooks_reconcile_interval=interval,
        psi_collector_interval=2 * interval,
        node_topology_sync_interval=10 * interval,
        reconcile_interval_seconds=interval.seconds,
        cpu_suppress_interval_seconds=interval.seconds,
        cpu_evict_interval_seconds=interval.seconds,
        memory_evict_interval_seconds=interval.seconds,
    )
    return NodeAgent(
        cluster.client(),
        cluster.clock,
        settings,
        host,
        telemetry,
        layout=Layout(version=host.version, paths=host.paths),
        commands=host,
        modules=partial(make_modules, sockets=False, rng=random.Random(f"{seed}/{node}")),
    )


Explain = Callable[[str, str], dict[str, Any] | None]


def explain_together(agents: Sequence[NodeAgent], others: Explain) -> Explain:
    """Return who answers for all agents, and for the controllers beside them.

    `status/self` is the one node there is, or all of them.
    """

    def explain(kind: str, key: str) -> dict[str, Any] | None:
        if kind == "status" and key == "self" and len(agents) != 1:
            return {"nodes": [agent.status() for agent in agents]}
        found = (answer for agent in agents if (answer := agent.explain(kind, key)) is not None)
        return join(kind, others(kind, key), next(found, None))

    return explain


class JointAudit:
    """The audit logs of several agents as one, newest first.

    The logs are read whole when the first page is asked for: those of a simulation are short, and of two pages asked
    at different times the second would otherwise depend on what was written in between.
    """

    def __init__(self, agents: Sequence[NodeAgent]) -> None:
        self._agents = agents
        self._readers: dict[str, list[dict[str, Any]]] = {}
        self._numbers = count(1)

    async def query(self, size: int, token: str) -> tuple[list[dict[str, Any]], str]:
        """Return events, newest first, and the token of the next page (empty at the end)."""
        if token and token not in self._readers:
            raise UnknownToken("unknown or expired page token")
        events = self._readers.pop(token) if token else await self._read()
        page, rest = events[:size], events[size:]
        if not rest:
            return page, ""
        while len(self._readers) >= _MAX_READERS:
            del self._readers[next(iter(self._readers))]
        following = str(next(self._numbers))
        self._readers[following] = rest
        return page, following

    async def _read(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for agent in self._agents:
            token = ""
            while agent.audit is not None:
                events, token = await agent.audit.query(MAX_PAGE, token)
                found += [{**event, "node": agent.node_name} for event in events]
                if not token:
                    break
        return sorted(found, key=lambda event: str(event.get("createdAt", "")), reverse=True)


@asynccontextmanager
async def answering(
    agents: Sequence[NodeAgent],
    port: int,
    *,
    telemetry: Telemetry,
    others: Explain,
    ready: Callable[[], bool],
) -> AsyncIterator[int]:
    """Answer for the agents and the controllers beside them on loopback while the block lasts, and give the port.

    Both may come later: who asks before hears that nothing is known.
    """
    from kubetide.kube.connections import ConnectionLimits
    from kubetide.kube.listener import listening

    endpoints = NodeEndpoints(
        telemetry,
        audit=JointAudit(agents),
        healthy=lambda: all(agent.healthy() for agent in agents),
        ready=lambda: ready() and all(agent.ready() for agent in agents),
        explain=explain_together(agents, others),
    )
    async with listening(ConnectionLimits().runner(endpoints.application()), "127.0.0.1", port) as taken:
        yield taken
