"""Admission check of network QoS: shares of the classes are percentages or rates, and must fit the node together.

    1. each of the four values is a number from 0 to 100 or a quantity
    2. the requests of LSR, LS and BE are all percentages or all rates
    3. per direction, percentages sum up to at most 100 and rates to at most the bandwidth of the node

The bandwidth is the cluster's, or that of the system entry with the same selector as the QoS entry.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kubetide.api.values.quantity import ZERO, Quantity, parse_quantity
from kubetide.errors import QuantityError

Raw = dict[str, Any]

_CLASSES = ("lsrClass", "lsClass", "beClass")
_REQUESTS = ("ingressRequest", "egressRequest")
_VALUES = (*_REQUESTS, "ingressLimit", "egressLimit")
_BANDWIDTH = "totalNetworkBandwidth"


def network_problems(qos: Mapping[str, Any], system: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (field, what is wrong with it) for a QoS configuration, given the system configuration beside it."""
    cluster = system.get("clusterStrategy") or {}
    yield from _strategy_problems(qos.get("clusterStrategy") or {}, _bandwidth(cluster))
    entries = system.get("nodeStrategies") or ()
    for strategy in qos.get("nodeStrategies") or ():
        selector = strategy.get("nodeSelector")
        same = next((entry for entry in entries if entry.get("nodeSelector") == selector), None)
        found = same if same is not None else cluster if not entries else {}
        yield from _strategy_problems(strategy, _bandwidth(found))


def _strategy_problems(strategy: Mapping[str, Any], bandwidth: Quantity) -> Iterator[tuple[str, str]]:
    classes = [(strategy.get(name) or {}).get("networkQOS") or {} for name in _CLASSES]
    shares = [(name, each[name]) for each in classes for name in _VALUES if each.get(name) is not None]
    bad = [(name, f"is {value!r}, must be 0 to 100 or a quantity") for name, value in shares if not _is_share(value)]
    if bad:
        yield from bad
        return
    requests = [(name, value) for name, value in shares if name in _REQUESTS]
    if len({isinstance(value, str) for _, value in requests}) > 1:
        yield "networkQOS", "requests must be all percentages or all rates"
        return
    for direction in _REQUESTS:
        values = [value for name, value in requests if name == direction]
        rates = [parse_quantity(value) for value in values if isinstance(value, str)]
        if sum(value for value in values if isinstance(value, int)) > 100:
            yield direction, "sums up to more than 100 percent"
        elif rates and sum(rates, ZERO) > bandwidth:
            yield direction, f"sums up to more than {_BANDWIDTH} {bandwidth}"


def _is_share(value: Any) -> bool:
    if isinstance(value, str):
        try:
            parse_quantity(value)
        except QuantityError:
            return False
        return True
    return bool(0 <= value <= 100)


def _bandwidth(system: Mapping[str, Any]) -> Quantity:
    return parse_quantity(system.get(_BANDWIDTH) or "0")
