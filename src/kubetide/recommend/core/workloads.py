"""What is sized: the containers of a workload, what they request today, and what bounds them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from kubetide.api.objects.core import ResourceList
from kubetide.api.values.quantity import parse_quantity
from kubetide.errors import QuantityError
from kubetide.replay.core.policies import OomKill
from kubetide.stats.buckets import Floats
from kubetide.vpa.core.policy import CPU, MEMORY


@dataclass(frozen=True, slots=True)
class Sizes:
    """Amounts of one container; None where nothing is set."""

    cpu_millis: int | None = None
    memory_bytes: int | None = None


NOTHING = Sizes()


def sizes(amounts: ResourceList | None) -> Sizes:
    """Return CPU and memory of a resource list; what cannot be read counts as not set."""
    found: dict[str, int | None] = {CPU: None, MEMORY: None}
    for resource in found:
        text = (amounts or {}).get(resource)
        try:
            quantity = parse_quantity(text) if text is not None else None
        except QuantityError:
            continue
        if quantity is not None:
            found[resource] = quantity.milli if resource == CPU else quantity.value
    return Sizes(found[CPU], found[MEMORY])


class Place(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a container stands in an object of a custom resource: what a JSON patch has to name."""

    resource: str
    """As kubectl takes it: `rollouts.argoproj.io`."""
    path: str
    """The pointer of the container: `/spec/template/spec/containers/0`."""
    holds: tuple[str, ...] = ()
    """Which of `resources`, `requests` and `limits` are there: a JSON patch adds to what exists only."""
    others: dict[str, Any] = {}
    """What `resources` holds beside CPU and memory: ephemeral storage, devices, claims."""


class Maker(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What makes the pods of a workload, where that is another object: a Rollout that refers to a Deployment."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod template."""

    name: str
    requests: Sizes = NOTHING
    limits: Sizes = NOTHING
    sidecar: bool = False
    """An init container that keeps running."""
    place: Place | None = None
    """Of a custom resource only: patches for built-in kinds go by the name of the container."""
    after: tuple[str, ...] = ()
    """The containers before it in its list, init containers included that end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a person would name: a Deployment, a CronJob, anything with a pod template."""

    api_version: str
    kind: str
    namespace: str
    name: str
    replicas: int
    containers: tuple[Container, ...]
    cluster: str = ""
    pods: frozenset[str] = frozenset()
    """The names of its pods today."""
    utilization: Mapping[str, int] | None = field(default_factory=dict)
    """Targets of its HPA in percent of the request, by resource, or `RESOURCE/CONTAINER` for one container alone; None
    where HPAs could not be read."""
    nodes: frozenset[str] = frozenset()
    """Where its pods run."""
    maker: Maker | None = None
    managed_by: str = ""
    """What made it and keeps it as it is, where that is not a person: an operator's resource."""
    no_template: str = ""
    """Why there is no pod template that sizes could be written to."""

    def utilization_of(self, container: str) -> Mapping[str, int]:
        """Return the utilization targets that a container has to meet, by resource."""
        known = self.utilization or {}
        found = {resource: known.get(f"{resource}/{container}", known.get(resource)) for resource in (CPU, MEMORY)}
        return {resource: percent for resource, percent in found.items() if percent is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """Samples of one container in all pods of its workload: one row per step, one column per pod, NaN for none."""

    start: int
    """When the first step is, in seconds."""
    step: int
    pods: tuple[str, ...]
    cpu: Floats
    """Cores."""
    memory: Floats
    """Bytes."""
    ooms: tuple[OomKill, ...] = ()
    throttled: float | None = None
    """Share of CFS periods in which the container was throttled, where that is known."""
    source: str = "prometheus"
    folded: str = ""
    """What the source made of each step where that is no plain sample."""

    @property
    def samples(self) -> int:
        """How many samples of CPU there are."""
        return int(np.isfinite(self.cpu).sum())

    @property
    def days(self) -> float:
        """From the first sample to the last, in days."""
        seen = np.flatnonzero(np.isfinite(self.cpu).any(axis=1) | np.isfinite(self.memory).any(axis=1))
        return 0.0 if not seen.size else float((seen[-1] - seen[0] + 1) * self.step / 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a source recommends by itself, as a VPA checkpoint does: there are no samples to look at."""

    cpu_millis: int
    memory_bytes: int
    days: float
    samples: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What no recommendation passes, whatever usage shows."""

    largest_node: Sizes = NOTHING
    quota_left: Mapping[str, Sizes] = field(default_factory=dict)
    """Requests that the quotas of a namespace still allow."""


ContainerKey = tuple[str, str, str, str, str]
"""Cluster, namespace, kind, name of the workload, name of the container."""


def key_of(workload: Workload, container: str) -> ContainerKey:
    """Return what usage is kept under."""
    return (workload.cluster, workload.namespace, workload.kind, workload.name, container)
