"""What profiles make of pods that are already there and wait for a node, and of Reservations.

Pods that were created before a profile, or while no webhook answered, can still be told what they are until a node is
chosen for them. Only profiles that ask for it take part (a label, or a setting for all), and only with a selector of
pods: one without would take every pending pod of the cluster. What a pod that exists cannot change is left alone:
priority, scheduler, resources.

    labels, annotations -> copies -> suffixes that are not there yet -> QoS class -> sub-priority -> patch

A Reservation stands for pods to come, so it is read as a pod made of its metadata and the spec of its template;
namespaces say nothing about it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kubetide.api.objects.core import Pod
from kubetide.api.objects.slo import ClusterColocationProfile, PriorityClass
from kubetide.api.values.compat import Compat
from kubetide.api.values.shard_selector import shard_hash
from kubetide.slo.colocation.core import profile
from kubetide.slo.colocation.core.match import Matches, is_empty, matching
from kubetide.slo.colocation.core.profile import Draws
from kubetide.slo.core.compat import NEWEST

Raw = dict[str, Any]

MANAGED = "config.koordinator.sh/controller-managed"
"""Label of a profile that is also for pods which are already there."""


class Steady:
    """An rng that gives the same pod and profile the same number every time."""

    def __init__(self, text: str) -> None:
        self._hash = shard_hash(text)

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to `stop` - 1."""
        return self._hash % stop


def managed(profiles: Iterable[ClusterColocationProfile], *, by_default: bool) -> list[ClusterColocationProfile]:
    """Return the profiles that also are for pods which are already there."""
    return [
        each
        for each in profiles
        if not is_empty(each.spec.selector) and (by_default or (each.metadata.labels or {}).get(MANAGED) == "true")
    ]


def waits_for_a_node(pod: Pod) -> bool:
    """Return whether a pod is pending, on no node, and not on its way out."""
    return pod.status.phase == "Pending" and not pod.spec.node_name and pod.metadata.deletion_timestamp is None


def caught_up(pod: Raw, found: Matches, compat: Compat = NEWEST) -> tuple[Raw, tuple[str, ...]]:
    """Return a pending pod as its profiles want it, and which of them apply; raise ProfileError."""
    changed, applied = pod, []
    uid = (pod.get("metadata") or {}).get("uid", "")
    for each in found.profiles:
        if profile.hits(each, Steady(f"{uid}/{each.metadata.name}")):
            changed = profile.apply(changed, _changeable(changed, each), {}, compat)
            applied.append(each.metadata.name)
    return changed, tuple(applied)


def mutate_reservation(
    reservation: Raw,
    profiles: Iterable[ClusterColocationProfile],
    priority_classes: Mapping[str, PriorityClass],
    rng: Draws,
    compat: Compat = NEWEST,
) -> tuple[Raw, tuple[str, ...]]:
    """Return a Reservation as its profiles want it, and which of them apply; raise ProfileError."""
    meta = reservation.get("metadata") or {}
    anywhere = [_anywhere(each) for each in profiles]
    spec = reservation.get("spec") or {}
    template = spec.get("template") or {}
    pod: Raw = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template.get("spec") or {}}
    applied = []
    for each in matching(anywhere, meta.get("labels") or {}, {}, compat).profiles:
        if profile.hits(each, rng):
            pod = profile.apply(pod, each, priority_classes, compat)
            applied.append(each.metadata.name)
    if not applied:
        return reservation, ()
    changed = {**spec, "template": {**template, "spec": pod["spec"]}}
    return {**reservation, "metadata": pod["metadata"], "spec": changed}, tuple(applied)


def _changeable(pod: Raw, each: ClusterColocationProfile) -> ClusterColocationProfile:
    """Return the profile reduced to what a pod that exists can still become."""
    spec = each.spec
    before = {**((pod.get("metadata") or {}).get("labels") or {}), **(spec.labels or {})}
    before |= {new: before[old] for old, new in (spec.label_keys_mapping or {}).items() if old in before}
    # What the profile itself spells out is written anew each time; everything else keeps the suffix it has.
    suffixes = {
        key: text
        for key, text in (spec.label_suffixes or {}).items()
        if key in (spec.labels or {}) or not before.get(key, "").endswith(text)
    }
    reduced = msgspec.structs.replace(spec, priority_class_name=None, scheduler_name=None, label_suffixes=suffixes)
    return msgspec.structs.replace(each, spec=reduced)


def _anywhere(each: ClusterColocationProfile) -> ClusterColocationProfile:
    return msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, namespace_selector=None))
