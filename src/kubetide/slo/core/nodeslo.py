"""The NodeSLO of a node: five blocks chosen by the node's labels; the extensions of others are kept.

Thresholds, CPU burst and system settings are written complete. Resource QoS is passed on as the user wrote it: its
defaults belong to the agent, so that an upgrade of the agent can change them.
"""

from collections.abc import Mapping
from typing import Any

from kubetide.api.objects.core import Node
from kubetide.api.values.quantity import parse_quantity
from kubetide.errors import QuantityError
from kubetide.slo.core import compat as since
from kubetide.slo.core.config import (
    CPU_BURST_KEY,
    HOST_APPLICATION_KEY,
    QOS_KEY,
    SYSTEM_KEY,
    THRESHOLD_KEY,
    NodeSLOConfig,
    choose,
    own_fields,
)

Raw = dict[str, Any]

_BLOCKS = {
    "resourceUsedThresholdWithBE": THRESHOLD_KEY,
    "resourceQOSStrategy": QOS_KEY,
    "cpuBurstStrategy": CPU_BURST_KEY,
    "systemStrategy": SYSTEM_KEY,
}

BANDWIDTH_ANNOTATION = "node.koordinator.sh/network-bandwidth"
_QUANTITIES = frozenset({"totalNetworkBandwidth"})

# A host application with an empty path lives in the cgroup root, one without a path where its class says.
_SAYS_SOMETHING_EMPTY = ("cgroupPath",)


def render(config: NodeSLOConfig, node: Node, old: Mapping[str, Any] | None) -> Raw:
    """Return the spec of a node's NodeSLO; `old` is the spec it has now, whose extensions survive."""
    labels = node.metadata.labels
    spec: Raw = {}
    for block, key in _BLOCKS.items():
        found = config.keys[key]
        entry = choose(found.get("nodeStrategies"), labels)
        spec[block] = own_fields(entry) if entry is not None else dict(found.get("clusterStrategy") or {})
    bandwidth = node_bandwidth(node) if config.compat.has(since.BANDWIDTH_ANNOTATION) else None
    if bandwidth is not None:
        spec["systemStrategy"] = {**spec["systemStrategy"], "totalNetworkBandwidth": bandwidth}
    applications = config.keys[HOST_APPLICATION_KEY]
    entry = choose(applications.get("nodeConfigs"), labels)
    # The first matching entry replaces the list, also by an empty one.
    chosen = (applications if entry is None else entry).get("applications")
    if chosen:
        spec["hostApplications"] = chosen
    spec["extensions"] = _extensions(old)
    return spec


def node_bandwidth(node: Node) -> str | None:
    """Return the bandwidth that the node's annotation sets; text that is no quantity says nothing."""
    text = (node.metadata.annotations or {}).get(BANDWIDTH_ANNOTATION)
    try:
        return None if text is None else str(parse_quantity(text))
    except QuantityError:
        return None


def same_spec(one: Any, other: Any, name: str = "") -> bool:
    """Compare two specs by meaning: empty equals absent, quantities by value. A percentage is no rate: 5 is not "5"."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if any((one.get(name) is None) != (other.get(name) is None) for name in _SAYS_SOMETHING_EMPTY):
            return False
        names = {name for name in {**one, **other} if not (_is_empty(one.get(name)) and _is_empty(other.get(name)))}
        return all(same_spec(one.get(name), other.get(name), name) for name in names)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_spec, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other) or (name in _QUANTITIES and _same_quantity(one, other))


def _extensions(old: Mapping[str, Any] | None) -> Raw:
    """Return the extensions of the old spec in the shape the wire has: everything below `Object`."""
    found = (old or {}).get("extensions")
    if not isinstance(found, Mapping):
        return {"Object": {}}
    inner = found.get("Object")
    flat = {name: value for name, value in found.items() if name != "Object"}
    return {"Object": {**(inner if isinstance(inner, Mapping) else {}), **flat}}


def _is_empty(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_empty(inner) for inner in value.values())
    return value is None or value in ("", [])


def _same_quantity(one: Any, other: Any) -> bool:
    if not isinstance(one, str | int | float) or not isinstance(other, str | int | float):
        return False
    try:
        return parse_quantity(one) == parse_quantity(other)
    except QuantityError:
        return False
