"""CPU and memory of a batch or mid pod as extended resources, and the annotation from which agents read them.

    cpu -> kubernetes.io/batch-cpu or mid-cpu (milli-cores, rounded up)      memory -> batch-memory or mid-memory

The scheduler then places the pod on what the SLO controller reports as left, not on what prod pods requested. A
container with a limit but no request requests its limit. Runtimes do not pass extended resources on; hence the
annotation, which lists the batch resources of ordinary containers.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kubetide.api.objects.core import Pod, ResourceRequirements
from kubetide.api.objects.meta import ApiObject
from kubetide.api.objects.resources import parse_list
from kubetide.api.qos import qos
from kubetide.api.values.codec import convert, decode_folded
from kubetide.api.values.quantity import Quantity, parse_quantity

Raw = dict[str, Any]

_TARGETS = {
    qos.BATCH: {"cpu": qos.BATCH_CPU, "memory": qos.BATCH_MEMORY},
    qos.MID: {"cpu": qos.MID_CPU, "memory": qos.MID_MEMORY},
}
_BATCH = (qos.BATCH_CPU, qos.BATCH_MEMORY)


class ExtendedResourceSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    """The annotation: batch resources by container."""

    containers: dict[str, ResourceRequirements] | None = None


def translate(pod: Raw) -> Raw:
    """Return the pod with its CPU and memory as the extended resources of its priority class, if that has any."""
    targets = _TARGETS.get(qos.defaulted_priority(convert(pod, Pod)))
    if targets is None:
        return pod
    spec = on_containers(pod, lambda resources: _translated_requirements(resources, targets), init=True)
    if spec.get("overhead"):
        spec["overhead"] = _translated(spec["overhead"], targets)
    return {**pod, "spec": spec}


def on_containers(pod: Raw, change: Callable[[Raw], Raw], *, init: bool) -> Raw:
    """Return the spec of the pod with the requirements of its containers changed."""
    spec = dict(pod.get("spec") or {})
    for part in ("containers", "initContainers") if init else ("containers",):
        if spec.get(part):
            spec[part] = [_with_requirements(container, change) for container in spec[part]]
    return spec


def with_extended_resource_spec(pod: Raw) -> Raw:
    """Return the pod with its annotation; raise DecodeError if an old one cannot be read."""
    meta = dict(pod.get("metadata") or {})
    annotations = dict(meta.get("annotations") or {})
    listed = {
        container.get("name", ""): batch
        for container in (pod.get("spec") or {}).get("containers") or ()
        if (batch := _batch_part(container.get("resources") or {}))
    }
    text = annotations.get(qos.ANNOTATION_EXTENDED_RESOURCES)
    if _amounts_in(text) == {name: _amounts(parts) for name, parts in listed.items()}:
        return pod
    found = {"containers": {name: listed[name] for name in sorted(listed)}} if listed else {}
    annotations[qos.ANNOTATION_EXTENDED_RESOURCES] = msgspec.json.encode(found).decode()
    return {**pod, "metadata": {**meta, "annotations": annotations}}


def _with_requirements(container: Raw, change: Callable[[Raw], Raw]) -> Raw:
    old = container.get("resources") or {}
    new = change(old)
    return container if new == old else {**container, "resources": new}


def _translated_requirements(resources: Raw, targets: Mapping[str, str]) -> Raw:
    found = dict(resources)
    for part in ("requests", "limits"):
        if found.get(part):
            found[part] = _translated(found[part], targets)
    limits = found.get("limits") or {}
    missing = {name: limits[name] for name in targets.values() if name in limits}
    if missing:
        found["requests"] = {**missing, **(found.get("requests") or {})}
    return found


def _translated(resources: Mapping[str, Any], targets: Mapping[str, str]) -> Raw:
    kept = {name: value for name, value in resources.items() if name not in targets}
    for name, target in targets.items():
        if name in resources:
            amount = parse_quantity(resources[name])
            kept[target] = str(Quantity.of(amount.milli) if name == "cpu" else amount)
    return kept


def _batch_part(resources: Mapping[str, Any]) -> Raw:
    parts = {
        part: {name: str(parse_quantity(resources[part][name])) for name in _BATCH if name in resources[part]}
        for part in ("limits", "requests")
        if resources.get(part)
    }
    return {part: found for part, found in parts.items() if found}


def _amounts_in(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    found = decode_folded(text, ExtendedResourceSpec, what=qos.ANNOTATION_EXTENDED_RESOURCES)
    read = {name: {"limits": each.limits, "requests": each.requests} for name, each in (found.containers or {}).items()}
    return {name: _amounts(parts) for name, parts in read.items()}


def _amounts(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {part: parse_list(listed) for part, listed in parts.items() if listed}
