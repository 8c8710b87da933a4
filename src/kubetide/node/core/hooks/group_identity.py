"""Group identity (bvt): which pods may preempt which on a shared core.

    value(class) = groupIdentity of the class while it is enabled and the CPU policy is groupIdentity, else 0
    Guaranteed pods without a class follow LSR when that is enabled, then LS
    a pod of class LS may state its own in an annotation; without `enable` that means 0

The Guaranteed directory is the root of all pods and therefore always neutral. Values of 0 are written, not left
out: they are how a class that was switched off gets back to normal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubetide.api.qos.cgroups import BEST_EFFORT, BURSTABLE, GUARANTEED
from kubetide.api.qos.qos import ANNOTATION_CPU_QOS, LS
from kubetide.api.qos.slo_strategies import CPUQOS, NodeSLOSpec, ResourceQOS
from kubetide.api.values.codec import decode_folded
from kubetide.errors import InvalidInput

POLICY = "groupIdentity"
LOWEST, HIGHEST = -1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BvtRule:
    """bvt values by QoS class, by Kubernetes QoS directory and by Kubernetes QoS of a pod without a class."""

    enable: bool = False
    pod: Mapping[str, int] = field(default_factory=dict)
    kube_dir: Mapping[str, int] = field(default_factory=dict)
    kube_pod: Mapping[str, int] = field(default_factory=dict)


def rule_from(spec: NodeSLOSpec) -> BvtRule:
    """Return the bvt values that a merged NodeSLO asks for."""
    strategy = spec.resource_qos_strategy
    policy = strategy.policies.cpu_policy if strategy and strategy.policies else None
    chosen = policy in (None, "", POLICY)
    lsr, ls, be = (
        _class(block, chosen)
        for block in ((strategy.lsr_class, strategy.ls_class, strategy.be_class) if strategy else (None, None, None))
    )
    guaranteed = lsr if lsr is not None else ls
    return BvtRule(
        enable=any(value is not None for value in (lsr, ls, be)),
        pod={"LSE": lsr or 0, "LSR": lsr or 0, "LS": ls or 0, "BE": be or 0},
        kube_dir={GUARANTEED: 0, BURSTABLE: ls or 0, BEST_EFFORT: be or 0},
        kube_pod={GUARANTEED: guaranteed or 0, BURSTABLE: ls or 0, BEST_EFFORT: be or 0},
    )


def pod_bvt(rule: BvtRule, qos: str, kube_qos: str, own: CPUQOS | None = None) -> int:
    """Return the bvt of a pod: its own if it is of class LS, else by its class, else by its Kubernetes QoS."""
    if own is not None and qos == LS:
        return (own.group_identity or 0) if own.enable else 0
    if qos in rule.pod:
        return rule.pod[qos]
    return rule.kube_pod.get(kube_qos, 0)


def own_cpu_qos(annotations: Mapping[str, str] | None) -> CPUQOS | None:
    """Return what a pod says about its group identity; raise InvalidInput for what the kernel would not take."""
    text = (annotations or {}).get(ANNOTATION_CPU_QOS)
    if text is None:
        return None
    own = decode_folded(text, CPUQOS, what=ANNOTATION_CPU_QOS)
    if own.group_identity is not None and not LOWEST <= own.group_identity <= HIGHEST:
        raise InvalidInput(
            f"{own.group_identity} is not in {LOWEST}..{HIGHEST}", subject=ANNOTATION_CPU_QOS, field="groupIdentity"
        )
    return own


def directory_bvt(rule: BvtRule, kube_qos: str) -> int:
    """Return the bvt of a QoS directory."""
    return rule.kube_dir.get(kube_qos, 0)


def host_app_bvt(rule: BvtRule, qos: str) -> int:
    """Return the bvt of a host application."""
    return rule.pod.get(qos, 0)


def _class(block: ResourceQOS | None, chosen: bool) -> int | None:
    """Return the value of an enabled class, None of any other."""
    cpu = block.cpu_qos if block else None
    if cpu is None or not chosen or cpu.enable is not True:
        return None
    return cpu.group_identity or 0
