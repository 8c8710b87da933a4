"""Scenario events, each at its time: outages, other load, scalings, rollouts, cordons, crashes."""

import asyncio
from typing import TYPE_CHECKING

from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.load.scenario import EventSpec, make_curve, seconds
from kubetide.embedded.sim.world import DEPLOYMENTS, NODES, PODS, World

if TYPE_CHECKING:
    from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.node.kubelet import Kubelets
from kubetide.embedded.sim.world import with_condition


async def play(cluster: "SimCluster", event: EventSpec) -> None:
    """Wait for the time of an event and carry it out."""
    await asyncio.sleep(max(0.0, seconds(event.at) - cluster.elapsed()))
    world = cluster.world
    space, _, name = event.of.rpartition("/")
    key = StoreKey(space or "default", name)
    match event.do:
        case "outage":
            with cluster.outage(event.of):
                await asyncio.sleep(seconds(event.duration or "5m"))
        case "load" if event.load is not None:
            cluster.set_load(key.namespace, key.name, make_curve(event.load, seed=cluster.seed))
        case "scale" if event.replicas is not None:
            deployment = world.get(DEPLOYMENTS, key)
            if deployment is not None:
                world.put_spec(DEPLOYMENTS, deployment, {**deployment["spec"], "replicas": event.replicas})
        case "rollout":
            _restart_rollout(world, key)
        case "cordon" | "uncordon":
            node = world.get(NODES, StoreKey("", event.of))
            if node is not None:
                world.put_spec(NODES, node, {**node["spec"], "unschedulable": event.do == "cordon"})
        case "apply" if event.object is not None:
            await cluster.apply(event.object)
        case "delete":
            await world.delete(PODS, key)
        case "kill":
            cluster.kubelets.crash(key)


def _restart_rollout(world: World, key: StoreKey) -> None:
    """Replace all pods of a deployment, as `kubectl rollout restart` does."""
    deployment = world.get(DEPLOYMENTS, key)
    if deployment is None:
        return
    template = deployment["spec"]["template"]
    metadata = template.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), "kubectl.kubernetes.io/restartedAt": world.stamp()}
    template = {**template, "metadata": {**metadata, "annotations": annotations}}
    world.put_spec(DEPLOYMENTS, deployment, {**deployment["spec"], "template": template})


# A node that stops talking: its kubelet reports nothing any more, and the control plane no longer knows its state.


def set_node_outage(world: World, kubelets: Kubelets, name: str, *, down: bool) -> None:
    """Cut a node off, or bring it back."""
    if down:
        kubelets.disconnect(name)
    node = world.get(NODES, StoreKey("", name))
    if node is not None:
        condition = {
            "type": "Ready",
            "status": "Unknown" if down else "True",
            "reason": "NodeStatusUnknown" if down else "KubeletReady",
            "message": "Kubelet stopped posting node status." if down else "",
            "lastTransitionTime": world.stamp(),
        }
        status = {**node["status"], "conditions": with_condition(node["status"].get("conditions"), condition)}
        world.put(NODES, node, status=status)
    if not down:
        kubelets.reconnect(name)
