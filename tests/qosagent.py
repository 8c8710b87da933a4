"""The acting node agent on a simulated node, for cluster tests and scenarios."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.enforcement import make_modules
from kubetide.node.settings import NodeSettings
from kubetide.node.state.kubelet import Kubelet
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_pod

Raw = dict[str, Any]


def make_agent(
    cluster: SimCluster,
    node: str = "node-1",
    *,
    user: User | None = None,
    kubelet: Kubelet | None = None,
    **settings: Any,
) -> NodeAgent:
    """Return an agent with strategies and hooks for a simulated node."""
    host = cluster.hosts[node]
    fields: Raw = {"node_name": node, "audit_log_dir": "", "enable_node_metric_report": False} | settings
    return NodeAgent(
        cluster.client(user),
        cluster.clock,
        NodeSettings(**fields),
        host,
        Telemetry(),
        layout=Layout(version=host.version, paths=host.paths),
        commands=host,
        kubelet=kubelet,
        modules=lambda agent: make_modules(agent, sockets=False, rng=Random(0)),
    )


@asynccontextmanager
async def running(agent: NodeAgent) -> AsyncIterator[NodeAgent]:
    """Run an agent until the block ends; no strategy and no hook may have failed meanwhile."""
    task = asyncio.get_running_loop().create_task(agent.run())
    try:
        yield agent
        explained = agent.explain("node", agent.node_name) or {}
        assert explained["qos"]["failing"] == {}
        assert explained["runtime-hooks"]["failing"] == ""
        assert not [name for name, module in explained["modules"].items() if "restarts" in module]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def node_slo(node: str = "node-1", **spec: Any) -> Raw:
    """Return a NodeSLO."""
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": node},
        "spec": spec,
    }


def batch_pod(name: str, *, cpu: int = 4000, memory: str = "1Gi", priority: int = 5500, node: str = "node-1") -> Raw:
    """Return a best-effort pod with batch resources."""
    amounts = {"kubernetes.io/batch-cpu": str(cpu), "kubernetes.io/batch-memory": memory}
    container = {"name": "main", "image": "batch", "resources": {"requests": amounts, "limits": amounts}}
    labels = {"koordinator.sh/qosClass": "BE"}
    return make_pod(name, labels=labels, containers=[container], priority=priority, node=node)


def ls_pod(name: str, *, node: str = "node-1", annotations: Raw | None = None, **resources: Any) -> Raw:
    """Return a latency-sensitive pod."""
    return make_pod(name, labels={"koordinator.sh/qosClass": "LS"}, annotations=annotations, node=node, **resources)


def row_of(cluster: SimCluster, pod: str) -> int:
    """Return the place of the first container of a pod among the processes of the simulated kernel."""
    run = next(each for each in cluster.kubelets.runs() if each.key.name == pod)
    row = run.containers[0].row
    assert row is not None
    return row


def granted(cluster: SimCluster, pod: str) -> float:
    """Return the cores that the first container of a pod gets at this moment."""
    cluster.kernel.settle()
    return float(cluster.kernel.granted[row_of(cluster, pod)])


def group_of(cluster: SimCluster, pod: str) -> str:
    """Return the cgroup of a pod."""
    return next(each for each in cluster.kubelets.runs() if each.key.name == pod).group
