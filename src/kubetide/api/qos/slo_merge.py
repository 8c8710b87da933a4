"""The merge rule of all SLO settings, and the built-in defaults.

`overlay(base, over)` lays the *given* fields of one strategy over another, on raw dicts:

- given means: not null, not an empty list, and not an empty text; `0` and `false` are given;
- the optional texts in `GIVEN_WHEN_EMPTY` count as given even when they are empty;
- objects merge field by field, lists are replaced whole;
- maps (`extensions`, `schedFeatures`, ratios) merge key by key: the value of a key is replaced whole, whatever it is.

The controller completes thresholds, CPU burst and system settings before it writes a NodeSLO; resource QoS travels as
the user wrote it, and the agent completes it with `COMPLETE_QOS`.
"""

from collections.abc import Mapping
from typing import Any

Raw = dict[str, Any]

GIVEN_WHEN_EMPTY = frozenset({"metricMemoryCollectPolicy", "cpuCalculatePolicy", "memoryCalculatePolicy", "cpuPolicy"})

MAPS = frozenset({"extensions", "resourceAmplificationRatio", "schedFeatures"})

COLOCATION: Raw = {
    "enable": False,
    "metricAggregateDurationSeconds": 300,
    "metricReportIntervalSeconds": 60,
    "metricAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
    "metricMemoryCollectPolicy": "usageWithoutPageCache",
    "cpuReclaimThresholdPercent": 60,
    "cpuCalculatePolicy": "usage",
    "memoryReclaimThresholdPercent": 65,
    "memoryCalculatePolicy": "usage",
    "degradeTimeMinutes": 15,
    "updateTimeThresholdSeconds": 300,
    "resourceDiffThreshold": 0.1,
}

MID_THRESHOLDS: Raw = {"midCPUThresholdPercent": 100, "midMemoryThresholdPercent": 100, "midUnallocatedPercent": 0}
MID_STATIC: Raw = {"midStaticCPUReservedPercent": 0, "midStaticMemoryReservedPercent": 0}

THRESHOLDS: Raw = {
    "enable": False,
    "cpuSuppressThresholdPercent": 65,
    "cpuSuppressPolicy": "cpuset",
    "memoryEvictThresholdPercent": 70,
    "cpuEvictPolicy": "evictByRealLimit",
}

CPU_BURST: Raw = {
    "policy": "none",
    "cpuBurstPercent": 1000,
    "cfsQuotaBurstPercent": 300,
    "cfsQuotaBurstPeriodSeconds": -1,
    "sharePoolThresholdPercent": 50,
}

SYSTEM: Raw = {
    "minFreeKbytesFactor": 100,
    "watermarkScaleFactor": 150,
    "memcgReapBackGround": 0,
    "totalNetworkBandwidth": "0",
}
SYSTEM_UNSET: Raw = {"totalNetworkBandwidth": "0"}
"""From 1.7 on: what is not configured leaves the kernel alone."""


def _class(
    identity: int, expeller: bool, wmark_ratio: int, wmark_scale: int, wmark_min_adj: int, cache_end: int
) -> Raw:
    return {
        "cpuQOS": {"enable": False, "groupIdentity": identity, "schedIdle": 0, "coreExpeller": expeller},
        "memoryQOS": {
            "enable": False,
            "minLimitPercent": 0,
            "lowLimitPercent": 0,
            "throttlingPercent": 0,
            "wmarkRatio": wmark_ratio,
            "wmarkScalePermill": wmark_scale,
            "wmarkMinAdj": wmark_min_adj,
            "priorityEnable": 0,
            "priority": 0,
            "oomKillGroup": 0,
        },
        "resctrlQOS": {
            "enable": False,
            "catRangeStartPercent": 0,
            "catRangeEndPercent": cache_end,
            "mbaPercent": 100,
        },
    }


COMPLETE_QOS: Raw = {
    "policies": {"cpuPolicy": "groupIdentity"},
    "lsrClass": _class(2, True, 95, 20, -25, 100),
    "lsClass": _class(2, True, 95, 20, -25, 100),
    "beClass": _class(-1, False, 95, 20, 50, 30),
    "systemClass": _class(0, False, 0, 50, 0, 100),
}
"""What the agent uses where a NodeSLO is silent."""


def overlay(base: Mapping[str, Any] | None, over: Mapping[str, Any] | None) -> Raw:
    """Return `base` with the given fields of `over` laid over it."""
    result = dict(base or {})
    for name, value in (over or {}).items():
        if not is_given(name, value):
            continue
        old = result.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            result[name] = {**old, **value} if name in MAPS else overlay(old, value)
        else:
            result[name] = value
    return result


def is_given(name: str, value: Any) -> bool:
    """Return whether a field has a value."""
    if value is None or value == []:
        return False
    return value != "" or name in GIVEN_WHEN_EMPTY
