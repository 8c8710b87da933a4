"""Which VPAs a namespace should have, and what to write so that it has them.

    namespace label     kubetide.io/vpa: "Off" | Initial | Recreate | InPlaceOrRecreate | InPlace | disabled
    workload label      the same key; it wins over the namespace, and `disabled` leaves the workload out
    namespace annotation kubetide.io/vpa-resource-policy: the resourcePolicy of all its VPAs, as JSON

A workload gets a VPA if its mode is not `disabled`, nobody owns it (the owner gets one), and no VPA of somebody else
aims at it. Only VPAs with the label of this controller are ever changed or deleted; whoever removes that label keeps
the VPA. While a workload is gone, or its namespace neither says nor is said to have VPAs, they stay for a grace period:
deploying anew, or a slip in a selector, must not cost what was learned. `disabled` deletes at once. A mode that acts is
held at `Off` where an HPA scales the same workload on CPU or memory, for the two would chase each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import CrossVersionObjectReference, ObjectMeta, TypedObject, controller_of, group_of
from kubetide.api.objects.vpa import (
    AUTO,
    IN_PLACE,
    IN_PLACE_OR_RECREATE,
    INITIAL,
    OFF,
    RECREATE,
    PodResourcePolicy,
    VerticalPodAutoscaler,
)
from kubetide.api.values.selectors import Selector
from kubetide.vpa.recommender.core.conflicts import conflicts, index_by_target

Raw = dict[str, Any]

LABEL = "kubetide.io/vpa"
RESOURCE_POLICY = "kubetide.io/vpa-resource-policy"
MADE_BY = ("app.kubernetes.io/managed-by", "kubetide-policy")
"""The label by which VPAs are known that this controller made."""
DISABLED = "disabled"
MODES = (OFF, INITIAL, RECREATE, IN_PLACE_OR_RECREATE, IN_PLACE, AUTO)
_BY_TEXT = {
    **{mode.lower(): mode for mode in MODES},
    **dict.fromkeys(("true", "enabled"), OFF),
    **dict.fromkeys((DISABLED, "false"), DISABLED),
}
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class TargetWorkload:
    """A workload that could get a VPA."""

    api_version: str
    kind: str
    metadata: ObjectMeta

    @property
    def identity(self) -> tuple[str, str, str]:
        """Group, kind and name: what a target reference means in its namespace."""
        return group_of(self.api_version), self.kind, self.metadata.name

    def __str__(self) -> str:
        return f"{self.kind} {self.metadata.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds in all namespaces."""

    selector: Selector | None = None
    """Namespaces that are switched on without the label."""
    mode: str = OFF
    """Their mode."""
    ignored: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One namespace as the caches show it."""

    namespace: ObjectMeta | None
    """None once it is gone."""
    targets: Sequence[TargetWorkload] = ()
    vpas: Sequence[VerticalPodAutoscaler] = ()
    unreadable: frozenset[str] = frozenset()
    """Names of VPAs that could not be decoded: what they aim at is unknown."""
    hpas: Sequence[HorizontalPodAutoscaler] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """A VPA that is as it should be, or is not touched; with the reason where it differs from what was asked for."""

    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to write in one namespace, in this order."""

    create: tuple[Raw, ...] = ()
    change: tuple[tuple[str, Raw], ...] = ()
    """Names of VPAs and what to merge into them."""
    delete: tuple[VerticalPodAutoscaler, ...] = ()
    orphans: tuple[VerticalPodAutoscaler, ...] = ()
    """VPAs that nobody asks for any more: to be deleted once that has lasted."""
    skipped: tuple[Kept, ...] = ()
    problem: str = ""
    """What is wrong with the label or the annotation; nothing is written then."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    mode: str
    policy: Raw | None = None
    problem: str = ""
    explicit: bool = True
    """Whether a label says so, rather than the lack of one."""


def plan(seen: Observation, rules: Rules) -> Plan:
    """Return what has to be written so that a namespace has the VPAs that it asks for."""
    mine = [vpa for vpa in seen.vpas if made_here(vpa.metadata)]
    wanted = _wanted(seen.namespace, rules)
    if wanted.problem:
        return Plan(problem=wanted.problem)
    if seen.namespace is None:
        return Plan()  # its VPAs go with it
    if wanted.mode == DISABLED:
        return Plan(delete=tuple(mine)) if wanted.explicit else Plan(orphans=tuple(mine))
    if seen.unreadable:
        return Plan(problem=f"VPA {min(seen.unreadable)} cannot be read, so nothing is known about what it aims at")
    foreign = {_identity(vpa): vpa.metadata.name for vpa in seen.vpas if not made_here(vpa.metadata)}
    names = {vpa.metadata.name: vpa for vpa in seen.vpas}
    index = index_by_target(seen.hpas)
    create: list[Raw] = []
    change: list[tuple[str, Raw]] = []
    skipped: list[Kept] = []
    excluded: set[tuple[str, str, str]] = set()
    for target in sorted(seen.targets, key=lambda each: each.identity):
        mode, reason = _mode_of(target, wanted.mode)
        if reason or target.identity in foreign:
            excluded.add(target.identity)
            skipped.append(Kept(str(target), reason or f"VPA {foreign[target.identity]} aims at it already"))
            continue
        contested = conflicts(seen.namespace.name, _reference(target), index) if mode != OFF else {}
        if contested:
            skipped.append(Kept(str(target), f"mode Off instead of {mode}: HPA {min(contested.values())} scales it"))
            mode = OFF
        made = vpa_for(target, mode=mode, policy=wanted.policy)
        held = names.get(made["metadata"]["name"])
        if held is None:
            create.append(made)
        elif not made_here(held.metadata) or _identity(held) != target.identity:
            skipped.append(Kept(str(target), f"the name of its VPA, {held.metadata.name}, is taken"))
            continue
        elif _differs(held, mode, wanted.policy):
            change.append((held.metadata.name, _change(mode, wanted.policy)))
    there = {target.identity for target in seen.targets}
    return Plan(
        create=tuple(create),
        change=tuple(change),
        delete=tuple(vpa for vpa in mine if _identity(vpa) in excluded),
        orphans=tuple(vpa for vpa in mine if _identity(vpa) not in there),
        skipped=tuple(skipped),
    )


def differ(old: TypedObject, new: TypedObject) -> bool:
    """Return whether two states of a workload or HPA may lead to another plan."""
    one, other = old.metadata, new.metadata
    return (
        one.labels != other.labels
        or one.owner_references != other.owner_references
        or one.uid != other.uid
        or (
            isinstance(old, HorizontalPodAutoscaler)
            and isinstance(new, HorizontalPodAutoscaler)
            and old.spec != new.spec
        )
    )


def vpa_for(target: TargetWorkload, *, mode: str = OFF, policy: Raw | None = None) -> Raw:
    """Return the VPA of a workload."""
    spec: Raw = {
        "targetRef": {"apiVersion": target.api_version, "kind": target.kind, "name": target.metadata.name},
        "updatePolicy": {"updateMode": mode},
        "resourcePolicy": policy,
    }
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {
            "name": vpa_name(target),
            "namespace": target.metadata.namespace,
            "labels": dict((MADE_BY,)),
        },
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


def vpa_name(target: TargetWorkload) -> str:
    """Return the name of its VPA: two kinds may share a name, and a name may be as long as names get."""
    name = f"{target.metadata.name}-{target.kind.lower()}"
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}-{sha256(name.encode()).hexdigest()[:8]}"


def made_here(metadata: ObjectMeta) -> bool:
    """Return whether this controller made an object, and may change or delete it."""
    key, value = MADE_BY
    return (metadata.labels or {}).get(key) == value


def parse_mode(text: str) -> str | None:
    """Return the mode that a label stands for, None for none."""
    return _BY_TEXT.get(text.lower())


def _wanted(namespace: ObjectMeta | None, rules: Rules) -> _Wanted:
    """Return what a namespace asks for."""
    if namespace is None or namespace.name in rules.ignored:
        return _Wanted(DISABLED, explicit=False)
    labels = namespace.labels or {}
    if LABEL in labels:
        mode = parse_mode(labels[LABEL])
        if mode is None:
            known = ", ".join((*MODES, DISABLED))
            return _Wanted(DISABLED, problem=f"the label {LABEL}={labels[LABEL]} is none of {known}")
    else:
        mode = rules.mode if rules.selector is not None and rules.selector.matches(labels) else DISABLED
    text = (namespace.annotations or {}).get(RESOURCE_POLICY, "")
    if not text or mode == DISABLED:
        return _Wanted(mode, explicit=LABEL in labels)
    try:
        policy = msgspec.json.decode(text, type=dict[str, Any])
        msgspec.convert(policy, PodResourcePolicy)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        return _Wanted(DISABLED, problem=f"the annotation {RESOURCE_POLICY} is not a resourcePolicy: {error}")
    return _Wanted(mode, policy)


def _mode_of(target: TargetWorkload, default: str) -> tuple[str, str]:
    """Return the mode of a workload, and why it gets no VPA if it gets none."""
    text = (target.metadata.labels or {}).get(LABEL)
    if controller_of(target.metadata) is not None:
        return default, "its owner is sized"
    if text is None:
        return default, ""
    mode = parse_mode(text)
    if mode is None:
        return default, f"its label {LABEL}={text} is none of {', '.join((*MODES, DISABLED))}"
    return mode, f"excluded by its label {LABEL}={text}" if mode == DISABLED else ""


def _differs(vpa: VerticalPodAutoscaler, mode: str, policy: Raw | None) -> bool:
    held = vpa.spec.update_policy.update_mode if vpa.spec.update_policy is not None else None
    wanted = msgspec.convert(policy, PodResourcePolicy) if policy is not None else None
    return held != mode or vpa.spec.resource_policy != wanted


def _change(mode: str, policy: Raw | None) -> Raw:
    """Return what to merge into a VPA; a member that the policy lacks is removed, not left."""
    whole = None if policy is None else {"containerPolicies": None, "podPolicy": None, **policy}
    return {"spec": {"updatePolicy": {"updateMode": mode}, "resourcePolicy": whole}}


def _identity(vpa: VerticalPodAutoscaler) -> tuple[str, str, str]:
    target = vpa.spec.target_ref
    return (group_of(target.api_version), target.kind, target.name) if target is not None else ("", "", "")


def _reference(target: TargetWorkload) -> CrossVersionObjectReference:
    return CrossVersionObjectReference(api_version=target.api_version, kind=target.kind, name=target.metadata.name)
