"""What an overcommit calculation says about one resource."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubetide.api.quantity import Quantity

BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
MID_CPU = "kubernetes.io/mid-cpu"
MID_MEMORY = "kubernetes.io/mid-memory"
BATCH_RESOURCES = (BATCH_CPU, BATCH_MEMORY)
MID_RESOURCES = (MID_CPU, MID_MEMORY)


@dataclass(frozen=True, slots=True)
class ResourceItem:
    """An amount for the node, amounts for its zones, or the word that the resource must go (`reset`)."""

    name: str
    quantity: Quantity | None = None
    zones: Mapping[str, Quantity] = field(default_factory=dict)
    reset: bool = False
    message: str = ""


def resets(names: tuple[str, ...], message: str) -> tuple[ResourceItem, ...]:
    """Return the items that take resources away."""
    return tuple(ResourceItem(name, reset=True, message=message) for name in names)
