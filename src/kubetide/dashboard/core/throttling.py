"""How many pods are held back by their CPU limit, from whoever knows: agents, kubetide's metrics server, Prometheus.

A pod counts where one of its containers was throttled in more than a quarter of its CPU periods. A container without a
limit has no periods, so that pods nobody reports on are not an error; where nobody reports on any, it is not known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.metrics import PodSignals
from kubetide.dashboard.core.nodes import THROTTLED, NodeRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """How many pods, who says so, and why it is not known where nobody does."""

    pods: int | None = None
    source: str = ""
    unknown: str = ""


NOBODY_ASKED = Throttled(unknown="nobody was asked")


def told_by_agents(nodes: Sequence[NodeRow]) -> Throttled | None:
    """Return what agents that were asked at once report; None where none was."""
    known = [node.throttled for node in nodes if node.throttled is not None]
    return Throttled(pods=sum(known), source="node agents") if known else None


def told_by_signals(items: Iterable[PodSignals]) -> dict[ObjectKey, float]:
    """Return the worst share of throttled periods among the containers of each pod."""
    found: dict[ObjectKey, float] = {}
    for item in items:
        shares = [one.cpu_throttled_ratio for one in item.containers or () if one.cpu_throttled_ratio is not None]
        if shares:
            found[key_of(item)] = max(shares)
    return found


def counted(shares: Mapping[ObjectKey, float], visible: Iterable[ObjectKey], source: str) -> Throttled:
    """Return how many of the pods that a visitor may see are throttled."""
    seen = set(visible)
    return Throttled(pods=sum(share > THROTTLED for key, share in shares.items() if key in seen), source=source)
