"""Sizes of a DaemonSet by group of nodes (gate `DaemonSetScope`, proposal AEP-10031).

`spec.scope` names a node label. Pods on nodes with equal values of it are a group with histograms, checkpoints and a
recommendation of its own (`status.groups`); `status.recommendation` stays empty. A node without the label belongs to
the group `__absent__`, which is not the group of the empty value.

Inside kubetide a group is called `vpa@value`. No VPA can have such a name, so whoever does not know of groups takes
their checkpoints for those of a VPA that is gone, deletes them in time and never mixes them up.
"""

import hashlib
from collections.abc import Mapping

import msgspec

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ApiObject, ObjectKey
from kubetide.api.objects.vpa import GroupRecommendation, PodRecommendation, VerticalPodAutoscaler
from kubetide.api.values.codec import decode
from kubetide.api.values.selectors import label_key_problem
from kubetide.errors import InvalidInput

SCOPE_ANNOTATION = "kubetide.io/vpa-scope"
"""Names the node label where the CRD does not know `spec.scope`; the field wins."""
GROUPS_ANNOTATION = "kubetide.io/vpa-groups"
"""Holds `status.groups` as JSON where the CRD does not know that field; the field wins."""
DAEMON_SETS_ALONE = "only pods of a DaemonSet can be sized by node"
ABSENT = "__absent__"
_SEPARATOR = "@"


class _Term(ApiObject, frozen=True, kw_only=True, gc=False):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _Terms(ApiObject, frozen=True, kw_only=True, gc=False):
    match_fields: tuple[_Term, ...] | None = None


class _NodeSelector(ApiObject, frozen=True, kw_only=True, gc=False):
    node_selector_terms: tuple[_Terms, ...] | None = None


class _NodeAffinity(ApiObject, frozen=True, kw_only=True, gc=False):
    required: _NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(ApiObject, frozen=True, kw_only=True, gc=False):
    node_affinity: _NodeAffinity | None = None


class _PlacedSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    affinity: _Affinity | None = None


class _PlacedPod(ApiObject, frozen=True, kw_only=True, gc=False):
    spec: _PlacedSpec = _PlacedSpec()


def scope_of(vpa: VerticalPodAutoscaler) -> str:
    """Return the node label that groups the pods of a VPA; empty when it sizes all of them alike."""
    target = vpa.spec.target_ref
    if target is None or target.kind != "DaemonSet":
        return ""
    return vpa.spec.scope or ("" if scope_problem(vpa) else (vpa.metadata.annotations or {}).get(SCOPE_ANNOTATION, ""))


def scope_problem(vpa: VerticalPodAutoscaler) -> str:
    """Return what is wrong with the annotation that names a node label; the field is checked by the webhook."""
    given, target = (vpa.metadata.annotations or {}).get(SCOPE_ANNOTATION), vpa.spec.target_ref
    if not given:
        return ""
    if target is None or target.kind != "DaemonSet":
        return f"annotation {SCOPE_ANNOTATION}: {DAEMON_SETS_ALONE}"
    problem = label_key_problem(given)
    return f"annotation {SCOPE_ANNOTATION}: must be a label key: {problem}" if problem else ""


def scope_value(labels: Mapping[str, str] | None, scope: str) -> str:
    """Return the group of a node with these labels."""
    return (labels or {}).get(scope, ABSENT)


def group_key(vpa: ObjectKey, value: str) -> ObjectKey:
    """Return what a group of a VPA is called."""
    return ObjectKey(vpa.namespace, f"{vpa.name}{_SEPARATOR}{value}")


def vpa_name(name: str) -> str:
    """Return the name of the VPA that a group, or a VPA itself, belongs to."""
    return name.partition(_SEPARATOR)[0]


def group_value(name: str) -> str:
    """Return the value of the scope label that a group is named after."""
    return name.partition(_SEPARATOR)[2]


def is_group(name: str) -> bool:
    """Return whether this is the name of a group."""
    return _SEPARATOR in name


def checkpoint_name(vpa: str, container: str) -> str:
    """Return the name of a checkpoint; different pairs may collide, so readers look at `spec`.

    Values of labels may contain what names of objects must not, so a group is told apart by a digest.
    """
    if not is_group(vpa):
        return f"{vpa}-{container}"
    digest = hashlib.sha256(vpa.encode()).hexdigest()[:10]
    return f"{vpa_name(vpa)}-{container}-{digest}"


def groups_of(vpa: VerticalPodAutoscaler) -> dict[str, GroupRecommendation]:
    """Return what is recommended by group, from the status or the annotation; an unreadable annotation is none."""
    listed = vpa.status.groups if vpa.status is not None else None
    text = (vpa.metadata.annotations or {}).get(GROUPS_ANNOTATION)
    if listed is None and text:
        try:
            listed = decode(text, tuple[GroupRecommendation, ...], what=f"annotation {GROUPS_ANNOTATION}")
        except InvalidInput:
            return {}
    return {group.scope_value: group for group in listed or ()}


def for_group(vpa: VerticalPodAutoscaler, value: str | None) -> VerticalPodAutoscaler:
    """Return the VPA as the pods of one group see it: with its recommendation, or without any; None: no group."""
    group = None if value is None else groups_of(vpa).get(value)
    given = None if group is None else PodRecommendation(container_recommendations=group.container_recommendations)
    if vpa.status is None:
        return vpa
    return msgspec.structs.replace(vpa, status=msgspec.structs.replace(vpa.status, recommendation=given))


def placed(pod: Pod, raw: bytes) -> Pod:
    """Return a new pod with the node that it is made for: DaemonSets name it by affinity, not by `nodeName`."""
    if pod.spec.node_name:
        return pod
    affinity = decode(raw, _PlacedPod, what="pod").spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    terms = (node.required.node_selector_terms if node is not None and node.required is not None else None) or ()
    for term in terms:
        for field in term.match_fields or ():
            if field.key == "metadata.name" and field.operator == "In" and len(field.values or ()) == 1:
                name = (field.values or ("",))[0]
                return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=name))
    return pod
