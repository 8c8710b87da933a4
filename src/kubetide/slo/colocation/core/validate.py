"""Which pods are refused: QoS class, priority class and resources must fit each other, and stay as they are.

All rules are checked, so that one answer names everything that is wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kubetide.api.objects.core import Container, Pod
from kubetide.api.objects.resources import parse_list
from kubetide.api.qos import qos
from kubetide.api.values.quantity import ZERO
from kubetide.slo.colocation.core.pending import waits_for_a_node
from kubetide.slo.colocation.core.profile import LABEL_SUB_PRIORITY

RESERVE_POD = "scheduling.koordinator.sh/reserve-pod"

_FORBIDDEN = {
    qos.BE: (qos.NONE, qos.PROD),
    qos.LSR: (qos.NONE, qos.MID, qos.BATCH, qos.FREE),
}
_PINNED = (qos.LSR, qos.LSE)
_BATCH = (qos.BATCH_CPU, qos.BATCH_MEMORY)


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a pod breaks."""

    rule: str
    message: str


def violations(
    new: Pod, old: Pod | None, *, check_sub_priority: bool = True, catches_up: bool = False
) -> tuple[Violation, ...]:
    """Return what is wrong with a pod; `old` is None at creation.

    With `catches_up`, a pod that waits for a node may still be given what it does not have: profiles for pending pods
    could not do anything otherwise.
    """
    if old is None:
        return tuple(_combinations(new))
    may_fill = catches_up and waits_for_a_node(old)
    return (*_changes(new, old, check_sub_priority=check_sub_priority, may_fill=may_fill), *_combinations(new))


def _changes(new: Pod, old: Pod, *, check_sub_priority: bool, may_fill: bool) -> Iterator[Violation]:
    before, after = old.metadata.labels or {}, new.metadata.labels or {}
    facts = [
        ("qos-class-immutable", qos.LABEL_QOS, qos.raw_qos(before), qos.raw_qos(after)),
        ("priority-class-immutable", "the priority class", qos.raw_priority(old), qos.raw_priority(new)),
    ]
    if check_sub_priority:
        sub_priorities = before.get(LABEL_SUB_PRIORITY, ""), after.get(LABEL_SUB_PRIORITY, "")
        facts.append(("sub-priority-immutable", LABEL_SUB_PRIORITY, *sub_priorities))
    for rule, what, was, is_now in facts:
        if was != is_now and not (may_fill and not was):
            yield Violation(rule, f"{what} of a pod cannot change from {was or 'none'} to {is_now or 'none'}")


def _combinations(pod: Pod) -> Iterator[Violation]:
    found = qos.raw_qos(pod.metadata.labels)
    priority = qos.raw_priority(pod)
    if found != qos.BE and any(_requests_batch(each) for each in _all_containers(pod)):
        yield Violation("batch-resources-need-be", f"batch resources need the label {qos.LABEL_QOS}={qos.BE}")
    if priority in _FORBIDDEN.get(found, ()):
        hint = "set priorityClassName, or the label " + qos.LABEL_PRIORITY_CLASS if not priority else "choose another"
        message = f"QoS class {found} does not go with priority class {priority or 'none'}: {hint}"
        yield Violation("qos-and-priority-class", message)
    if found in _PINNED:
        cpu = qos.pod_request(pod).get("cpu", ZERO)
        if not cpu.sign:
            yield Violation("cpu-required", f"QoS class {found} must request CPU")
        elif cpu.nanos % 10**9:
            yield Violation("whole-cpus-required", f"QoS class {found} must request whole CPUs, not {cpu}")


def _all_containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.containers or ()
    yield from pod.spec.init_containers or ()


def _requests_batch(container: Container) -> bool:
    requests = parse_list(container.resources.requests if container.resources else None)
    return any(requests.get(name, ZERO).sign for name in _BATCH)
