"""Scenario events, each at its time: outages, other load, spikes, scalings, rollouts, cordons, crashes.

Each is announced as it begins, and as it ends where it has an end, so that whoever looks knows what the cluster is up
against. An event that finds nothing to happen to (a pod that is gone by then) is announced as that.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.load.curves import Curve, Surge
from kubetide.embedded.sim.load.scenario import EventSpec, make_curve, seconds
from kubetide.embedded.sim.node.kubelet import Kubelets
from kubetide.embedded.sim.world import DEPLOYMENTS, NODES, PODS, World, with_condition

if TYPE_CHECKING:
    from kubetide.embedded.sim.cluster import SimCluster

DEFAULT_FOR = "5m"
_SPIKE_FOR = "10m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A scenario event that begins, or is over."""

    subject: str
    text: str
    seconds: float = 0.0
    """How long it lasts; 0 for what is done at once."""
    over: bool = False
    missed: bool = False
    """There was nothing for it to happen to."""


async def play(cluster: "SimCluster", event: EventSpec) -> None:
    """Wait for the time of an event and carry it out."""
    await asyncio.sleep(max(0.0, seconds(event.at) - cluster.elapsed()))
    lasts = seconds(event.duration or (_SPIKE_FOR if event.do == "spike" else DEFAULT_FOR))
    if event.do == "outage":
        what = "the metrics API" if event.of == "metrics" else f"node {event.of.removeprefix('node/')}"
        cluster.announce(Announcement(subject=event.of, text=f"outage: {what} is down", seconds=lasts))
        with cluster.outage(event.of):
            await asyncio.sleep(lasts)
        cluster.announce(Announcement(subject=event.of, text=f"{what} is back", over=True))
        return
    space, _, name = event.of.rpartition("/")
    key = StoreKey(space or "default", name)
    if event.do == "spike":
        await _surge(cluster, key, event.factor, lasts)
        return
    told = await _carry_out(cluster, event, key)
    if told is None:
        cluster.announce(Announcement(subject=event.of, text=f"{event.do}: there is no {event.of}", missed=True))
    else:
        cluster.announce(Announcement(subject=event.of or "cluster", text=told))


async def _carry_out(cluster: "SimCluster", event: EventSpec, key: StoreKey) -> str | None:
    """Do what is done at once and return what to tell; None if there is nothing to do it to."""
    world = cluster.world
    match event.do:
        case "load" if event.load is not None:
            cluster.set_load(key.namespace, key.name, make_curve(event.load, seed=cluster.seed))
            return f"other load from now on: {event.load.curve}"
        case "scale" if event.replicas is not None:
            deployment = world.get(DEPLOYMENTS, key)
            if deployment is None:
                return None
            before = deployment["spec"].get("replicas")
            world.put_spec(DEPLOYMENTS, deployment, {**deployment["spec"], "replicas": event.replicas})
            return f"somebody scales it from {before} to {event.replicas} replicas"
        case "rollout":
            return "rollout: all pods are replaced" if _restart_rollout(world, key) else None
        case "cordon" | "uncordon":
            node = world.get(NODES, StoreKey("", event.of))
            if node is None:
                return None
            world.put_spec(NODES, node, {**node["spec"], "unschedulable": event.do == "cordon"})
            return "cordoned: no new pods" if event.do == "cordon" else "uncordoned: takes pods again"
        case "apply" if event.object is not None:
            await cluster.apply(event.object)
            return f"{event.object['kind']} {event.object['metadata']['name']} is applied"
        case "delete" | "kill":
            pod = _pod(cluster, key)
            if pod is None:
                return None
            if event.do == "kill":
                cluster.kubelets.crash(pod)
                return f"pod {pod.name} crashes"
            await world.delete(PODS, pod)
            return f"pod {pod.name} is deleted"
    return None


async def _surge(cluster: "SimCluster", key: StoreKey, factor: float, lasts: float) -> None:
    """Multiply the load of a workload for a while."""
    before = cluster.model.profile_of((key.namespace, key.name)).curve
    subject = f"{key.namespace}/{key.name}"
    if before is None:
        cluster.announce(Announcement(subject=subject, text="spike: it has no load", missed=True))
        return
    surge: Curve = Surge(before, factor, begin=cluster.elapsed(), duration=lasts)
    cluster.set_load(key.namespace, key.name, surge)
    cluster.announce(Announcement(subject=subject, text=f"spike: {factor:g} times the load", seconds=lasts))
    await asyncio.sleep(lasts)
    if cluster.model.profile_of((key.namespace, key.name)).curve is surge:
        cluster.set_load(key.namespace, key.name, before)
    cluster.announce(Announcement(subject=subject, text="the spike is over", over=True))


def _pod(cluster: "SimCluster", key: StoreKey) -> StoreKey | None:
    """Return the pod of that name, or the oldest of the workload of that name."""
    for run in cluster.kubelets.runs():
        if run.key == key or run.workload == (key.namespace, key.name):
            return run.key
    return None


def _restart_rollout(world: World, key: StoreKey) -> bool:
    """Replace all pods of a deployment, as `kubectl rollout restart` does; return whether there is one."""
    deployment = world.get(DEPLOYMENTS, key)
    if deployment is None:
        return False
    template = deployment["spec"]["template"]
    metadata = template.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), "kubectl.kubernetes.io/restartedAt": world.stamp()}
    template = {**template, "metadata": {**metadata, "annotations": annotations}}
    world.put_spec(DEPLOYMENTS, deployment, {**deployment["spec"], "template": template})
    return True


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
