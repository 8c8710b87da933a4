"""What becomes of a pod at creation: profiles, resource translation, the resource annotation, GPU shorthands.

Resources are translated when a profile matched, also when their probability left out all of them; not when one of the
matching profiles says so by annotation, or for the whole cluster by gate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kubetide.api.objects.slo import ClusterColocationProfile, PriorityClass
from kubetide.api.values.compat import Compat
from kubetide.slo.colocation.core import gpu, profile
from kubetide.slo.colocation.core.match import ProfileProblem, matching
from kubetide.slo.colocation.core.profile import Draws
from kubetide.slo.colocation.core.translate import translate, with_extended_resource_spec
from kubetide.slo.core import compat as since
from kubetide.slo.core.compat import NEWEST

Raw = dict[str, Any]

SKIP_RESOURCES = "config.koordinator.sh/skip-update-resources"
APPLIED = "kubetide.io/colocation-profiles"
"""Annotation of a pod: the profiles that made it what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a pod is judged by: complete before the decision."""

    profiles: Sequence[ClusterColocationProfile]
    namespace_labels: Mapping[str, str] | None
    """None: the namespace could not be read."""
    priority_classes: Mapping[str, PriorityClass]
    skip_resources: bool = False
    """Gate ColocationProfileSkipMutatingResources."""
    skip_resource_spec: bool = False
    """Gate DisableExtendedResourceSpec."""
    skip_devices: bool = False
    """Gate DisableDeviceResourceSpec."""
    compat: Compat = NEWEST


@dataclass(frozen=True, slots=True)
class Mutation:
    """The pod as it should be created, and which profiles made it so."""

    pod: Raw
    applied: tuple[str, ...] = ()
    problems: tuple[ProfileProblem, ...] = ()


def mutate(pod: Raw, around: Surroundings, rng: Draws) -> Mutation:
    """Return what becomes of a pod that is created; raise InvalidInput if that cannot be known."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    found = matching(around.profiles, labels, around.namespace_labels, around.compat)
    changed, applied, translated = pod, [], bool(found.profiles) and not around.skip_resources
    for each in found.profiles:
        if SKIP_RESOURCES in (each.metadata.annotations or {}):
            translated = False
        if profile.hits(each, rng):
            changed = profile.apply(changed, each, around.priority_classes, around.compat)
            applied.append(each.metadata.name)
    if translated:
        changed = translate(changed)
    if not around.skip_resource_spec:
        changed = with_extended_resource_spec(changed)
    if around.compat.has(since.GPU_SHORTHANDS) and not around.skip_devices:
        changed = gpu.expand(changed)
    return Mutation(changed, tuple(applied), found.problems)


def noted(text: str | None) -> tuple[str, ...]:
    """Return the profiles that a note on a pod names; a note that cannot be read names none."""
    try:
        found = msgspec.json.decode(text or "[]")
    except (msgspec.DecodeError, RecursionError):
        return ()
    return tuple(str(name) for name in found) if isinstance(found, list) else ()


def recorded(mutation: Mutation) -> Raw:
    """Return the pod with a note of the profiles that were applied, now and before."""
    if not mutation.applied:
        return mutation.pod
    meta = mutation.pod.get("metadata") or {}
    before = noted((meta.get("annotations") or {}).get(APPLIED))
    note = msgspec.json.encode(tuple(dict.fromkeys((*before, *mutation.applied)))).decode()
    return {**mutation.pod, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), APPLIED: note}}}
