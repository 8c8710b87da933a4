"""The agents of simulated nodes: `kubetide demo` and `kubetide up --sim --agents` run one per node, in this process.

They see a simulated machine and otherwise are the agents of real nodes. Asked over HTTP, they answer together:
`kubetide node status` shows one node or all of them.
"""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.endpoints import Endpoints
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.enforcement import make_modules
from kubetide.node.settings import NodeSettings
from kubetide.telemetry import Telemetry


def make_agent(
    cluster: SimCluster, node: str, seed: int, *, interval: timedelta, telemetry: Telemetry | None = None
) -> NodeAgent:
    """Return the agent of a simulated node that looks and acts once per `interval`."""
    host = cluster.hosts[node]
    settings = NodeSettings(
        node_name=node,
        audit_log_dir="",
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
        telemetry or Telemetry(),
        layout=Layout(version=host.version, paths=host.paths),
        commands=host,
        modules=partial(make_modules, sockets=False, rng=random.Random(f"{seed}/{node}")),
    )


Explain = Callable[[str, str], dict[str, Any] | None]


def explain_together(agents: Sequence[NodeAgent], others: Explain | None = None) -> Explain:
    """Return who answers for all agents: `status/self` is the one node there is, or all of them."""

    def explain(kind: str, key: str) -> dict[str, Any] | None:
        if kind == "status" and key == "self" and len(agents) != 1:
            return {"nodes": [agent.status() for agent in agents]}
        for agent in agents:
            if (answer := agent.explain(kind, key)) is not None:
                return answer
        return others(kind, key) if others is not None else None

    return explain


@asynccontextmanager
async def answering(
    agents: Sequence[NodeAgent], port: int, *, telemetry: Telemetry | None = None, others: Explain | None = None
) -> AsyncIterator[int]:
    """Answer for the agents on loopback while the block lasts, and give the port."""
    from kubetide.kube.connections import Limits
    from kubetide.kube.listener import listening

    endpoints = Endpoints(
        telemetry or Telemetry(),
        healthy=lambda: all(agent.healthy() for agent in agents),
        ready=lambda: all(agent.ready() for agent in agents),
        explain=explain_together(agents, others),
    )
    async with listening(Limits().runner(endpoints.application()), "127.0.0.1", port) as taken:
        yield taken
