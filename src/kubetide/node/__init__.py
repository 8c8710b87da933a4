"""How much of a node may be shared: the agent on each node, and what a QoS strategy of your own is made of."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubetide.node.core.plan import Batch as Batch
    from kubetide.node.core.plan import Plan as Plan
    from kubetide.node.core.plan import Write as Write
    from kubetide.node.core.qos.strategy import Strategy as Strategy
    from kubetide.node.core.snapshot import Snapshot as Snapshot

_HOMES = {
    "Batch": "kubetide.node.core.plan",
    "Plan": "kubetide.node.core.plan",
    "Snapshot": "kubetide.node.core.snapshot",
    "Strategy": "kubetide.node.core.qos.strategy",
    "Write": "kubetide.node.core.plan",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
