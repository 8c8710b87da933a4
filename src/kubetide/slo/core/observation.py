"""What goes into the decision about a node, and what comes out of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kubetide.api.objects.core import Node
from kubetide.api.objects.slo import Device, NodeMetric, NodeResourceTopology
from kubetide.slo.core.continuity import Departure
from kubetide.slo.core.overcommit.claims import PodClaim
from kubetide.slo.core.overcommit.result import ResourceItem

Raw = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObservation:
    """All that is known about a node at one instant."""

    node: Node
    pods: Sequence[PodClaim]
    metric: NodeMetric | None
    topology: NodeResourceTopology | None
    zones: Sequence[Raw]
    """The zones of the topology as they are stored, with the fields that kubetide does not know."""
    topology_annotations: Mapping[str, str]
    device: Device | None
    colocation: Mapping[str, Any]
    normalization: Mapping[str, Any]
    amplification: Mapping[str, Any] = field(default_factory=dict)
    since_status_write: timedelta | None = None
    since_zone_write: timedelta | None = None
    topology_version: str = ""
    """The version of the topology that the zones were read from."""
    departures: Sequence[Departure] = ()
    watched_for: timedelta | None = None
    """How long departures from this node have been watched; None: none can have been missed."""


@dataclass(frozen=True, slots=True)
class PluginProblem:
    """A plugin that could not do its part, and at which stage."""

    plugin: str
    stage: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDecision:
    """What to write (None: leave alone), when to look again, and why."""

    status_patch: Raw | None = None
    metadata_patch: Raw | None = None
    zones: list[Raw] | None = None
    zones_version: str = ""
    """The version of the topology that `zones` replaces: another one may hold newer resources of others."""
    look_again_after: timedelta | None = None
    steady_for: timedelta | None = timedelta(0)
    """How long time alone changes nothing: the same observation leads to the same decision. None: for ever."""
    items: tuple[ResourceItem, ...] = ()
    problems: tuple[PluginProblem, ...] = ()
    held: tuple[Departure, ...] = ()
    """What is held back for departures that happened before anybody watched."""
    disabled: bool = False
    """Colocation is off: batch and mid resources are taken away."""
    trace: Raw = field(default_factory=dict)
