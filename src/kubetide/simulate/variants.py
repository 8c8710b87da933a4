"""What a simulation compares: the same cluster and load, with other controllers, objects or sizes.

    policies:
    - name: as it is
    - name: nobody
      controllers: []                       # none works; default: all
    - name: earlier
      objects: [{kind: HorizontalPodAutoscaler, …}]
      remove: [VerticalPodAutoscaler/shop/search]
      requests: {shop/cart: {cpu: 200m}}

An autoscaler replaces the one that has its name or its target: two for one target would only wait for each other.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kubetide.embedded.sim.load.scenario import Amount, Raw, Scenario
from kubetide.errors import InvalidInput

_TARGETS = {"HorizontalPodAutoscaler": "scaleTargetRef", "VerticalPodAutoscaler": "targetRef"}


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the policies that are compared."""

    name: str
    controllers: list[str] | None = None
    """Which controllers work; None: all."""
    objects: list[Raw] = []
    remove: list[str] = []
    """KIND/NAMESPACE/NAME of objects of the scenario."""
    requests: dict[str, dict[str, Amount]] = {}
    """By NAMESPACE/NAME of a workload, merged into what it requests."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    policies: list[Variant]


AS_IS = Variant(name="current")
NOBODY = Variant(name="none", controllers=[])


def read_variants(content: Any, subject: str, known: Sequence[str]) -> list[Variant]:
    """Return the policies of a file; `known` are the controllers there are."""
    try:
        variants = msgspec.convert(content, _File).policies
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        raise InvalidInput(text, subject=subject, field=where.rstrip("`").lstrip(".")) from error
    if not variants:
        raise InvalidInput("is empty", subject=subject, field="policies")
    for place, variant in enumerate(variants):
        for name in variant.controllers or ():
            if name not in known:
                raise InvalidInput(
                    f"{name!r} is none of {', '.join(known)}", subject=subject, field=f"policies[{place}].controllers"
                )
        for obj in variant.objects:
            check_object(obj, subject, f"policies[{place}].objects")
    distinct(variants, subject)
    return variants


def distinct(variants: Sequence[Variant], subject: str) -> None:
    """Refuse two policies of one name."""
    names = [variant.name for variant in variants]
    for name in names:
        if not name or names.count(name) > 1:
            raise InvalidInput(f"{name!r} must be there once", subject=subject, field="policies.name")


def check_object(obj: Any, subject: str, field: str) -> None:
    """Refuse what is no object that can be applied."""
    whole = isinstance(obj, dict) and isinstance(obj.get("metadata"), dict)
    if not whole or not obj.get("kind") or not obj.get("apiVersion") or not obj["metadata"].get("name"):
        raise InvalidInput("an object needs apiVersion, kind and metadata.name", subject=subject, field=field)


def applied(scenario: Scenario, variant: Variant) -> Scenario:
    """Return the scenario as it is under a policy."""
    objects = list(scenario.objects)
    for text in variant.remove:
        kept = [obj for obj in objects if _name(obj) != text]
        if len(kept) == len(objects):
            raise InvalidInput(f"the scenario has no {text}", subject=variant.name, field="remove")
        objects = kept
    workloads = {f"{each.kind}/{each.namespace}/{each.name}" for each in scenario.workloads}
    for new in variant.objects:
        if _name(new) in workloads:
            raise InvalidInput(
                f"{_name(new)} is a workload of the scenario; its sizes are changed with requests",
                subject=variant.name,
                field="objects",
            )
        objects = [obj for obj in objects if not _replaces(new, obj)] + [new]
    return msgspec.structs.replace(scenario, objects=objects, workloads=_sized(scenario, variant))


def _sized(scenario: Scenario, variant: Variant) -> list[Any]:
    named = {f"{each.namespace}/{each.name}" for each in scenario.workloads}
    for key in variant.requests:
        if key not in named:
            raise InvalidInput(f"the scenario has no workload {key}", subject=variant.name, field="requests")
    return [
        msgspec.structs.replace(each, requests={**each.requests, **variant.requests[f"{each.namespace}/{each.name}"]})
        if f"{each.namespace}/{each.name}" in variant.requests
        else each
        for each in scenario.workloads
    ]


def _name(obj: Mapping[str, Any]) -> str:
    return f"{obj.get('kind')}/{obj['metadata'].get('namespace', 'default')}/{obj['metadata'].get('name')}"


def _target(obj: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return what an autoscaler is for."""
    field = _TARGETS.get(str(obj.get("kind")))
    target = (obj.get("spec") or {}).get(field) if field else None
    if not isinstance(target, dict):
        return None
    namespace = str(obj["metadata"].get("namespace", "default"))
    return str(obj["kind"]), namespace, str(target.get("kind")), str(target.get("name"))


def _replaces(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    return _name(new) == _name(old) or (_target(new) is not None and _target(new) == _target(old))
