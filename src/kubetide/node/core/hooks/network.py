"""Network QoS: how much bandwidth LS and BE pods get, as a NodeSLO says it and as the two mechanisms want it.

    total       systemStrategy.totalNetworkBandwidth, bits per second
    a number    percent of the total, 0 outside 0..100
    a text      a quantity of bits per second

`tc` shapes what leaves the node with HTB classes; an unreadable text counts as 0. `terway-qos` hands bytes per second
to another daemon in a file, and a text that cannot be read, or is larger than the total, refuses the whole file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ApiObject
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.api.qos.slo_strategies import NetworkQOS, NodeSLOSpec, ResourceQOS
from kubetide.api.values.codec import decode_folded
from kubetide.api.values.quantity import parse_quantity
from kubetide.errors import InvalidInput

TC, TERWAY = "tc", "terway-qos"
LS_CLASS, BE_CLASS, SYSTEM_CLASS = "ls_class", "be_class", "system_class"
_TC_CLASS_OF = {qos.LSE: LS_CLASS, qos.LSR: LS_CLASS, qos.LS: LS_CLASS, qos.BE: BE_CLASS, qos.SYSTEM: SYSTEM_CLASS}
_PRIORITY_OF = {qos.SYSTEM: 0, qos.LSE: 1, qos.LSR: 1, qos.LS: 1, qos.BE: 2}
_BITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Guaranteed and largest rates of one class, bits per second; tx leaves the node, rx enters it."""

    tx_min: int = 0
    tx_max: int = 0
    rx_min: int = 0
    rx_max: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBandwidth:
    """The rates of a node: all of it, LS pods, BE pods."""

    total: int = 0
    latency_sensitive: Bandwidth = Bandwidth()
    best_effort: Bandwidth = Bandwidth()


def policy_of(spec: NodeSLOSpec) -> str:
    """Return which mechanism a completed NodeSLO asks for."""
    strategy = spec.resource_qos_strategy
    return (strategy.policies.net_qos_policy if strategy and strategy.policies else None) or TC


def node_bandwidth(spec: NodeSLOSpec, *, strict: bool = False) -> NodeBandwidth:
    """Return the rates of a node. With `strict` text that is unusable raises InvalidInput, otherwise it counts as 0."""
    text = spec.system_strategy.total_network_bandwidth if spec.system_strategy else None
    total = 0 if text is None else parse_quantity(text).value
    strategy = spec.resource_qos_strategy
    return NodeBandwidth(
        total=total,
        latency_sensitive=_class(strategy.ls_class if strategy else None, total, strict),
        best_effort=_class(strategy.be_class if strategy else None, total, strict),
    )


def _class(block: ResourceQOS | None, total: int, strict: bool) -> Bandwidth:
    network = block.network_qos if block else None
    if network is None or network.enable is not True:
        return Bandwidth()
    return Bandwidth(
        tx_min=_rate(network, "egress_request", total, strict),
        tx_max=_rate(network, "egress_limit", total, strict),
        rx_min=_rate(network, "ingress_request", total, strict),
        rx_max=_rate(network, "ingress_limit", total, strict),
    )


def _rate(network: NetworkQOS, field: str, total: int, strict: bool) -> int:
    given: int | str | None = getattr(network, field)
    if given is None:
        return 0
    if isinstance(given, int):
        return total * given // 100 if 0 <= given <= 100 else 0
    try:
        rate = parse_quantity(given).value
    except InvalidInput:
        if strict:
            raise
        return 0
    if strict and rate > total:
        raise InvalidInput(f"{given} is more than the node's {total} bits per second", field=field)
    return rate


def terway_text(bandwidth: NodeBandwidth) -> str:
    """Return the node's file for the terway-qos daemon: bytes per second."""
    return "".join(f"{name} {bits // _BITS}\n" for name, bits in _terway_lines(bandwidth))


def _terway_lines(bandwidth: NodeBandwidth) -> Iterator[tuple[str, int]]:
    yield "hw_tx_bps_max", bandwidth.total
    yield "hw_rx_bps_max", bandwidth.total
    for name, one in (("l1", bandwidth.latency_sensitive), ("l2", bandwidth.best_effort)):
        yield f"offline_{name}_tx_bps_min", one.tx_min
        yield f"offline_{name}_tx_bps_max", one.tx_max
        yield f"offline_{name}_rx_bps_min", one.rx_min
        yield f"offline_{name}_rx_bps_max", one.rx_max


class PodNetworkQOS(ApiObject, frozen=True, kw_only=True, gc=False):
    """The networkQOS annotation of a pod: rates in bits per second."""

    ingress_limit: str | None = None
    egress_limit: str | None = None


@dataclass(frozen=True, slots=True)
class PodBandwidth:
    """Largest rates of a pod, bytes per second; 0 is no limit."""

    ingress: int = 0
    egress: int = 0


def pod_bandwidth(annotations: Mapping[str, str] | None, *, strict: bool) -> PodBandwidth:
    """Return the rates of a pod's annotation. With `strict` both must be given; raise InvalidInput."""
    text = (annotations or {}).get(qos.ANNOTATION_NETWORK_QOS)
    if text is None:
        return PodBandwidth()
    given = decode_folded(text, PodNetworkQOS, what=qos.ANNOTATION_NETWORK_QOS)
    return PodBandwidth(
        ingress=_pod_rate(given.ingress_limit, "ingressLimit", strict),
        egress=_pod_rate(given.egress_limit, "egressLimit", strict),
    )


def _pod_rate(text: str | None, field: str, strict: bool) -> int:
    if not text:
        if strict:
            raise InvalidInput("is missing", subject=qos.ANNOTATION_NETWORK_QOS, field=field)
        return 0
    return parse_quantity(text).value // _BITS


def tc_class(pod: Pod) -> str:
    """Return the traffic class of a pod, empty for one without a QoS class."""
    return _TC_CLASS_OF.get(qos.raw_qos(pod.metadata.labels), "")


def terway_priority(pod: Pod) -> int:
    """Return the priority of a pod for the terway-qos daemon: 0 system, 1 latency sensitive, 2 best effort."""
    label = qos.raw_qos(pod.metadata.labels)
    if label:
        return _PRIORITY_OF[label]
    if not pod.status.qos_class:
        return 0
    return 2 if pod.status.qos_class == BEST_EFFORT else 1


def class_id(major: int, minor: int) -> int:
    """Return the value of net_cls.classid; the kernel reads the decimal digits of both parts as hex."""
    return int(str(major), 16) << 16 | int(str(minor), 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class TcClass:
    """One HTB class below the root qdisc."""

    minor: int
    rate: int
    ceil: int
    priority: int = 0


def tc_classes(bandwidth: NodeBandwidth) -> tuple[TcClass, ...]:
    """Return the classes of a node: all, system, LS, BE. Without a bandwidth there are none: the kernel takes no 0."""
    total, ls, be = bandwidth.total, bandwidth.latency_sensitive, bandwidth.best_effort
    if total <= 0:
        return ()
    return (
        TcClass(minor=1, rate=total, ceil=total),
        TcClass(minor=2, rate=max(total - ls.tx_min - be.tx_min, 0), ceil=total, priority=1),
        TcClass(minor=3, rate=ls.tx_min, ceil=ls.tx_max, priority=2),
        TcClass(minor=4, rate=be.tx_min, ceil=be.tx_max, priority=3),
    )
