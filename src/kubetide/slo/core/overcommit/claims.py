"""What a pod claims of its node: everything about it that overcommit needs, worked out once per version of the pod.

A node is calculated again whenever its report changes, its pods hardly ever do. Priority, QoS and request of a pod
are therefore read off the object once.
"""

from dataclasses import dataclass

from kubetide.api.objects.core import Pod
from kubetide.api.objects.resources import CPU, MEMORY, parse_list
from kubetide.api.qos.qos import MID, defaulted_priority, defaulted_qos, pod_request, resource_status
from kubetide.api.values.quantity import ZERO
from kubetide.errors import InvalidInput

LOW_PRIORITIES = frozenset({"koord-batch", "koord-free"})
"""Work of these classes runs on what others do not use; all other pods are high-priority."""

_ACTIVE_PHASES = frozenset({"Running", "Pending"})


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One pod, as overcommit sees it."""

    key: tuple[str, str]
    active: bool
    low_priority: bool
    prod: bool
    """Of no lower class than prod: what it requests cannot be mid."""
    dedicated: bool
    """Its cores are its own (LSE): it gives no CPU back, however little it uses."""
    cpu_nanos: int
    memory_nanos: int
    numa_nodes: tuple[int, ...] = ()

    def zones(self, count: int) -> tuple[int, ...]:
        """Return the zones over which the pod is spread: those the scheduler chose, or all of them."""
        return tuple(node for node in self.numa_nodes if 0 <= node < count) or tuple(range(count))


def claim_of(pod: Pod) -> PodClaim:
    """Read the claim off a pod."""
    request = pod_request(pod)
    priority = defaulted_priority(pod)
    return PodClaim(
        key=(pod.metadata.namespace, pod.metadata.name),
        active=pod.status.phase in _ACTIVE_PHASES,
        low_priority=priority in LOW_PRIORITIES,
        prod=priority not in (*LOW_PRIORITIES, MID),
        dedicated=defaulted_qos(pod) == "LSE",
        cpu_nanos=request.get(CPU, ZERO).nanos,
        memory_nanos=request.get(MEMORY, ZERO).nanos,
        numa_nodes=_numa_nodes(pod),
    )


def _numa_nodes(pod: Pod) -> tuple[int, ...]:
    try:
        status = resource_status(pod.metadata.annotations)
        entries = (status.numa_node_resources if status else None) or ()
        for entry in entries:
            parse_list(entry.resources)
    except InvalidInput:
        return ()
    return tuple(entry.node for entry in entries)
