"""What a kubelet answers on `/metrics/resource`: counters of CPU time and working sets, in Prometheus' text format.

    node_cpu_usage_seconds_total 357.35 1633600000000
    container_cpu_usage_seconds_total{container="web",namespace="shop",pod="web-1"} 4.71 1633600000123
    container_memory_working_set_bytes{container="web",namespace="shop",pod="web-1"} 1.253376e+06 1633600000123
    container_start_time_seconds{container="web",namespace="shop",pod="web-1"} 1.63360e+09

Each line has the time at which its counter was read. Other lines are passed over. A number that is not finite, or
negative, or a name that does not belong into Kubernetes makes that container unknown and nothing else.
"""

import math
import re
from dataclasses import dataclass, field

from kubetide.metrics.core.readings import PodKey

LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes that one kubelet may answer with."""

_LINE = re.compile(
    r"(?P<name>(?:node|container)_(?:cpu_usage_seconds_total|memory_working_set_bytes|start_time_seconds))"
    r"(?:\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\})?[ \t]+(?P<value>\S+)(?:[ \t]+(?P<millis>-?\d{1,15}))?\s*"
)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(slots=True)
class Counters:
    """The counters of one container, or of the node. None: not reported, or not to be believed."""

    cpu_seconds: float | None = None
    at: float | None = None
    """Seconds since the epoch at which the CPU time was read."""
    memory_bytes: int | None = None
    started: float | None = None
    """Seconds since the epoch; None where the kubelet is too old to say."""


@dataclass(slots=True)
class KubeletAnswer:
    """One scrape."""

    node: Counters = field(default_factory=Counters)
    pods: dict[PodKey, dict[str, Counters]] = field(default_factory=dict)
    refused: int = 0
    """Lines that name something known with a value that cannot be."""


def parse_resource_metrics(text: str) -> KubeletAnswer:
    """Read an answer of a kubelet."""
    answer = KubeletAnswer()
    for line in text.split("\n"):
        if not line.startswith(("node_", "container_")):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        value = _number(match["value"])
        target = _target(answer, match)
        if value is None or target is None:
            answer.refused += 1
            continue
        _set(target, match["name"], value, match["millis"])
    return answer


def _target(answer: KubeletAnswer, match: re.Match[str]) -> Counters | None:
    if match["name"].startswith("node_"):
        return answer.node
    labels = dict(_LABEL.findall(match["labels"] or ""))
    names = [labels.get(label, "") for label in ("namespace", "pod", "container")]
    if not all(_NAME.fullmatch(name) for name in names):
        return None
    namespace, pod, container = names
    return answer.pods.setdefault((namespace, pod), {}).setdefault(container, Counters())


def _set(counters: Counters, name: str, value: float, millis: str | None) -> None:
    if name.endswith("cpu_usage_seconds_total"):
        if millis is not None:
            counters.cpu_seconds, counters.at = value, int(millis) / 1000
    elif name.endswith("memory_working_set_bytes"):
        counters.memory_bytes = int(value)
    else:
        counters.started = value


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < 2**60 else None
