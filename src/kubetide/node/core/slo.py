"""A NodeSLO as the agent uses it: what is missing filled in, what is disabled switched to its off values.

For the classes LSR, LS and BE (not SYSTEM, not the cgroup root) a feature whose `enable` is false carries the off
values, whatever else was configured. So those who apply it need not look at `enable`, and switching a feature off
resets what it had set.
"""

from collections.abc import Mapping
from typing import Any

from kubetide.api.qos.slo_merge import COMPLETE_QOS, CPU_BURST, SYSTEM, SYSTEM_UNSET, THRESHOLDS, Raw, overlay
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.api.values.compat import Compat
from kubetide.node.core import compat as since
from kubetide.node.core.compat import NEWEST

OFF: Raw = {
    "cpuQOS": {"enable": False, "groupIdentity": 0, "schedIdle": 0, "coreExpeller": False},
    "memoryQOS": {
        "enable": False,
        "minLimitPercent": 0,
        "lowLimitPercent": 0,
        "throttlingPercent": 0,
        "wmarkRatio": 0,
        "wmarkScalePermill": 50,
        "wmarkMinAdj": 0,
        "priorityEnable": 0,
        "priority": 0,
        "oomKillGroup": 0,
    },
    "resctrlQOS": {"enable": False, "catRangeStartPercent": 0, "catRangeEndPercent": 100, "mbaPercent": 100},
}

_NETWORK_OFF: Raw = {"enable": False, "ingressRequest": 0, "ingressLimit": 0, "egressRequest": 0, "egressLimit": 0}
_BLKIO_OFF: Raw = {"enable": False}

DEFAULT_COLLECT_POLICY: Raw = {
    "aggregateDurationSeconds": 300,
    "reportIntervalSeconds": 60,
    "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
    "nodeMemoryCollectPolicy": "usageWithoutPageCache",
}

_BEST_EFFORT = "resourceUsedThresholdWithBE"
_SWITCHED_CLASSES = ("lsrClass", "lsClass", "beClass")


def defaults(compat: Compat = NEWEST) -> Raw:
    """Return what the agent uses where a NodeSLO is silent."""
    more: Raw = {}
    if compat.has(since.NETWORK_DEFAULTS):
        more["networkQOS"] = _NETWORK_OFF
    if compat.has(since.BLKIO_DEFAULTS):
        more["blkioQOS"] = _BLKIO_OFF
    qos = {name: block if name == "policies" else {**block, **more} for name, block in COMPLETE_QOS.items()}
    if compat.has(since.NETWORK_DEFAULTS):
        qos["policies"] = {**qos["policies"], "netQOSPolicy": "tc"}
    if compat.has(since.BLKIO_DEFAULTS):
        qos["cgroupRoot"] = {"blkioQOS": _BLKIO_OFF}
    return {
        "resourceUsedThresholdWithBE": THRESHOLDS,
        "resourceQOSStrategy": qos,
        "cpuBurstStrategy": CPU_BURST,
        "systemStrategy": SYSTEM_UNSET if compat.has(since.SYSTEM_UNSET) else SYSTEM,
    }


def complete(spec: Mapping[str, Any] | None, compat: Compat = NEWEST) -> Raw:
    """Return a NodeSLO spec with defaults and off values; parts the agent does not know stay as they are."""
    result: Raw = dict(spec or {})
    for part, default in defaults(compat).items():
        received = result.get(part)
        result[part] = overlay(default, received if isinstance(received, Mapping) else None)
    classes = dict(result["resourceQOSStrategy"])
    for name in _SWITCHED_CLASSES:
        features = dict(classes[name])
        for feature, off in OFF.items():
            if features[feature].get("enable") is not True:
                features[feature] = off
        classes[name] = features
    result["resourceQOSStrategy"] = classes
    return result


def complete_spec(spec: Mapping[str, Any] | None, compat: Compat = NEWEST) -> NodeSLOSpec:
    """Return the completed NodeSLO spec as a struct.

    The switch of best-effort work is not filled in: off takes back what was done, and forgetting it must not.
    """
    completed = complete(spec, compat)
    received = (spec or {}).get(_BEST_EFFORT)
    if not isinstance(received, Mapping) or received.get("enable") is None:
        completed[_BEST_EFFORT] = {**completed[_BEST_EFFORT], "enable": None}
    return convert(completed, NodeSLOSpec, what="NodeSLO spec")


def complete_collect_policy(spec: Mapping[str, Any] | None) -> Raw:
    """Return a NodeMetric spec with its collect policy completed."""
    received = dict(spec or {})
    return {**received, "metricCollectPolicy": overlay(DEFAULT_COLLECT_POLICY, received.get("metricCollectPolicy"))}
