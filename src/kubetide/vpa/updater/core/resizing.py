"""A resize in place, step by step, in words for people.

    Proposed      the new resources are written; the kubelet has not answered yet
    Deferred      the node has no room now, or the kubelet failed; it tries again
    InProgress    the kubelet is changing the containers
    Infeasible    the node can never give this
    Done          the containers run with what was asked for
    FellBack      the pod was evicted instead

The state is read off the pod, so it is the same after a restart. A resize that would change the QoS class of the pod
is not tried: the class is fixed for life, and the API server refuses it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from kubetide.api.objects.core import Pod, ResourceRequirements
from kubetide.api.qos.qos import kube_qos
from kubetide.vpa.core.capping import NewResources
from kubetide.vpa.core.policy import amounts, texts
from kubetide.vpa.updater.core.inplace import ResizeState, pod_resize_state, resize_message

RESIZED = "vpaInPlaceUpdated"
"""Annotation of a pod that was resized by a VPA."""


class ResizePhase(Enum):
    """Where a resize stands."""

    PROPOSED = "Proposed"
    DEFERRED = "Deferred"
    IN_PROGRESS = "InProgress"
    INFEASIBLE = "Infeasible"
    DONE = "Done"
    FELL_BACK = "FellBack"


@dataclass(frozen=True, slots=True)
class Resize:
    """Where the resize of a pod stands, and why."""

    phase: ResizePhase
    reason: str


_WORDS = {
    ResizeState.DEFERRED: (ResizePhase.DEFERRED, "the node has no room now; the kubelet tries again"),
    ResizeState.PENDING_UNKNOWN: (ResizePhase.DEFERRED, "the kubelet has not taken it up, for a reason unknown to us"),
    ResizeState.IN_PROGRESS: (ResizePhase.IN_PROGRESS, "the kubelet is changing the containers"),
    ResizeState.IN_PROGRESS_UNKNOWN: (ResizePhase.IN_PROGRESS, "the kubelet is at it, and complains"),
    ResizeState.INFEASIBLE: (ResizePhase.INFEASIBLE, "the node can never give what is asked for"),
    ResizeState.ERROR: (ResizePhase.DEFERRED, "the kubelet failed to carry it out and tries again"),
}


def resize_of(pod: Pod) -> Resize | None:
    """Return where the resize of a pod stands; None for a pod that nobody resizes."""
    state = pod_resize_state(pod)
    if state is not ResizeState.NONE:
        phase, words = _WORDS[state]
        said = resize_message(pod)
        return Resize(phase, f"{words} ({said})" if said else words)
    if (pod.metadata.annotations or {}).get(RESIZED) != "true":
        return None
    if _carried_out(pod):
        return Resize(ResizePhase.DONE, "the containers run with what was asked for")
    return Resize(ResizePhase.PROPOSED, "the kubelet has not answered yet")


def fell_back(reason: str) -> Resize:
    """Return the end of a resize that became an eviction."""
    return Resize(ResizePhase.FELL_BACK, reason)


def resized(pod: Pod, new: Sequence[NewResources]) -> Pod:
    """Return the pod as it would be with the new resources."""
    containers = []
    for container, got in zip(pod.spec.containers or (), new, strict=True):
        own = container.resources or ResourceRequirements()
        resources = ResourceRequirements(
            requests={**(own.requests or {}), **texts(got.requests)} or None,
            limits={**(own.limits or {}), **texts(got.limits)} or None,
        )
        containers.append(msgspec.structs.replace(container, resources=resources))
    spec = msgspec.structs.replace(pod.spec, containers=tuple(containers))
    return msgspec.structs.replace(pod, spec=spec)


def changes_qos(pod: Pod, new: Sequence[NewResources]) -> str:
    """Return which QoS class the pod would change to, as `Burstable to Guaranteed`; empty when it keeps its own."""
    before, after = _qos(pod), _qos(resized(pod, new))
    return "" if before == after else f"{before} to {after}"


def already_asked(pod: Pod, new: Sequence[NewResources]) -> bool:
    """Return whether the pod's spec holds all of the new resources: then the kubelet is next."""
    for container, got in zip(pod.spec.containers or (), new, strict=True):
        own = container.resources or ResourceRequirements()
        for has, wanted in ((amounts(own.requests), got.requests), (amounts(own.limits), got.limits)):
            if any(name not in has or has[name] != amount for name, amount in wanted.items()):
                return False
    return True


def _qos(pod: Pod) -> str:
    status = msgspec.structs.replace(pod.status, qos_class="")
    return kube_qos(msgspec.structs.replace(pod, status=status))


def _carried_out(pod: Pod) -> bool:
    running = {status.name: status.resources for status in pod.status.container_statuses or ()}
    for container in pod.spec.containers or ():
        has, asked = running.get(container.name), container.resources
        if has is None or asked is None:
            continue
        if amounts(has.requests) != amounts(asked.requests) or amounts(has.limits) != amounts(asked.limits):
            return False
    return True
