"""Which node a pod goes to: filters first, then the least loaded of what is left.

Filters: the node is schedulable and ready, its taints are tolerated, selector and required node affinity match, and
every requested resource (extended ones included) fits what is allocatable and not yet promised. Required pod
(anti-)affinity by topology key is honoured. Score: mean free share of cpu and memory after placing; ties go to the
node that comes first by name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import parse_quantity
from kubetide.api.values.selectors import LabelSelector, parse_int64, selector_from
from kubetide.embedded.apiserver.rest.status import Raw

Amounts = dict[str, int]
"""Resources in thousandths of a unit for cpu, whole units otherwise."""


@dataclass(slots=True)
class SchedulerNode:
    """One node as the scheduler keeps it: what it has, what is promised, who is on it."""

    name: str
    labels: dict[str, str]
    taints: list[Raw]
    allocatable: Amounts
    unschedulable: bool = False
    ready: bool = True
    used: Amounts = field(default_factory=dict)
    pods: dict[str, Raw] = field(default_factory=dict)

    def promise(self, uid: str, pod: Raw, amounts: Amounts) -> None:
        self.pods[uid] = pod
        for name, value in amounts.items():
            self.used[name] = self.used.get(name, 0) + value

    def release(self, uid: str, amounts: Amounts) -> None:
        if self.pods.pop(uid, None) is not None:
            for name, value in amounts.items():
                self.used[name] = self.used.get(name, 0) - value


def amount_of(name: str, text: Any) -> int:
    """Return a resource amount as a number: millis for cpu, units otherwise."""
    quantity = parse_quantity(text)
    return quantity.milli if name == "cpu" else quantity.value


def amounts_of(resources: Mapping[str, Any] | None) -> Amounts:
    return {name: amount_of(name, text) for name, text in (resources or {}).items()}


def pod_amounts(pod: Raw) -> Amounts:
    """Return what a pod takes: the sum of its containers, at least each init container, overhead and one pod slot.

    While a resize is under way a container counts with the larger of what it wants and what it still holds.
    """
    spec = pod["spec"]
    total: Amounts = {}
    held = _held_amounts(pod) if is_resizing(pod) else {}
    for container in spec.get("containers") or ():
        wanted = amounts_of((container.get("resources") or {}).get("requests"))
        for name, value in held.get(container.get("name", ""), {}).items():
            wanted[name] = max(value, wanted.get(name, 0))
        for name, value in wanted.items():
            total[name] = total.get(name, 0) + value
    for container in spec.get("initContainers") or ():
        requests = amounts_of((container.get("resources") or {}).get("requests"))
        for name, value in requests.items():
            if container.get("restartPolicy") == "Always":
                total[name] = total.get(name, 0) + value
            else:
                total[name] = max(total.get(name, 0), value)
    for name, value in amounts_of(spec.get("overhead")).items():
        total[name] = total.get(name, 0) + value
    total["pods"] = 1
    return total


def is_resizing(pod: Raw) -> bool:
    """Whether a change of resources waits or is being carried out."""
    return any(
        condition.get("type") in ("PodResizePending", "PodResizeInProgress")
        for condition in (pod.get("status") or {}).get("conditions") or ()
    )


def _held_amounts(pod: Raw) -> dict[str, Amounts]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return {status["name"]: amounts_of(status.get("allocatedResources")) for status in statuses}


def tolerates(tolerations: Iterable[Raw], taint: Raw) -> bool:
    """Whether one of the tolerations covers a taint."""
    for toleration in tolerations:
        if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
            continue
        if toleration.get("operator", "Equal") == "Exists":
            if not toleration.get("key") or toleration["key"] == taint.get("key"):
                return True
        elif toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (
            taint.get("value") or ""
        ):
            return True
    return False


def why_not(pod: Raw, amounts: Amounts, node: SchedulerNode) -> str:
    """Return why a pod cannot go to a node, in the scheduler's words; empty if it can."""
    spec = pod["spec"]
    tolerations = spec.get("tolerations") or ()
    if node.unschedulable and not tolerates(
        tolerations, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return "node(s) were unschedulable"
    if not node.ready:
        return "node(s) were not ready"
    for taint in node.taints:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint):
            return f"node(s) had untolerated taint {{{taint.get('key')}: {taint.get('value') or ''}}}"
    for key, value in (spec.get("nodeSelector") or {}).items():
        if node.labels.get(key) != value:
            return "node(s) didn't match Pod's node affinity/selector"
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if required is not None and not any(_term_matches(term, node) for term in required.get("nodeSelectorTerms") or ()):
        return "node(s) didn't match Pod's node affinity/selector"
    for name, value in amounts.items():
        if value > 0 and node.used.get(name, 0) + value > node.allocatable.get(name, 0):
            return "Too many pods" if name == "pods" else f"Insufficient {name}"
    return ""


