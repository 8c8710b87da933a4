"""Core scheduling: whose processes may share a physical core, and the cookies that say so.

A group is all pods with the same group label, or one pod (by its policy label; before 1.5 also without any label);
processes with different cookies never run on two
threads of one core at the same time. The algorithms below are written against a small kernel protocol, so that
they can be tested without one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kubetide.api.qos.cgroups import BEST_EFFORT, BURSTABLE, GUARANTEED
from kubetide.api.qos.qos import LABEL_CORE_SCHED_GROUP, LABEL_CORE_SCHED_POLICY
from kubetide.api.qos.slo_strategies import NodeSLOSpec, ResourceQOS
from kubetide.errors import KubetideError
from kubetide.node.core.compat import CORE_SCHED_POLICY, NEWEST, Compat

POLICY = "coreSched"
NO_GROUP = "0"
EXPELLER_SUFFIX = "-expeller"
EXCLUSIVE, NONE = "exclusive", "none"
"""Policies of a pod's label: a group of its own, or no core scheduling; any other text is the default."""


class CookieError(KubetideError):
    """The kernel refused to read or set a cookie."""


class CookieKernel(Protocol):
    """The kernel's core scheduling calls."""

    def get(self, pid: int) -> int:
        """Return the cookie of a process; raise CookieError when it cannot be read."""

    def create(self, pid: int) -> None:
        """Give the thread group of a process a new cookie."""

    def share(self, source: int, pids: Sequence[int]) -> list[int]:
        """Give processes the cookie of another one (0: no cookie); return those that could not get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRule:
    """Core scheduling of one class."""

    enabled: bool = False
    expeller: bool = False
    idle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSchedRule:
    """Core scheduling by QoS class and by Kubernetes QoS."""

    qos: Mapping[str, ClassRule] = field(default_factory=dict)
    kube_qos: Mapping[str, ClassRule] = field(default_factory=dict)

    @property
    def enabled(self) -> bool:
        """Whether any class is switched on."""
        return any(one.enabled for one in self.qos.values())

    def for_pod(self, qos: str, kube_qos: str) -> ClassRule:
        """Return the rule of a pod: by its class, else by its Kubernetes QoS."""
        return self.qos.get(qos) or self.kube_qos.get(kube_qos) or ClassRule()


def rule_from(spec: NodeSLOSpec) -> CoreSchedRule:
    """Return the rule that a merged NodeSLO asks for."""
    strategy = spec.resource_qos_strategy
    policy = strategy.policies.cpu_policy if strategy and strategy.policies else None
    chosen = policy == POLICY
    lsr, ls, be = (
        _class(block, chosen)
        for block in ((strategy.lsr_class, strategy.ls_class, strategy.be_class) if strategy else (None, None, None))
    )
    return CoreSchedRule(
        qos={"LSE": lsr, "LSR": lsr, "LS": ls, "BE": be},
        kube_qos={GUARANTEED: lsr if lsr.enabled else ls, BURSTABLE: ls, BEST_EFFORT: be},
    )


def group_of(
    rule: CoreSchedRule,
    *,
    labels: Mapping[str, str] | None,
    qos: str,
    kube_qos: str,
    uid: str,
    compat: Compat = NEWEST,
) -> tuple[bool, str]:
    """Return whether core scheduling is on for a pod, and the group its processes belong to."""
    if compat.has(CORE_SCHED_POLICY):
        return _group_by_policy(rule, labels or {}, rule.for_pod(qos, kube_qos), uid)
    label = (labels or {}).get(LABEL_CORE_SCHED_GROUP)
    if label == NO_GROUP:
        return False, NO_GROUP
    class_rule = rule.for_pod(qos, kube_qos)
    group = (label or uid) + (EXPELLER_SUFFIX if class_rule.expeller else "")
    return label is not None or class_rule.enabled, group


def _group_by_policy(
    rule: CoreSchedRule, labels: Mapping[str, str], class_rule: ClassRule, uid: str
) -> tuple[bool, str]:
    """Return switch and group where a label decides; pods without a group id share the group of the empty one."""
    group = labels.get(LABEL_CORE_SCHED_GROUP, "")
    policy = labels.get(LABEL_CORE_SCHED_POLICY)
    if policy == EXCLUSIVE:
        group = uid
    group += EXPELLER_SUFFIX if class_rule.expeller else ""
    return rule.enabled and class_rule.enabled and policy != NONE, group


def get_cookie(kernel: CookieKernel, pids: Iterable[int]) -> tuple[int, list[int]]:
    """Return the first cookie that is not 0 and the processes that carry it."""
    cookie, carriers = 0, []
    for pid, found in _read(kernel, pids).items():
        if found and not cookie:
            cookie = found
        if found and found == cookie:
            carriers.append(pid)
    return cookie, carriers


def add_cookie(kernel: CookieKernel, pids: Sequence[int]) -> tuple[int, list[int]]:
    """Create a cookie on the first process and share it with the others; return it and who has it."""
    if not pids:
        return 0, []
    first, *rest = pids
    kernel.get(first)
    kernel.create(first)
    cookie = kernel.get(first)
    failed = set(kernel.share(first, rest)) if rest else set()
    return cookie, sorted(pid for pid in set(pids) if pid not in failed)


def assign_cookie(
    kernel: CookieKernel, pids: Iterable[int], siblings: Iterable[int], target: int
) -> tuple[list[int], list[int]]:
    """Share the cookie of a group with processes; return who has it now and which siblings no longer have it.

    Raises NoSibling when nobody is left to share it from.
    """
    found = _read(kernel, pids)
    kept = [pid for pid, cookie in found.items() if cookie == target]
    missing = sorted(pid for pid, cookie in found.items() if cookie != target)
    if not missing:
        return sorted(kept), []
    bad: list[int] = []
    source = None
    for sibling in siblings:
        if _read(kernel, [sibling]).get(sibling) == target:
            source = sibling
            break
        bad.append(sibling)
    if source is None:
        raise NoSibling(bad)
    failed = set(kernel.share(source, missing))
    return sorted([*kept, *(pid for pid in missing if pid not in failed)]), bad


def clear_cookie(kernel: CookieKernel, pids: Iterable[int]) -> list[int]:
    """Take the cookies off processes; return those that have none now."""
    found = _read(kernel, pids)
    carrying = sorted(pid for pid, cookie in found.items() if cookie)
    failed = set(kernel.share(0, carrying)) if carrying else set()
    return sorted(pid for pid in found if pid not in failed)


class NoSibling(CookieError):
    """Nobody of a group has its cookie any more."""

    def __init__(self, siblings: list[int]) -> None:
        super().__init__("no process of the group has its cookie")
        self.siblings = siblings


def _read(kernel: CookieKernel, pids: Iterable[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for pid in pids:
        try:
            found[pid] = kernel.get(pid)
        except CookieError:
            continue
    return found


def _class(block: ResourceQOS | None, chosen: bool) -> ClassRule:
    cpu = block.cpu_qos if block else None
    if cpu is None or not chosen:
        return ClassRule()
    return ClassRule(enabled=cpu.enable is True, expeller=cpu.core_expeller is True, idle=cpu.sched_idle == 1)
