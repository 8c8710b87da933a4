"""The whole agent on real cgroups, with the embedded API server: from a burning container to a NodeMetric."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from agentserver import agent_client, agent_server
from kernel.tree import BURNER, Tree, cgroup_tree, until
from kubetide.api.objects.scheme import PODS
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.node.agent import NodeAgent
from kubetide.node.core.slo import complete_collect_policy
from kubetide.node.settings import NodeSettings, PodSource
from kubetide.telemetry import Telemetry

NODE: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}, "spec": {}}


def pod(uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"nodeName": "here", "containers": [{"name": "main", "image": "x"}]},
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
    }


def agent_for(tree: Tree, api: ApiServer, clock: SystemClock) -> NodeAgent:
    settings = NodeSettings(
        node_name="here",
        cgroup_driver="cgroupfs",
        cgroup_prefix=tree.prefix,
        audit_log_dir="",
        pod_source=PodSource.API_SERVER,
        prediction_training_interval=timedelta(seconds=1),
    )
    return NodeAgent(
        agent_client(api, clock),
        clock,
        settings,
        tree.host,
        Telemetry(),
        layout=tree.layout,
        commands=tree.host,
        inotify=True,
    )


async def test_a_burning_container_shows_in_the_report() -> None:
    clock = SystemClock()
    with cgroup_tree() as tree, agent_server(clock, [NODE, pod("burning")]) as api:
        tree.tiers()
        stored = await agent_client(api, clock).get_raw(PODS, "burning", namespace="default")
        directory = tree.pod(stored["metadata"]["uid"], "BestEffort", "main")
        tree.limit_cpu(f"{directory}/main", 20_000)
        tree.run(f"{directory}/main", BURNER)
        agent = agent_for(tree, api, clock)
        spec = complete_collect_policy({"metricCollectPolicy": {"aggregateDurationSeconds": 3}})
        async with asyncio.TaskGroup() as group:
            task = group.create_task(agent.run())
            await until(lambda: agent.ready() and bool(agent.build_status(spec).body["podsMetric"]))
            began, before = clock.monotonic(), tree.usage_nanos(directory)
            await asyncio.sleep(3.5)
            kernel = (tree.usage_nanos(directory) - before) / ((clock.monotonic() - began) * 1e6)
            reported = agent.build_status(spec).body["podsMetric"][0]
            status = agent.status()
            task.cancel()
        assert reported["qos"] == "BE"
        millis = int(reported["podUsage"]["resources"]["cpu"].removesuffix("m"))
        assert millis == pytest.approx(kernel, rel=0.25), "over windows that overlap, not agree"
        assert status["pods"][0]["predicted"] is not None
        assert agent.store.dropped == 0