def _term_matches(term: Raw, node: SchedulerNode) -> bool:
    for rule in term.get("matchExpressions") or ():
        if not _rule_matches(rule, node.labels.get(rule.get("key", ""))):
            return False
    for rule in term.get("matchFields") or ():
        if rule.get("key") == "metadata.name" and not _rule_matches(rule, node.name):
            return False
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _rule_matches(rule: Raw, value: str | None) -> bool:
    values = rule.get("values") or []
    match rule.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            number, bound = parse_int64(value or ""), parse_int64(values[0] if values else "")
            if number is None or bound is None:
                return False
            return number > bound if operator == "Gt" else number < bound
    return False


def affinity_problem(pod: Raw, node: SchedulerNode, nodes: Iterable[SchedulerNode]) -> str:
    """Return why required pod affinity or anti-affinity keeps a pod from a node; empty if it does not."""
    affinity = pod["spec"].get("affinity") or {}
    namespace = pod["metadata"]["namespace"]
    peers: list[SchedulerNode] | None = None
    for part, wanted in (("podAffinity", True), ("podAntiAffinity", False)):
        for term in (affinity.get(part) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            selector = selector_from(convert(term.get("labelSelector") or {}, LabelSelector))
            topology = node.labels.get(term.get("topologyKey", ""))
            if peers is None:
                peers = list(nodes)
            spaces = term.get("namespaces") or [namespace]
            same = [n for n in peers if topology is not None and n.labels.get(term["topologyKey"]) == topology]
            near = any(_selected(other, selector, spaces) for n in same for other in n.pods.values())
            if wanted and not near:
                anywhere = any(_selected(other, selector, spaces) for n in peers for other in n.pods.values())
                own = selector.matches(pod["metadata"].get("labels") or {})
                if anywhere or not own:  # the first of a group that wants to be together may go anywhere
                    return "node(s) didn't match pod affinity rules"
            if not wanted and near:
                return "node(s) didn't match pod anti-affinity rules"
    return ""


def _selected(pod: Raw, selector: Any, namespaces: list[str]) -> bool:
    metadata = pod["metadata"]
    return metadata["namespace"] in namespaces and bool(selector.matches(metadata.get("labels") or {}))


def choose(pod: Raw, amounts: Amounts, nodes: Iterable[SchedulerNode]) -> tuple[SchedulerNode | None, str]:
    """Return the best node, or None and the message that says how many nodes failed for which reason."""
    candidates = list(nodes)
    reasons: dict[str, int] = {}
    best: SchedulerNode | None = None
    best_score = -1.0
    picky = bool((pod["spec"].get("affinity") or {}).keys() & {"podAffinity", "podAntiAffinity"})
    for node in candidates:
        problem = why_not(pod, amounts, node)
        if not problem and picky:
            problem = affinity_problem(pod, node, candidates)
        if problem:
            reasons[problem] = reasons.get(problem, 0) + 1
            continue
        score = _free_share(node, amounts)
        if score > best_score:
            best, best_score = node, score
    if best is not None:
        return best, ""
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return None, f"0/{len(candidates)} nodes are available: {told or 'no nodes'}."


def _free_share(node: SchedulerNode, amounts: Amounts) -> float:
    share = 0.0
    for name in ("cpu", "memory"):
        total = node.allocatable.get(name, 0)
        if total > 0:
            # An unrequested pod still weighs something, or all best-effort pods would pile up on one node.
            floor = 100 if name == "cpu" else 200 * 2**20
            share += 1 - (node.used.get(name, 0) + max(amounts.get(name, 0), floor)) / total
    pods = node.allocatable.get("pods", 110)
    return share / 2 - 0.01 * len(node.pods) / max(1, pods)
