"""Recommendations within policies and LimitRanges, and the pod patch that comes of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from conformance.registry import Skip, suite
from kubetide.api.objects.core import LimitRangeItem, Pod
from kubetide.api.objects.vpa import ContainerRecommendation, PodResourcePolicy
from kubetide.api.values.codec import convert
from kubetide.api.values.patch import JsonPatch
from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.vpa.admission.core.mutate import pod_patch
from kubetide.vpa.core.capping import Adjusted, NewResources, adjust, cap_to_policy, container_resources
from kubetide.vpa.core.limits import LimitItem, NamespaceLimits, effective_item
from kubetide.vpa.core.policy import ContainerAmounts, Recommended, amounts, recommended

Case = dict[str, Any]


class Given:
    """One case as values."""

    def __init__(self, case: Case) -> None:
        self.containers = [
            ContainerAmounts(name=c["name"], requests=amounts(c.get("requests")), limits=amounts(c.get("limits")))
            for c in case["containers"]
        ]
        policy = case.get("resourcePolicy")
        self.policy = None if policy is None else convert(policy, PodResourcePolicy)
        entries = case.get("recommendation")
        self.recommendation = (
            None if entries is None else [recommended(convert(entry, ContainerRecommendation)) for entry in entries]
        )
        items = [convert(item, LimitRangeItem) for listed in case.get("limitRanges") or () for item in listed]
        self.limits = NamespaceLimits(container=effective_item(items, "Container"), pod=effective_item(items, "Pod"))
        self.mode = case.get("updateMode") or "Recreate"

    def adjusted(self) -> Adjusted | None:
        return adjust(self.recommendation, self.policy, self.containers, self.limits)

    def resources(self) -> tuple[NewResources, ...]:
        return container_resources(
            self.recommendation, self.adjusted(), self.policy, self.containers, self.limits, mode=self.mode
        )


def lists(got: Mapping[str, Quantity] | None, want: Case | None, where: str) -> Iterator[str]:
    wanted = {name: parse_quantity(text) for name, text in (want or {}).items()}
    if dict(got or {}) != wanted:
        shown = {name: str(amount) for name, amount in (got or {}).items()}
        yield f"{where}: got {shown}, expected {want}"


def recommended_lists(got: Sequence[Recommended], want: list[Case] | None, where: str) -> Iterator[str]:
    names, wanted = [one.container for one in got], [one["containerName"] for one in want or ()]
    if names != wanted:
        yield f"{where}: containers {names}, expected {wanted}"
        return
    for one, expected in zip(got, want or (), strict=True):
        at = f"{where} {one.container}"
        yield from lists(one.target, expected.get("target"), f"{at} target")
        yield from lists(one.lower, expected.get("lowerBound"), f"{at} lower")
        yield from lists(one.upper, expected.get("upperBound"), f"{at} upper")
        yield from lists(one.uncapped, expected.get("uncappedTarget"), f"{at} uncapped")


def limit_item(got: LimitItem | None, want: Case | None, where: str) -> Iterator[str]:
    if (got is None) != (want is None):
        yield f"{where}: got {got}, expected {want}"
    elif got is not None and want is not None:
        yield from lists(got.minimum, want.get("min"), f"{where} min")
        yield from lists(got.maximum, want.get("max"), f"{where} max")
        yield from lists(got.default, want.get("default"), f"{where} default")


def note_sets(got: Mapping[str, Sequence[str]], want: Mapping[str, Sequence[str]] | None, where: str) -> Iterator[str]:
    have = {name: sorted(notes) for name, notes in got.items() if notes}
    wanted = {name: sorted(notes) for name, notes in (want or {}).items() if notes}
    if have != wanted:
        yield f"{where}: got {have}, expected {wanted}"


def patched(case: Case, resources: Sequence[NewResources], want: Case) -> Iterator[str]:
    """Compare the pod patch: its paths, the pod that comes of it, and the two annotations."""
    pod: Case = {
        "metadata": {},
        "spec": {"containers": [{"name": c["name"], "resources": _without_missing(c)} for c in case["containers"]]},
    }
    mode = case.get("updateMode") or ""
    patch = pod_patch(convert(pod, Pod), resources, mode=mode, vpa_name=case["vpaName"])
    for one, expected in zip(
        JsonPatch(patch.operations).apply(pod)["spec"]["containers"], want["patchedContainers"], strict=True
    ):
        got = one.get("resources") or {}
        yield from lists(amounts(got.get("requests")), expected.get("requests"), f"patched {one['name']} requests")
        yield from lists(amounts(got.get("limits")), expected.get("limits"), f"patched {one['name']} limits")
    paths = sorted(operation["path"] for operation in patch.operations)
    if paths != want["patchPaths"]:
        yield f"patch paths: got {paths}, expected {want['patchPaths']}"
    yield from note_sets(patch.updates, want.get("vpaUpdates"), "vpaUpdates")
    if patch.observed != want["vpaObservedContainers"]:
        yield f"vpaObservedContainers: got {patch.observed!r}, expected {want['vpaObservedContainers']!r}"


def _without_missing(container: Case) -> Case:
    return {part: container[part] for part in ("requests", "limits") if container.get(part) is not None}


@suite("vpa/capping")
def capping(case: Case) -> Iterable[str]:
    if "invalid_pod" in (case.get("tags") or ()):
        raise Skip("invalid_pod")
    given = Given(case)
    want: Case = case["expectedV171"] if "expectedV171" in case else case["expected"]
    capped = cap_to_policy(given.recommendation or (), given.policy)
    yield from recommended_lists(capped, want["recommenderCapped"], "recommender")
    yield from limit_item(given.limits.container, want["containerLimitRange"], "container LimitRange")
    yield from limit_item(given.limits.pod, want["podLimitRange"], "pod LimitRange")
    adjusted = given.adjusted()
    if (adjusted is None) != bool(want.get("processedIsNull")):
        yield f"processed is {adjusted}"
    processed = adjusted.recommendations if adjusted is not None else ()
    yield from recommended_lists(processed, want["processed"], "processed")
    notes = adjusted.notes if adjusted is not None else {}
    yield from note_sets(notes, want.get("cappingAnnotations"), "capping annotations")
    resources = given.resources()
    for one, expected in zip(resources, want["containerResources"], strict=True):
        yield from lists(one.requests, expected.get("requests"), f"{one.name} requests")
        yield from lists(one.limits, expected.get("limits"), f"{one.name} limits")
    yield from note_sets({one.name: one.notes for one in resources}, want.get("containerAnnotations"), "annotations")
    yield from patched(case, resources, want)


@suite("vpa/capping_upstream_failures")
def capping_upstream_failures(case: Case) -> Iterable[str]:
    given = Given(case)
    found: list[Mapping[str, Quantity] | None] = []
    for one in cap_to_policy(given.recommendation or (), given.policy):
        found += [one.target, one.lower, one.upper]
    adjusted = given.adjusted()
    for one in adjusted.recommendations if adjusted is not None else ():
        found += [one.target, one.lower, one.upper]
    for new in given.resources():
        found += [new.requests, new.limits]
    for listed in found:
        for name, amount in (listed or {}).items():
            if amount.sign < 0:
                yield f"negative {name}: {amount}"
