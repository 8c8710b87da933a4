"""In-place resize: whether new resources can be had now, later, or never, and what must restart for them.

Infeasible   a request is more than the node could ever give
Deferred     it is more than what the node has left beside the other pods
granted      otherwise; the cgroups follow shortly after (InProgress until then)
"""

from dataclasses import dataclass
from typing import Literal

from kubetide.embedded.sim.containers import Container, resources_of
from kubetide.embedded.sim.placement import Amounts, amounts_of
from kubetide.embedded.status import Raw

Verdict = Literal["Infeasible", "Deferred", "Granted"]


@dataclass(frozen=True, slots=True)
class ResizeDecision:
    """The kubelet's answer, with the sentence that goes into the condition."""

    verdict: Verdict
    message: str = ""


def wanted_resources(pod: Raw) -> dict[str, Raw]:
    """Return the resources the spec asks for, by container."""
    return {container["name"]: resources_of(container) for container in pod["spec"].get("containers") or ()}


def decide_resize(wanted: dict[str, Raw], *, allocatable: Amounts, others: Amounts) -> ResizeDecision:
    """Judge a pod's new requests against its node; `others` is what the other pods on it hold."""
    total: Amounts = {}
    for resources in wanted.values():
        for name, value in amounts_of(resources.get("requests")).items():
            total[name] = total.get(name, 0) + value
    for name, value in total.items():
        capacity = allocatable.get(name, 0)
        if value > capacity:
            return ResizeDecision(
                "Infeasible", f"Node didn't have enough capacity: {name}, requested: {value}, capacity: {capacity}"
            )
    for name, value in total.items():
        used, capacity = others.get(name, 0), allocatable.get(name, 0)
        if used + value > capacity:
            return ResizeDecision(
                "Deferred",
                f"Node didn't have enough resource: {name}, requested: {value}, used: {used}, capacity: {capacity}",
            )
    return ResizeDecision("Granted")


def needs_restart(spec: Raw, before: Raw, after: Raw) -> bool:
    """Whether a changed resource is declared to need a restart of the container."""
    policies = {rule.get("resourceName"): rule.get("restartPolicy") for rule in spec.get("resizePolicy") or ()}
    for resource in ("cpu", "memory"):
        changed = any(
            (before.get(part) or {}).get(resource) != (after.get(part) or {}).get(resource)
            for part in ("requests", "limits")
        )
        if changed and policies.get(resource) == "RestartContainer":
            return True
    return False


def held_by(containers: list[Container]) -> Amounts:
    """Return what a pod's containers hold: what they were allocated."""
    total: Amounts = {}
    for container in containers:
        for name, value in amounts_of(container.allocated.get("requests")).items():
            total[name] = total.get(name, 0) + value
    return total
