"""The agent of a node that only looks: kernel files, pods and the API server stay as they are; all of it is told."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

from kubetide.api.objects.scheme import NODES
from kubetide.api.qos import qos
from kubetide.api.values.patch import MergePatch
from kubetide.cli.dry_run import Report
from kubetide.cli.node.dry_run import DryRunAgent
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.install.objects import dry_run_manifests
from kubetide.kube.client.client import Client
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.host.worker import Inline
from kubetide.node.settings import NodeSettings
from kubetide.telemetry import Telemetry
from onlookers import Counted, onlooker
from qosagent import batch_pod, granted, ls_pod, node_slo
from simulated.cluster import pods, run

SUPPRESS = node_slo(
    resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 65}
)
EVICT = node_slo(
    resourceUsedThresholdWithBE={
        "enable": True,
        "memoryAllocatableEvictThresholdPercent": 110,
        "memoryAllocatableEvictLowerPercent": 100,
        "allocatableEvictPriorityThreshold": 5999,
    }
)


def looking(
    main: Callable[[SimCluster, DryRunAgent, NodeAgent], Awaitable[None]], *, as_json: bool = False, **settings: Any
) -> tuple[list[str], Counted]:
    """Run an agent that only looks, as a service account that may only read, on a node of eight CPUs."""
    lines: list[str] = []

    async def body(cluster: SimCluster) -> Counted:
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        objects = dry_run_manifests(("node",), namespace="kube-system", image="x")
        await cluster.apply([each for each in objects if each["kind"] != "DaemonSet"])
        transport = Counted(cluster.transport(onlooker("node")))
        telemetry = Telemetry()
        dry_run = DryRunAgent(Report(lines.append, cluster.clock, telemetry, as_json), Inline())
        host = cluster.hosts["node-1"]
        agent = NodeAgent(
            dry_run.client(Client(transport, clock=cluster.clock, rng=random.Random(1))),
            cluster.clock,
            dry_run.settings(NodeSettings(**{"node_name": "node-1", **settings})),
            dry_run.host(host),
            telemetry,
            layout=Layout(version=host.version, paths=host.paths),
            commands=host,
            modules=partial(dry_run.modules, rng=random.Random(0)),
            auditor=dry_run,
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(agent.run())
            await main(cluster, dry_run, agent)
            dry_run.stop()
            task.cancel()
        return transport

    return lines, run(body)


async def crowded(cluster: SimCluster) -> None:
    cluster.set_usage("default", "web", cpu="4")
    cluster.set_usage("default", "job", cpu="8")
    await cluster.apply([SUPPRESS, ls_pod("web", cpu="4"), batch_pod("job", cpu=8000)])
    await cluster.run_for(timedelta(seconds=20))


def test_files_are_named_with_what_they_hold_and_would_hold() -> None:
    async def main(cluster: SimCluster, *_: object) -> None:
        await crowded(cluster)
        before = granted(cluster, "job")
        await cluster.run_for(timedelta(seconds=60))
        assert granted(cluster, "job") == before, "the kernel is left alone"

    lines, transport = looking(main)
    suppressed = [line for line in lines if "cpu-suppress" in line]
    assert suppressed, lines
    assert suppressed[0].startswith("node: would write /sys/fs/cgroup/")
    assert " → " in suppressed[0]
    assert "AdjustBEByNodeCPUUsage" in suppressed[0]
    assert transport.writes == []
    assert transport.refused == []


def test_evictions_are_told_with_their_reason_and_nobody_goes() -> None:
    async def main(cluster: SimCluster, *_: object) -> None:
        change = {"status": {kind: {qos.BATCH_MEMORY: "5Gi"} for kind in ("allocatable", "capacity")}}
        await cluster.client().patch(NODES, "node-1", MergePatch(change), subresource="status")
        jobs = [batch_pod(name, priority=5000, memory="4Gi") for name in ("one", "two")]
        for job in jobs:
            job["metadata"]["labels"][qos.LABEL_EVICTION_ENABLED] = "true"
        await cluster.apply([EVICT, *jobs])
        await cluster.run_for(timedelta(seconds=90))
        assert [pod for pod in pods(cluster, "default") if "deletionTimestamp" in pod["metadata"]] == []
        assert len(pods(cluster, "default")) == 2

    lines, transport = looking(main, feature_gates="MemoryAllocatableEvict=true")
    evictions = [line for line in lines if line.startswith("node: would evict Pod default/")]
    assert len(evictions) == 1, lines
    assert "(" in evictions[0]
    assert transport.writes == []


def test_once_waits_until_every_strategy_has_decided() -> None:
    seen: list[int] = []

    async def main(cluster: SimCluster, dry_run: DryRunAgent, agent: NodeAgent) -> None:
        await crowded(cluster)
        async with asyncio.timeout(600):
            await dry_run.decided(agent)
        explained = agent.explain("node", "node-1") or {}
        seen.append(len(explained["qos"]["strategies"]))

    lines, _ = looking(main, as_json=True)
    assert seen[0] >= 3
    told = [json.loads(line) for line in lines]
    change = next(one for one in told if "cpu-suppress" in one.get("why", ""))
    assert change["action"] == "write"
    assert set(change["changes"][0]) == {"field", "from", "to"}


def test_a_node_with_nothing_to_do_says_so() -> None:
    async def main(cluster: SimCluster, dry_run: DryRunAgent, agent: NodeAgent) -> None:
        async with asyncio.timeout(600):
            await dry_run.decided(agent)

    lines, transport = looking(main, feature_gates="AllAlpha=false,AllBeta=false,NodeTopologyReport=false")
    assert lines == ["node: would change nothing"], lines
    assert transport.writes == []
