"""Network QoS: how much bandwidth LS and BE pods get, as a NodeSLO says it and as terway-qos wants it.

    total       systemStrategy.totalNetworkBandwidth, bits per second
    a number    percent of the total, 0 outside 0..100
    a text      a quantity of bits per second

The policy `terway-qos` hands bytes per second to another daemon in files. A text that cannot be read, or is larger than
the total, refuses the whole update. The policy `tc` shapes what leaves the node (`traffic`); there a text that cannot
be read counts as not given.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ApiObject
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.api.qos.slo_strategies import NetworkQOS, NodeSLOSpec, ResourceQOS
from kubetide.api.values.codec import decode_folded, encode
from kubetide.api.values.quantity import QuantityText, parse_quantity
from kubetide.errors import InvalidInput
from kubetide.node.core.snapshot import PodState

TC, TERWAY = "tc", "terway-qos"
ANNOTATION = qos.ANNOTATION_NETWORK_QOS
_NET_CLS = "/sys/fs/cgroup/net_cls"
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


def node_bandwidth(spec: NodeSLOSpec) -> NodeBandwidth:
    """Return the rates of a node; raise InvalidInput for text that is unusable."""
    text = spec.system_strategy.total_network_bandwidth if spec.system_strategy else None
    total = 0 if text is None else parse_quantity(text).value
    return _rates(spec, total, _rate)


def shaped_bandwidth(spec: NodeSLOSpec, link_bits: int = 0) -> NodeBandwidth:
    """Return the rates that tc shapes by; a node that does not say how much it has has what its link has."""
    text = spec.system_strategy.total_network_bandwidth if spec.system_strategy else None
    return _rates(spec, (0 if text is None else _bits(text)) or link_bits, _lenient_rate)


def is_wanted(spec: NodeSLOSpec) -> bool:
    """Return whether any class of a NodeSLO has network QoS."""
    strategy = spec.resource_qos_strategy
    blocks = (strategy.ls_class, strategy.be_class) if strategy else ()
    return any(block is not None and block.network_qos is not None and block.network_qos.enable for block in blocks)


Rate = Callable[[NetworkQOS, str, int], int]


def _rates(spec: NodeSLOSpec, total: int, rate: Rate) -> NodeBandwidth:
    strategy = spec.resource_qos_strategy
    return NodeBandwidth(
        total=total,
        latency_sensitive=_class(strategy.ls_class if strategy else None, total, rate),
        best_effort=_class(strategy.be_class if strategy else None, total, rate),
    )


def _class(block: ResourceQOS | None, total: int, rate: Rate) -> Bandwidth:
    network = block.network_qos if block else None
    if network is None or network.enable is not True:
        return Bandwidth()
    return Bandwidth(
        tx_min=rate(network, "egress_request", total),
        tx_max=rate(network, "egress_limit", total),
        rx_min=rate(network, "ingress_request", total),
        rx_max=rate(network, "ingress_limit", total),
    )


def _rate(network: NetworkQOS, field: str, total: int) -> int:
    given: int | str | None = getattr(network, field)
    if given is None:
        return 0
    if isinstance(given, int):
        return total * given // 100 if 0 <= given <= 100 else 0
    rate = parse_quantity(given).value
    if rate > total:
        raise InvalidInput(f"{given} is more than the node's {total} bits per second", field=field)
    return rate


def _lenient_rate(network: NetworkQOS, field: str, total: int) -> int:
    given: int | str | None = getattr(network, field)
    return _bits(given) if isinstance(given, str) else _rate(network, field, total)


def _bits(text: QuantityText) -> int:
    try:
        return max(parse_quantity(text).value, 0)
    except InvalidInput:
        return 0


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
    """Largest rates of a pod; 0 is no limit."""

    ingress: int = 0
    egress: int = 0


def pod_bandwidth(annotations: Mapping[str, str] | None) -> PodBandwidth:
    """Return the rates of a pod's annotation in bytes per second; both must be given. Raise InvalidInput."""
    text = (annotations or {}).get(qos.ANNOTATION_NETWORK_QOS)
    if text is None:
        return PodBandwidth()
    given = decode_folded(text, PodNetworkQOS, what=qos.ANNOTATION_NETWORK_QOS)
    return PodBandwidth(
        ingress=_pod_rate(given.ingress_limit, "ingressLimit"),
        egress=_pod_rate(given.egress_limit, "egressLimit"),
    )


def pod_rates(annotations: Mapping[str, str] | None) -> PodBandwidth:
    """Return the rates of a pod's annotation in bits per second, 0 for one that is not given; raise InvalidInput."""
    text = (annotations or {}).get(qos.ANNOTATION_NETWORK_QOS)
    if text is None:
        return PodBandwidth()
    given = decode_folded(text, PodNetworkQOS, what=qos.ANNOTATION_NETWORK_QOS)
    return PodBandwidth(ingress=_bits(given.ingress_limit or 0), egress=_bits(given.egress_limit or 0))


def _pod_rate(text: str | None, field: str) -> int:
    if not text:
        raise InvalidInput("is missing", subject=qos.ANNOTATION_NETWORK_QOS, field=field)
    return parse_quantity(text).value // _BITS


def terway_pods(pods: Iterable[PodState]) -> tuple[str, list[str]]:
    """Return the pods' file for the terway-qos daemon, and why pods are missing in it."""
    found: dict[str, object] = {}
    problems: list[str] = []
    for pod in pods:
        if not pod.is_active:
            continue
        try:
            rates = pod_bandwidth(pod.pod.metadata.annotations)
        except InvalidInput as error:
            problems.append(f"{pod.key}: {error}")
            continue
        found[pod.uid] = {
            "podName": pod.name,
            "podNamespace": pod.namespace,
            "podUID": pod.uid,
            "prio": terway_priority(pod.pod),
            "cgroupDir": f"{_NET_CLS}/{pod.directory}",
            "qosConfig": {"ingressBandwidth": rates.ingress, "egressBandwidth": rates.egress},
        }
    return encode(found).decode(), problems


def terway_priority(pod: Pod) -> int:
    """Return the priority of a pod for the terway-qos daemon: 0 system, 1 latency sensitive, 2 best effort."""
    label = qos.raw_qos(pod.metadata.labels)
    if label:
        return _PRIORITY_OF[label]
    if not pod.status.qos_class:
        return 0
    return 2 if pod.status.qos_class == BEST_EFFORT else 1
