"""Classes of workloads in a recording, and the autoscalers that a class would be tuned through."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from kubetide.errors import InvalidInput
from kubetide.recording.reader import Recording
from kubetide.replay.core.shapes import ShapeCount
from kubetide.replay.demand import service_name

Classes = Literal["all", "namespace", "kind", "shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscalers:
    """Namespaces and names of recorded objects."""

    vpas: Sequence[tuple[str, str]] = ()
    hpas: Sequence[tuple[str, str]] = ()
    """Those that scale on CPU utilization alone."""


def class_names(recording: Recording, classes: Classes, *, days: int, services: bool) -> dict[str, str]:
    """Return the class of every workload (of every service), shapes by their first days."""
    who = recording.containers
    units = list(dict.fromkeys(who.unit_of(at) for at in range(len(who))))
    if services:
        if classes in ("kind", "shape"):
            raise InvalidInput(f"services have no {classes}; take all or namespace", field="--per")
        # Services that only a metric knows have no container.
        rows = recording.rows("load")
        named = [f"{one}/{other}" for one, other in zip(rows["namespace"], rows["workload"], strict=True)]
        units = list(dict.fromkeys([*(who.service_of(at) for at in range(len(who))), *named]))
    match classes:
        case "all":
            return dict.fromkeys(units, "all")
        case "namespace":
            return {unit: unit.partition("/")[0] for unit in units}
        case "kind":
            return {unit: unit.split("/")[1] for unit in units}
        case "shape":
            return _shapes(recording, days)


def _shapes(recording: Recording, days: int) -> dict[str, str]:
    found: dict[str, str] = {}
    who = recording.containers
    for block in recording.blocks:
        numbers: dict[str, int] = {}
        members = np.flatnonzero(who.block == block).tolist()
        workloads = np.array([numbers.setdefault(who.unit_of(at), len(numbers)) for at in members], dtype=np.int64)
        count = ShapeCount(workloads, len(numbers))
        for day, grid in enumerate(recording.grids(block)):
            if day < days:
                count.observe(grid.cpu, grid.memory)
        found |= dict(zip(numbers, count.shapes(), strict=True))
    return found


def autoscalers_of(recording: Recording, units: Sequence[str]) -> Autoscalers:
    """Return the recorded autoscalers whose target is one of these workloads."""
    wanted = {service_name(unit) for unit in units}
    rows = recording.rows("objects")
    last: dict[tuple[str, str, str], Any] = {}
    for kind, namespace, name, event, text in zip(
        *(rows[column] for column in ("kind", "namespace", "name", "event", "object")), strict=True
    ):
        if kind in ("VerticalPodAutoscaler", "HorizontalPodAutoscaler"):
            last[kind, namespace, name] = None if event == "DELETED" or not text else msgspec.json.decode(text)
    found: dict[str, list[tuple[str, str]]] = {"VerticalPodAutoscaler": [], "HorizontalPodAutoscaler": []}
    for (kind, namespace, name), obj in sorted(last.items(), key=lambda each: each[0]):
        spec = obj.get("spec", {}) if obj else {}
        target = spec.get("targetRef") or spec.get("scaleTargetRef") or {}
        if f"{namespace}/{target.get('name')}" in wanted and (kind.startswith("V") or _only_cpu(spec)):
            found[kind].append((namespace, name))
    return Autoscalers(vpas=found["VerticalPodAutoscaler"], hpas=found["HorizontalPodAutoscaler"])


def _only_cpu(spec: Any) -> bool:
    metrics = spec.get("metrics") or []
    resource = metrics[0].get("resource", {}) if len(metrics) == 1 else {}
    return resource.get("name") == "cpu" and resource.get("target", {}).get("type") == "Utilization"
