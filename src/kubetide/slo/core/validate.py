"""Admission check of the ConfigMap: what is wrong, in which key and field, before it takes effect.

For each key whose text is new, in this order: it parses; every node entry selects by something; the values as written
lie in their ranges; names are there and unique (if asked for); no two entries can pick the same node. Then no existing
node may be picked twice. The first rule that fails refuses the ConfigMap.

A pair of bounds is checked only when both halves are written: half a pair is completed by defaults later.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Any

import msgspec

from kubetide.api.objects.core import Node
from kubetide.api.values.codec import convert
from kubetide.api.values.compat import Compat
from kubetide.api.values.selectors import LabelSelector, Selector, selector_from
from kubetide.errors import DecodeError, SelectorError
from kubetide.slo.core import compat as since
from kubetide.slo.core.compat import NEWEST
from kubetide.slo.core.config import (
    COLOCATION_KEY,
    CPU_BURST_KEY,
    QOS_KEY,
    SYSTEM_KEY,
    THRESHOLD_KEY,
    own_fields,
    read,
)
from kubetide.slo.core.network_qos import network_problems

Raw = dict[str, Any]

PARSE_FAILED = "ParseConfigFail"
PARAM_INVALID = "ConfigParamInvalid"
OVERLAP = "NodeStrategiesOverlap"
NODE_CONFLICT = "ExistNodeConfict"  # spelled so in the protocol

CHECKED_KEYS = (COLOCATION_KEY, THRESHOLD_KEY, QOS_KEY, SYSTEM_KEY, CPU_BURST_KEY)

# A selector with many values stands for astronomically many label sets; existing nodes are checked in any case.
_MOST_LABEL_SETS = 10_000

_PERCENT = (0, 100)
_AT_LEAST_ONE = (1, None)
_AT_LEAST_ZERO = (0, None)
_RANGES: dict[str, tuple[float, float | None]] = {
    "metricAggregateDurationSeconds": _AT_LEAST_ONE,
    "metricReportIntervalSeconds": _AT_LEAST_ONE,
    "cpuReclaimThresholdPercent": _AT_LEAST_ZERO,
    "memoryReclaimThresholdPercent": _AT_LEAST_ZERO,
    "batchCPUThresholdPercent": _AT_LEAST_ZERO,
    "batchMemoryThresholdPercent": _AT_LEAST_ZERO,
    "degradeTimeMinutes": _AT_LEAST_ONE,
    "updateTimeThresholdSeconds": _AT_LEAST_ONE,
    "midCPUThresholdPercent": _PERCENT,
    "midMemoryThresholdPercent": _PERCENT,
    "midUnallocatedPercent": _PERCENT,
    "midStaticCPUReservedPercent": _PERCENT,
    "midStaticMemoryReservedPercent": _PERCENT,
    "cpuSuppressMinPercent": _PERCENT,
    "cpuEvictThresholdPercent": _PERCENT,
    "cpuEvictLowerPercent": _PERCENT,
    "cpuAllocatableEvictThresholdPercent": _AT_LEAST_ZERO,
    "cpuAllocatableEvictLowerPercent": _AT_LEAST_ZERO,
    "memoryAllocatableEvictThresholdPercent": _AT_LEAST_ZERO,
    "memoryAllocatableEvictLowerPercent": _AT_LEAST_ZERO,
    "allocatableEvictPriorityThreshold": (0, 7999),
    "cpuSuppressThresholdPercent": _PERCENT,
    "memoryEvictThresholdPercent": _PERCENT,
    "memoryEvictLowerPercent": _PERCENT,
    "cpuEvictBESatisfactionUpperPercent": _PERCENT,
    "cpuEvictBESatisfactionLowerPercent": _PERCENT,
    "cpuEvictBEUsageThresholdPercent": _PERCENT,
    "cpuEvictTimeWindowSeconds": _AT_LEAST_ONE,
    "groupIdentity": (-1, 2),
    "schedIdle": (0, 1),
    "minLimitPercent": _PERCENT,
    "lowLimitPercent": _PERCENT,
    "throttlingPercent": _PERCENT,
    "wmarkRatio": _PERCENT,
    "wmarkScalePermill": (1, 1000),
    "wmarkMinAdj": (-25, 50),
    "priorityEnable": (0, 1),
    "priority": (0, 12),
    "oomKillGroup": (0, 1),
    "catRangeStartPercent": _PERCENT,
    "catRangeEndPercent": _PERCENT,
    "mbaPercent": _PERCENT,
    "cpuBurstPercent": (1, 10000),
    "cfsQuotaBurstPercent": (100, None),
    "cfsQuotaBurstPeriodSeconds": (-1, None),
    "sharePoolThresholdPercent": _PERCENT,
    "minFreeKbytesFactor": _AT_LEAST_ONE,
    "watermarkScaleFactor": (1, 400),
    "memcgReapBackGround": (0, 1),
}
_UP_TO_100 = ("cpuReclaimThresholdPercent", "memoryReclaimThresholdPercent")
"""These had an upper end before 1.7."""
# Lower half, upper half: the lower must be smaller.
_PAIRS = (
    ("memoryEvictLowerPercent", "memoryEvictThresholdPercent"),
    ("cpuEvictLowerPercent", "cpuEvictThresholdPercent"),
    ("cpuAllocatableEvictLowerPercent", "cpuAllocatableEvictThresholdPercent"),
    ("memoryAllocatableEvictLowerPercent", "memoryAllocatableEvictThresholdPercent"),
    ("cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"),
    ("catRangeStartPercent", "catRangeEndPercent"),
)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why the ConfigMap is refused. `fields` maps a field to what is wrong with it."""

    reason: str
    message: str
    fields: Mapping[str, str] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The answer as tools for upstream expect it."""
        message: Any = dict(self.fields) or dict(self.detail) or self.message
        body = {"reason": self.reason, "message": message if isinstance(message, str) else _json(message)}
        return f"___{_json(body)}___"


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    selector: Selector
    label_selector: LabelSelector


def validate_configmap(
    old: Mapping[str, str] | None,
    new: Mapping[str, str] | None,
    *,
    nodes: Sequence[Node],
    names_needed: bool,
    compat: Compat = NEWEST,
) -> Rejection | None:
    """Return why the new data must be refused, or None."""
    checked: dict[str, list[_Entry]] = {}
    for key in CHECKED_KEYS:
        text = (new or {}).get(key, "")
        if not text or text == (old or {}).get(key):
            continue
        outcome = _check_key(key, new or {}, names_needed, compat)
        if isinstance(outcome, Rejection):
            return outcome
        checked[key] = outcome
    for key, entries in checked.items():
        if len(entries) > 1 and (rejection := node_conflict(key, entries, nodes)):
            return rejection
    return None


def conflicting_entries(data: Mapping[str, str] | None, labels: Mapping[str, str]) -> Rejection | None:
    """Return the rejection for a node whose labels match two entries of one key; unreadable keys are passed over."""
    for key in CHECKED_KEYS:
        text = (data or {}).get(key, "")
        try:
            entries = _entries(key, read(key, text)) if text else []
        except DecodeError:
            continue
        if isinstance(entries, Rejection):
            continue
        matching = [entry.name for entry in entries if entry.selector.matches(labels)]
        if len(matching) > 1:
            return Rejection(NODE_CONFLICT, f"{key}: several entries match the node", detail=_detail(key, matching))
    return None


def label_sets(selector: LabelSelector | None) -> Iterator[dict[str, str]]:
    """Yield label sets that stand for the nodes a selector may pick; no selector picks none.

    Operators are not looked at. The n-th set has the n-th value of every expression, counted round and round, so that
    the sets repeat after the least common multiple of the value counts; each is yielded once.
    """
    if selector is None:
        return
    listed = [(each.key, each.values) for each in selector.match_expressions or () if each.values]
    period = lcm(*(len(values) for _, values in listed))
    for index in range(min(period, _MOST_LABEL_SETS)):
        yield {**(selector.match_labels or {}), **{key: values[index % len(values)] for key, values in listed}}


def node_conflict(key: str, entries: Sequence[_Entry], nodes: Sequence[Node]) -> Rejection | None:
    """Return the rejection if an existing node is picked by several entries."""
    for node in nodes:
        matching = [entry.name for entry in entries if entry.selector.matches(node.metadata.labels)]
        if len(matching) > 1:
            detail = {**_detail(key, matching), "exampleNodes": [node.metadata.name]}
            return Rejection(NODE_CONFLICT, f"{key}: node {node.metadata.name} matches several entries", detail=detail)
    return None


def _check_key(key: str, data: Mapping[str, str], names_needed: bool, compat: Compat) -> Rejection | list[_Entry]:
    try:
        given = read(key, data[key], compat)
    except DecodeError as error:
        return Rejection(PARSE_FAILED, str(error))
    entries = _entries(key, given)
    if isinstance(entries, Rejection):
        return entries
    bad: dict[str, str] = {}
    for strategy in _strategies(key, given):
        bad.update(_range_problems(strategy, compat))
    if key == QOS_KEY and compat.has(since.NETWORK_QOS_CHECKS):
        bad.update(network_problems(given, _system_of(data, compat)))
    if bad:
        return Rejection(PARAM_INVALID, f"{key}: {'; '.join(f'{name} {why}' for name, why in bad.items())}", fields=bad)
    if names_needed:
        names = [entry.name for entry in entries]
        if not all(names) or len(set(names)) < len(names):
            return Rejection(PARAM_INVALID, f"{key}: names of node entries must be there and differ")
    return _overlap(key, entries) or entries


def _entries(key: str, given: Raw) -> Rejection | list[_Entry]:
    found = []
    for raw in given.get("nodeConfigs" if key == COLOCATION_KEY else "nodeStrategies") or ():
        name = raw.get("name") or ""
        selector = convert(raw.get("nodeSelector") or {}, LabelSelector)
        if not selector.match_labels and not selector.match_expressions:
            return Rejection(PARAM_INVALID, f"{key}: node entry {name!r} has no selector")
        try:
            found.append(_Entry(name, selector_from(selector), selector))
        except SelectorError as error:
            return Rejection(PARAM_INVALID, f"{key}: selector of node entry {name!r}: {error}")
    return found


def _strategies(key: str, given: Raw) -> Iterator[Raw]:
    if key == COLOCATION_KEY:
        yield {name: value for name, value in given.items() if name != "nodeConfigs"}
        yield from (own_fields(entry) for entry in given.get("nodeConfigs") or ())
    else:
        yield given.get("clusterStrategy") or {}
        yield from (own_fields(entry) for entry in given.get("nodeStrategies") or ())


def _system_of(data: Mapping[str, str], compat: Compat) -> Raw:
    """Return the system configuration beside the one that is checked; one that cannot be read has its own check."""
    try:
        return read(SYSTEM_KEY, data.get(SYSTEM_KEY) or "{}", compat)
    except DecodeError:
        return {}


def _range_problems(block: Mapping[str, Any], compat: Compat) -> Iterator[tuple[str, str]]:
    for name, value in block.items():
        if isinstance(value, Mapping) and name != "extensions":
            yield from _range_problems(value, compat)
        elif name == "resourceDiffThreshold" and not 0 < value <= 1:
            yield name, f"is {value}, must be greater than 0 and at most 1"
        elif name in _RANGES:
            low, high = _RANGES[name]
            if name in _UP_TO_100 and not compat.has(since.RECLAIM_ABOVE_100):
                high = 100
            if value < low or (high is not None and value > high):
                yield name, f"is {value}, must be {f'{low} to {high}' if high is not None else f'at least {low}'}"
    for low_name, high_name in _PAIRS:
        if low_name in block and high_name in block and not block[low_name] < block[high_name]:
            yield low_name, f"must be less than {high_name}"
            yield high_name, f"must be greater than {low_name}"


def _overlap(key: str, entries: Sequence[_Entry]) -> Rejection | None:
    if len(entries) < 2:
        return None
    for entry in entries:
        for labels in label_sets(entry.label_selector):
            matching = [other.name for other in entries if other.selector.matches(labels)]
            if len(matching) > 1:
                return Rejection(OVERLAP, f"{key}: several entries can match one node", detail=_detail(key, matching))
    return None


def _detail(key: str, names: Sequence[str]) -> Raw:
    return {"config": key, "strategies": list(names)}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
