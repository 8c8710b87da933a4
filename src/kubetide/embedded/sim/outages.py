"""A node that stops talking: its kubelet says nothing any more, and the control plane no longer knows its state."""

from kubetide.embedded.objects import StoreKey
from kubetide.embedded.sim.kubelet import Kubelets
from kubetide.embedded.sim.world import NODES, World, with_condition


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
