"""CPU normalization: a faster CPU needs less time for the same work, so its quotas shrink by the node's ratio.

    quota = ceil(original quota / ratio)   for ratio > 1; otherwise the original, which also restores it

Only pods of the shared pool are scaled; pods with CPUs of their own have no quota at all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kubetide.errors import InvalidInput
from kubetide.node.hooks.context import PodRequest
from kubetide.node.hooks.cpuset import resource_status

RATIO_ANNOTATION = "node.koordinator.sh/cpu-normalization-ratio"
EPSILON = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalizationRule:
    """The ratio of the node; enabled once its annotation is there."""

    enable: bool = False
    ratio: float = -1.0


def same_ratio(left: float, right: float) -> bool:
    """Return whether two ratios are close enough to count as one."""
    return abs(left - right) < EPSILON


def parse_ratio(annotations: Mapping[str, str] | None) -> float:
    """Return the node's ratio, -1 when it has none."""
    text = (annotations or {}).get(RATIO_ANNOTATION)
    if text is None:
        return -1.0
    try:
        ratio = float(text)
    except ValueError as error:
        raise InvalidInput(f"ratio {text!r} is not a number", field=RATIO_ANNOTATION) from error
    if not ratio > 0 or math.isinf(ratio) or text != text.strip() or "_" in text:
        raise InvalidInput(f"ratio {text!r} is not above 0", field=RATIO_ANNOTATION)
    return ratio


def scaled_quota(quota: int, ratio: float) -> int:
    """Return the quota divided by a ratio above 1, rounded up."""
    if quota <= 0 or ratio <= 1:
        return quota
    return math.ceil(quota / ratio)


def next_rule(rule: NormalizationRule, annotations: Mapping[str, str] | None) -> tuple[NormalizationRule, bool]:
    """Return the rule after a change of the node and whether it differs from the one that is applied."""
    ratio = parse_ratio(annotations)
    enable = ratio > 0
    if enable == rule.enable and same_ratio(ratio, rule.ratio):
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
    return not resource_status(request.annotations).cpuset


def normalized_quota(request: PodRequest, original: int | None, rule: NormalizationRule) -> int | None:
    """Return the quota to write, None to leave it alone."""
    if not rule.enable or original is None or original <= 0 or not shares_cpus(request):
        return None
    return scaled_quota(original, rule.ratio)
