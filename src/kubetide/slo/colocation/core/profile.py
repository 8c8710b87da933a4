"""What one profile makes of a pod, step by step; later steps and later profiles overwrite.

    labels, annotations -> copies of them under other keys -> label suffixes -> scheduler -> QoS class
    -> priority class -> sub-priority -> strategic merge patch

Copies read the values from before their step, so that they do not depend on the order of a map. A copy of a key that
the pod does not have writes nothing.
"""

import re
from collections.abc import Mapping
from typing import Any, Protocol

from kubetide.api.objects.core import Pod
from kubetide.api.objects.slo import ClusterColocationProfile, PriorityClass, ProfileSpec
from kubetide.api.qos.qos import LABEL_QOS
from kubetide.api.values.codec import convert
from kubetide.api.values.compat import Compat
from kubetide.api.values.patch import StrategicMergePatch
from kubetide.errors import DecodeError, InvalidInput, PatchError
from kubetide.slo.core import compat as since
from kubetide.slo.core.compat import NEWEST

Raw = dict[str, Any]

LABEL_SUB_PRIORITY = "koordinator.sh/priority"
_PERCENT = re.compile(r"([+-]?[0-9]+)%", re.ASCII)


class Draws(Protocol):
    """Where the random numbers of a profile come from (`random.Random`)."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to `stop` - 1."""
        ...


class ProfileError(InvalidInput):
    """A profile that cannot be applied: the pod is refused, because nobody knows what it should have become."""


def hits(profile: ClusterColocationProfile, rng: Draws) -> bool:
    """Return whether a profile applies to this pod, by its probability; raise ProfileError."""
    percent = _percent(profile)
    if percent in (0, 100):
        return percent == 100
    return rng.randrange(100) < percent


def apply(
    pod: Raw,
    profile: ClusterColocationProfile,
    priority_classes: Mapping[str, PriorityClass],
    compat: Compat = NEWEST,
) -> Raw:
    """Return the pod with the profile applied; raise ProfileError."""
    spec = profile.spec
    meta = dict(pod.get("metadata") or {})
    labels = {**(meta.get("labels") or {}), **(spec.labels or {})}
    annotations = {**(meta.get("annotations") or {}), **(spec.annotations or {})}
    labels |= _copied(labels, spec.label_keys_mapping)
    annotations |= _copied(annotations, spec.annotation_keys_mapping)
    if compat.has(since.LABEL_SUFFIXES):
        labels |= {key: labels[key] + text for key, text in (spec.label_suffixes or {}).items() if key in labels}
    if spec.qos_class:
        labels[LABEL_QOS] = spec.qos_class
    if spec.koordinator_priority is not None:
        labels[LABEL_SUB_PRIORITY] = str(spec.koordinator_priority)
    meta |= {name: part for name, part in (("labels", labels), ("annotations", annotations)) if part or name in meta}
    changed = {**pod, "metadata": meta, "spec": _with_priority(profile, pod, priority_classes, compat)}
    return _patched(changed, profile) if spec.patch is not None else changed


def _with_priority(
    profile: ClusterColocationProfile, pod: Raw, priority_classes: Mapping[str, PriorityClass], compat: Compat
) -> Raw:
    found: Raw = dict(pod.get("spec") or {})
    spec: ProfileSpec = profile.spec
    if spec.scheduler_name:
        found["schedulerName"] = spec.scheduler_name
    if not spec.priority_class_name:
        return found
    priority = priority_classes.get(spec.priority_class_name)
    if priority is None:
        raise _error(profile, "priorityClassName", f"PriorityClass {spec.priority_class_name!r} does not exist")
    found |= {"priorityClassName": spec.priority_class_name, "priority": priority.value}
    if compat.has(since.PREEMPTION_POLICY):
        found.pop("preemptionPolicy", None)
        if priority.preemption_policy is not None:
            found["preemptionPolicy"] = priority.preemption_policy
    return found


def _patched(pod: Raw, profile: ClusterColocationProfile) -> Raw:
    try:
        merged = StrategicMergePatch(profile.spec.patch).apply(pod)
        convert(merged, Pod, what="the patched pod")
    except (PatchError, DecodeError) as error:
        raise _error(profile, "patch", str(error)) from error
    return merged


def _copied(values: Mapping[str, str], mapping: Mapping[str, str] | None) -> dict[str, str]:
    return {new: values[old] for old, new in sorted((mapping or {}).items()) if old in values}


def _percent(profile: ClusterColocationProfile) -> int:
    given = profile.spec.probability
    if given is None:
        return 100
    if isinstance(given, int):
        return given
    if (found := _PERCENT.fullmatch(given)) is None:
        raise _error(profile, "probability", f"{given!r} is neither a number nor a whole percentage")
    return int(found[1])


def _error(profile: ClusterColocationProfile, field: str, message: str) -> ProfileError:
    return ProfileError(message, subject=f"ClusterColocationProfile {profile.metadata.name}", field=f"spec.{field}")
