"""The indexes that controllers ask for most: pods by node, anything by owner or label."""

from collections.abc import Callable, Iterable

from kubetide.api.core import Pod
from kubetide.api.meta import HasMetadata, controller_of


def by_node(pod: Pod) -> Iterable[str]:
    """File a pod under the node it is bound to; an unbound one under none."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def by_owner(obj: HasMetadata) -> Iterable[str]:
    """File an object under the uid of each owner."""
    return [owner.uid for owner in obj.metadata.owner_references or ()]


def by_controller(obj: HasMetadata) -> Iterable[str]:
    """File an object under the uid of the owner that manages it."""
    owner = controller_of(obj.metadata)
    return (owner.uid,) if owner is not None else ()


def by_label(name: str) -> Callable[[HasMetadata], Iterable[str]]:
    """Return an index by the value of one label; objects without it are filed under none."""

    def values(obj: HasMetadata) -> Iterable[str]:
        value = (obj.metadata.labels or {}).get(name)
        return (value,) if value is not None else ()

    return values
