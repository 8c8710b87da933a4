"""Core scheduling: whose processes may share a physical core.

A group is all pods with the same group label, or one pod (by its policy label; before 1.5 also without any label).
Processes of different groups carry different cookies (`node.core.hooks.cookies`), and the kernel never runs them on two
threads of one core at the same time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubetide.api.qos.cgroups import BEST_EFFORT, BURSTABLE, GUARANTEED
from kubetide.api.qos.qos import LABEL_CORE_SCHED_GROUP, LABEL_CORE_SCHED_POLICY
from kubetide.api.qos.slo_strategies import NodeSLOSpec, ResourceQOS
from kubetide.api.values.compat import Compat
from kubetide.node.core.compat import CORE_SCHED_POLICY, NEWEST

POLICY = "coreSched"
NO_GROUP = "0"
EXPELLER_SUFFIX = "-expeller"
EXCLUSIVE, NONE = "exclusive", "none"
"""Policies of a pod's label: a group of its own, or no core scheduling; any other text is the default."""


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


def _class(block: ResourceQOS | None, chosen: bool) -> ClassRule:
    cpu = block.cpu_qos if block else None
    if cpu is None or not chosen:
        return ClassRule()
    return ClassRule(enabled=cpu.enable is True, expeller=cpu.core_expeller is True, idle=cpu.sched_idle == 1)
