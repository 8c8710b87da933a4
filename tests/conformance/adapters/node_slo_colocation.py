"""Pods at admission: colocation profiles, validation, GPU shorthands; nodes at status updates (set node)."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from conformance.compare import differences
from conformance.registry import suite
from kubetide.api.objects.core import Pod
from kubetide.api.objects.slo import ClusterColocationProfile, PriorityClass
from kubetide.api.values.codec import convert, decode, encode
from kubetide.errors import InvalidInput
from kubetide.slo.colocation.core import gpu, validate
from kubetide.slo.colocation.core.mutate import Surroundings, mutate
from kubetide.slo.colocation.core.required_labels import RequiredLabels
from kubetide.slo.core.amplify import amplified

Case = dict[str, Any]


def parsed(value: Any) -> Any:
    """Read the JSON texts of annotations, so that they are compared by meaning."""
    if not isinstance(value, Mapping):
        return value

    def parse(text: Any) -> Any:
        try:
            return msgspec.json.decode(text) if isinstance(text, str) and text.startswith("{") else text
        except msgspec.DecodeError:
            return text

    return {name: parse(text) for name, text in value.items()}


def settled(pod: Mapping[str, Any]) -> dict[str, Any]:
    meta = pod.get("metadata") or {}
    kept = {name: value for name, value in pod.items() if name != "status"}
    return {**kept, "metadata": {**meta, "annotations": parsed(meta.get("annotations"))}}


class Draws:
    """The draws of a case, in order of use, repeated when used up."""

    def __init__(self, draws: list[int]) -> None:
        self._draws = draws
        self.used = 0

    def randrange(self, stop: int, /) -> int:
        assert stop == 100
        self.used += 1
        return self._draws[(self.used - 1) % len(self._draws)]


@suite("node/colocation_profile")
def colocation_profile(case: Case) -> Iterable[str]:
    given, expected = case["input"], case["expected"]
    namespace = given["pod"]["metadata"].get("namespace") or given["namespace"]
    labels = {each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in given["namespaces"]}
    classes = [convert(each, PriorityClass) for each in given["priorityClasses"]]
    around = Surroundings(
        profiles=[decode(encode(each), ClusterColocationProfile) for each in given["profiles"]],
        namespace_labels=labels.get(namespace),
        priority_classes={each.metadata.name: each for each in classes},
        skip_resources=given["skipResources"],
    )
    draws = Draws(given["random"])
    pod = given["pod"]
    try:
        after = mutate(pod, around, draws).pod if given["operation"] == "CREATE" else pod
    except InvalidInput:
        return () if expected["error"] else ("an error was not expected",)
    if expected["error"]:
        return ("expected an error",)
    used = {"randomsUsed": draws.used} if "quirk" not in case else {}
    actual = {"error": False, "changed": after != pod, "pod": settled(after), **used}
    wanted = {name: value for name, value in expected.items() if name in actual} | {"pod": settled(expected["pod"])}
    return differences(wanted, actual, drop_empty=True, quantities=True)


@suite("node/pod_validate")
def pod_validate(case: Case) -> Iterable[str]:
    given = case["input"]
    old = None if given["old"] is None else convert(given["old"], Pod)
    found = validate.violations(convert(given["new"], Pod), old, check_sub_priority=not given["skipPriority"])
    actual = {"allowed": not found, "reasons": sorted(each.rule for each in found)}
    return differences({**case["expected"], "reasons": sorted(case["expected"]["reasons"] or ())}, actual)


@suite("node/pod_enhanced_validate")
def pod_enhanced_validate(case: Case) -> Iterable[str]:
    rules, error = RequiredLabels().updated(case["input"]["configMap"])
    meta = case["input"]["pod"]["metadata"]
    problems = rules.problems(meta["namespace"], meta.get("labels") or {})
    actual = {"allowed": not problems, "configError": error is not None}
    return differences(case["expected"], {name: value for name, value in actual.items() if name in case["expected"]})


@suite("node/device_resource_mutate")
def device_resource_mutate(case: Case) -> Iterable[str]:
    actual = {"error": False, "pod": settled(gpu.expand(case["input"]["pod"]))}
    expected = {**case["expected"], "pod": settled(case["expected"]["pod"])}
    return differences(expected, actual, drop_empty=True, quantities=True)


@suite("node/node_amplify_admission")
def node_amplify_admission(case: Case) -> Iterable[str]:
    try:
        node = amplified(case["input"]["old"], case["input"]["new"])
    except InvalidInput:
        return () if case["expected"]["error"] else ("an error was not expected",)
    status, annotations = node["status"], node["metadata"].get("annotations")
    expected = {**case["expected"], "annotations": parsed(case["expected"].get("annotations"))}
    actual = {
        "error": False,
        "annotations": parsed(annotations),
        "allocatable": status["allocatable"],
        "capacity": status["capacity"],
    }
    return differences(expected, actual, drop_empty=True, quantities=True)
