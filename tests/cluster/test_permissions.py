"""Every component does its work with just the permissions that `kubetide manifests` gives it."""

import asyncio
import random
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from kubetide.api.objects.scheme import COLOCATION_PROFILES, NODE_METRICS
from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.install.objects import account, manifests
from kubetide.kube.client.client import Client
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.enforcement import make_modules
from kubetide.node.settings import NodeSettings, PodSource
from kubetide.settings import COMPONENTS
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_config_map, make_deployment, make_hpa, make_pod, make_vpa
from kubetide.wiring import Dependencies, build
from onlookers import Counted
from simulated.cluster import run


def service_account(component: str) -> User:
    name = f"system:serviceaccount:kube-system:{account(component)}"
    return User(name, ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"))


async def work(cluster: SimCluster) -> None:
    """Give every component something to do."""
    await cluster.apply(
        [
            make_deployment("web", replicas=2, cpu="500m", memory="256Mi"),
            make_hpa("web", maximum=6, cpu_percent=50),
            make_deployment("idle", replicas=3, cpu="1", memory="1Gi"),
            make_vpa("idle", target="idle", mode="Recreate"),
            make_config_map(
                "slo-controller-config", "koordinator-system", {"colocation-config": '{"enable": true}', "x": "{"}
            ),
        ]
    )
    cluster.set_usage("default", "web", cpu=0.45)
    cluster.set_usage("default", "idle", cpu=0.05)


async def late_profile(cluster: SimCluster) -> None:
    """Make a profile that comes after the pod it is for, which waits for a node."""
    await cluster.apply(make_pod("waits", "default", labels={"app": "late"}, cpu="900", memory="1Gi"))
    labels = {"config.koordinator.sh/controller-managed": "true"}
    spec = {"selector": {"matchLabels": {"app": "late"}}, "labels": {"tier": "batch"}}
    await cluster.apply(
        {
            "apiVersion": COLOCATION_PROFILES.api_version,
            "kind": COLOCATION_PROFILES.kind,
            "metadata": {"name": "late", "labels": labels},
            "spec": spec,
        }
    )


def settings_of(component: str) -> Any:
    changes: dict[str, dict[str, Any]] = {
        "hpa": {"take_over": True},
        "recommender": {"feature_gates": ("AllAlpha=true",)},
        "updater": {"feature_gates": ("AllAlpha=true",)},
        "admission": {
            "local_name": "vpa",
            "register_delay": timedelta(seconds=1),
            "feature_gates": ("AllAlpha=true",),
        },
        "colocation": {"feature_gates": ("ColocationProfileController=true", "ReservationMutatingWebhook=true")},
    }
    return COMPONENTS[component](**changes.get(component, {}))


@pytest.mark.parametrize("component", sorted(COMPONENTS))
def test_nothing_is_refused(component: str) -> None:
    async def main(cluster: SimCluster) -> Counted:
        objects = manifests((component,), namespace="kube-system", image="x")
        await cluster.apply([each for each in objects if each["kind"] not in ("Deployment", "DaemonSet")])
        await work(cluster)
        if component == "colocation":
            await late_profile(cluster)
        transport = Counted(cluster.transport(service_account(component)))
        telemetry, rng = Telemetry(), random.Random(1)
        world = Dependencies(
            client=Client(transport, clock=cluster.clock, rng=rng),
            clock=cluster.clock,
            telemetry=telemetry,
            rng=rng,
            local_webhooks=cluster.api.admission,
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part.run()) for part in build(component, world, settings_of(component))]
            await cluster.run_for(timedelta(minutes=15))
            for task in tasks:
                task.cancel()
        return transport

    transport = run(main, nodes=2)
    assert transport.refused == []
    assert transport.written
    if component == "colocation":
        assert any("/pods/waits" in request for request in transport.written)


def test_the_agent_of_a_node_is_refused_nothing() -> None:
    async def main(cluster: SimCluster) -> Counted:
        objects = manifests(("slo", "node"), namespace="kube-system", image="x")
        await cluster.apply([each for each in objects if each["kind"] not in ("Deployment", "DaemonSet")])
        await work(cluster)
        await cluster.apply(
            {"apiVersion": NODE_METRICS.api_version, "kind": "NodeMetric", "metadata": {"name": "node-1"}}
        )
        transport = Counted(cluster.transport(service_account("node")))
        host = cluster.hosts["node-1"]
        agent = NodeAgent(
            Client(transport, clock=cluster.clock, rng=random.Random(1)),
            cluster.clock,
            NodeSettings(node_name="node-1", audit_log_dir="", pod_source=PodSource.API_SERVER),
            host,
            Telemetry(),
            layout=Layout(version=host.version, paths=host.paths),
            commands=host,
            modules=partial(make_modules, sockets=False, rng=random.Random(1)),
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(agent.run())
            await cluster.run_for(timedelta(minutes=5))
            task.cancel()
        return transport

    transport = run(main, nodes=1)
    assert transport.refused == []
    assert any("nodemetrics/node-1/status" in request for request in transport.written)
