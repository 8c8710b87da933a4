"""ResourceQuota: what the pods of a namespace may ask for in all.

Counted are pods that have not ended, by what must be reserved for them (`requests.cpu`, or `cpu`) and by their limits
(`limits.memory`). A pod that would pass a quota is refused, on the way in and when it is resized. Quotas with scopes
hold for some pods only; they are stored and not enforced here.
"""

from collections.abc import Iterable

from kubetide.api.objects.core import Pod
from kubetide.api.objects.resources import Amounts, add, parse_list, pod_requests, subtract
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import ZERO, Quantity
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.status import Raw, forbidden
from kubetide.embedded.apiserver.rest.strategy import PODS
from kubetide.embedded.apiserver.storage.objects import ObjectStore, ResourceKey
from kubetide.errors import InvalidInput

QUOTAS = ResourceKey("", "resourcequotas")
_ENDED = ("Succeeded", "Failed")


def hard_limits(quota: Raw) -> Amounts:
    """Return what a quota allows; empty for one with scopes, or with amounts that nobody can read."""
    spec = quota.get("spec") or {}
    if spec.get("scopes") or spec.get("scopeSelector"):
        return {}
    try:
        return parse_list(spec.get("hard"))
    except InvalidInput:
        return {}


def counted(pods: Iterable[Raw]) -> Amounts:
    """Return what pods count for, by the names that quotas use."""
    total: Amounts = {}
    for raw in pods:
        if (raw.get("status") or {}).get("phase") not in _ENDED:
            total = add(total, _charge(raw))
    return total


def check_pod(store: ObjectStore, resource: ApiResource, pod: Raw, old: Raw | None = None) -> None:
    """Refuse a pod, or a larger one in place of `old`, that a quota of its namespace has no room for."""
    if resource.storage != PODS:
        return
    namespace = pod["metadata"]["namespace"]
    limits = [(entry.key.name, hard_limits(entry.obj)) for entry in store.collection(QUOTAS).entries(namespace)]
    if not any(hard for _, hard in limits):
        return
    new = _charge(pod)
    more = subtract(new, _charge(old)) if old is not None else new
    used = counted(entry.obj for entry in store.collection(PODS).entries(namespace))
    for name, hard in limits:
        missing = sorted(key for key in hard if key not in new and key.split(".")[-1] in ("cpu", "memory"))
        if missing and old is None:
            raise forbidden("", "pods", pod["metadata"]["name"], f"failed quota: {name}: must specify {missing[0]}")
        over = sorted(
            key for key, most in hard.items() if more.get(key, ZERO) > ZERO and used.get(key, ZERO) + more[key] > most
        )
        if over:
            parts = [("requested", more), ("used", used), ("limited", hard)]
            text = ", ".join(f"{word}: {_spelt(over, amounts)}" for word, amounts in parts)
            raise forbidden("", "pods", pod["metadata"]["name"], f"exceeded quota: {name}, {text}")


def _spelt(names: list[str], amounts: Amounts) -> str:
    return ",".join(f"{name}={amounts.get(name, ZERO)}" for name in names)


def _charge(raw: Raw) -> Amounts:
    try:
        pod = convert(raw, Pod)
        requests = {name: amount for name, amount in pod_requests(pod).items() if "/" not in name}
        limits = add(
            *(parse_list(one.resources.limits if one.resources else None) for one in pod.spec.containers or ())
        )
    except InvalidInput:
        # Validation refuses it with a better word.
        return {}
    one = Quantity.of(1)
    return {
        "pods": one,
        "count/pods": one,
        **requests,
        **{f"requests.{name}": amount for name, amount in requests.items()},
        **{f"limits.{name}": amount for name, amount in limits.items()},
    }
