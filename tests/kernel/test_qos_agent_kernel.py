"""The whole acting agent on real cgroups, with the embedded API server: from a NodeSLO to kernel values and back."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from agentserver import agent_client, agent_server
from kernel.tree import BURNER, cgroup_tree, until
from kubetide.api.objects.scheme import PODS
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.clock import SystemClock
from kubetide.node.agent import NodeAgent
from kubetide.node.enforcement import make_modules
from kubetide.node.host.readers import CgroupReader
from kubetide.node.settings import NodeSettings, PodSource
from kubetide.telemetry import Telemetry

AMOUNTS = {"kubernetes.io/batch-cpu": "700", "kubernetes.io/batch-memory": "256Mi"}
OBJECTS: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "here"},
        "spec": {},
        "status": {"capacity": {"cpu": "2", "memory": "8Gi"}, "allocatable": {"cpu": "2", "memory": "8Gi"}},
    },
    {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": "here"},
        "spec": {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}},
    },
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "job", "namespace": "default", "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {
            "nodeName": "here",
            "containers": [{"name": "main", "image": "x", "resources": {"requests": AMOUNTS, "limits": AMOUNTS}}],
        },
        "status": {
            "phase": "Running",
            "qosClass": "BestEffort",
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "x",
                    "imageID": "x",
                    "ready": True,
                    "restartCount": 0,
                    "containerID": "containerd://main",
                    "state": {"running": {}},
                }
            ],
        },
    },
]


async def test_an_agent_limits_real_best_effort_work_and_lifts_it_when_it_stops(tmp_path: Path) -> None:
    clock = SystemClock()
    with cgroup_tree() as tree, agent_server(clock, OBJECTS) as api:
        tree.tiers()
        client = agent_client(api, clock)
        stored = await client.get(PODS, "job", namespace="default")
        directory = tree.pod(stored.metadata.uid, "BestEffort", "main")
        tree.run(f"{directory}/main", BURNER)
        settings = NodeSettings(
            node_name="here",
            cgroup_driver="cgroupfs",
            cgroup_prefix=tree.prefix,
            audit_log_dir=str(tmp_path),
            pod_source=PodSource.API_SERVER,
        )
        agent = NodeAgent(
            client,
            clock,
            settings,
            tree.host,
            Telemetry(),
            layout=tree.layout,
            commands=tree.host,
            modules=partial(make_modules, sockets=False),
        )
        reader = CgroupReader(tree.host, tree.layout)
        tier = tree.paths.tier(BEST_EFFORT)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(agent.run())
            await until(lambda: agent.ready() and reader.cpu_quota(tier) > 0)
            await until(lambda: reader.memory_limit(f"{directory}/main") == 256 * 2**20)
            assert 0 < reader.cpu_quota(tier) <= 2 * 65_000
            assert reader.cpu_quota(directory) == -1  # the tier's quota holds them together
            explained = agent.explain("node", "here")
            task.cancel()
        assert reader.cpu_quota(tier) == -1
        assert explained is not None
        assert explained["qos"]["failing"] == {}
        assert explained["qos"]["strategies"]["cpu-suppress"]["policy"] == "cfsQuota"
        audited = (tmp_path / "audit.log").read_text(encoding="utf-8")
        for word in ("AdjustBEByNodeCPUUsage", "suppressBECPU", "runtime-hooks", tier):
            assert word in audited
