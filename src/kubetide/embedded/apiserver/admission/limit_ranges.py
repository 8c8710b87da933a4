"""LimitRange: default requests and limits of containers, and the bounds they must keep."""

from typing import Any

from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.status import Raw, forbidden
from kubetide.embedded.apiserver.rest.strategy import PODS
from kubetide.embedded.apiserver.storage.objects import ObjectStore, ResourceKey
from kubetide.errors import QuantityError

LIMIT_RANGES = ResourceKey("", "limitranges")


def _items(store: ObjectStore, namespace: str) -> list[Raw]:
    found: list[Raw] = []
    for entry in store.collection(LIMIT_RANGES).entries(namespace):
        limits = (entry.obj.get("spec") or {}).get("limits")
        found.extend(item for item in limits or () if isinstance(item, dict))
    return found


def default_pod(store: ObjectStore, resource: ApiResource, pod: Raw) -> None:
    """Fill in default limits and requests of a new pod's containers, and say so in an annotation."""
    if resource.storage != PODS:
        return
    items = [item for item in _items(store, pod["metadata"]["namespace"]) if item.get("type") == "Container"]
    if not items:
        return
    notes: list[str] = []
    spec = pod.get("spec")
    for field, word in (("containers", "container"), ("initContainers", "init container")):
        containers = spec.get(field) if isinstance(spec, dict) else None
        for container in containers if isinstance(containers, list) else ():
            if isinstance(container, dict):
                notes.extend(_default_container(container, word, items))
    if notes:
        metadata = pod["metadata"]
        annotations = metadata["annotations"] = dict(metadata.get("annotations") or {})
        annotations["kubernetes.io/limit-ranger"] = "LimitRanger plugin set: " + "; ".join(notes)


def _default_container(container: Raw, word: str, items: list[Raw]) -> list[str]:
    resources = container.setdefault("resources", {})
    if not isinstance(resources, dict):
        return []
    notes: list[str] = []
    for kind, source in (("request", "defaultRequest"), ("limit", "default")):
        present = dict(resources.get(f"{kind}s") or {})
        filled: list[str] = []
        for item in items:
            for name, amount in (item.get(source) or {}).items():
                if name not in present:
                    present[name] = amount
                    filled.append(name)
        if filled:
            resources[f"{kind}s"] = present
            notes.append(f"{', '.join(sorted(filled))} {kind} for {word} {container.get('name', '')}")
    return notes


def check_pod(store: ObjectStore, resource: ApiResource, pod: Raw) -> None:
    """Refuse a new pod whose containers break a bound."""
    if resource.storage != PODS:
        return
    problems: list[str] = []
    for item in _items(store, pod["metadata"]["namespace"]):
        containers = (pod.get("spec") or {}).get("containers") or ()
        if item.get("type") == "Container":
            for container in containers:
                problems.extend(_problems(item, container.get("resources") or {}, "Container"))
        elif item.get("type") == "Pod":
            problems.extend(_problems(item, _sum(containers), "Pod"))
    if problems:
        text = problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]"
        raise forbidden("", "pods", pod["metadata"]["name"], text)


def _sum(containers: Any) -> Raw:
    total: Raw = {"requests": {}, "limits": {}}
    for container in containers:
        for kind in ("requests", "limits"):
            for name, amount in ((container.get("resources") or {}).get(kind) or {}).items():
                value = _amount(amount)
                if value is not None:
                    before = total[kind].get(name)
                    total[kind][name] = value if before is None else before + value
    return total


def _amount(amount: Any) -> Quantity | None:
    if isinstance(amount, Quantity):
        return amount
    try:
        return parse_quantity(amount)
    except (QuantityError, TypeError):
        return None


def _problems(item: Raw, resources: Raw, scope: str) -> list[str]:
    problems: list[str] = []
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, bound in (item.get("min") or {}).items():
        least, asked = _amount(bound), _amount(requests.get(name))
        if least is not None and asked is not None and asked < least:
            problems.append(f"minimum {name} usage per {scope} is {bound}, but request is {asked}")
    for name, bound in (item.get("max") or {}).items():
        most, limit = _amount(bound), _amount(limits.get(name))
        if most is not None and limit is not None and limit > most:
            problems.append(f"maximum {name} usage per {scope} is {bound}, but limit is {limit}")
        elif most is not None and name not in limits:
            problems.append(f"maximum {name} usage per {scope} is {bound}. No limit is specified")
    return problems
