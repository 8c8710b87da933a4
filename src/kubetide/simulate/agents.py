"""The agents of simulated nodes: they see a simulated machine, and otherwise are the agents of real nodes."""

import random
from datetime import timedelta
from functools import partial
from pathlib import Path

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.enforcement import make_modules
from kubetide.node.settings import NodeSettings
from kubetide.telemetry import Telemetry


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
