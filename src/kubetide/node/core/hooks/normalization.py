"""CPU normalization: a faster CPU needs less time for the same work, so its quotas shrink by the node's ratio.

    quota = ceil(original quota / ratio)   for ratio > 1; otherwise the original, which also restores it

Only pods of the shared pool are scaled; pods with CPUs of their own have no quota at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kubetide.api.qos import cpu_normalization
from kubetide.errors import InvalidInput
from kubetide.node.core.formats import cpu
from kubetide.node.core.hooks.context import PodRequest
from kubetide.node.core.hooks.cpuset import resource_status


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalizationRule:
    """The ratio of the node; enabled once its annotation is there."""

    enable: bool = False
    ratio: float = -1.0


def next_rule(rule: NormalizationRule, annotations: Mapping[str, str] | None) -> tuple[NormalizationRule, bool]:
    """Return the rule after a change of the node and whether it differs from the one that is applied."""
    ratio = cpu_normalization.node_ratio(annotations)
    enable = ratio > 0
    if enable == rule.enable and not cpu_normalization.ratios_differ(rule.ratio, ratio):
        return rule, False
    return NormalizationRule(enable=enable, ratio=ratio), True


def shares_cpus(request: PodRequest) -> bool:
    """Return whether a pod lives in the shared pool."""
    if request.labels is None:
        return True
    if request.qos == "LS":
        return True
    if request.qos:
        return False
    try:
        return not resource_status(request.annotations).cpuset
    except InvalidInput:
        # What cannot be read names no CPUs: the pod stays in the pool, as the reconciler's filter has it.
        return True


def normalized_quota(request: PodRequest, original: int | None, rule: NormalizationRule) -> int | None:
    """Return the quota to write, None to leave it alone."""
    if not rule.enable or original is None or original <= 0 or not shares_cpus(request):
        return None
    return cpu.normalized_quota(original, rule.ratio)
