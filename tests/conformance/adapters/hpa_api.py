"""hpa/api: an object through defaults, field dropping, validation and both versions."""

import copy
import json
from collections.abc import Iterable
from typing import Any

from conformance.adapters.hpa_releases import compat_of
from conformance.compare import differences
from conformance.exceptions import ZERO_NEXT_TO_AN_AVERAGE
from conformance.registry import SUITE, NamedDifference, suite
from kubetide.api.objects import hpa_annotations, hpa_status_validation, hpa_validation, hpa_versions
from kubetide.embedded.apiserver.rest import strategy


@suite("hpa/api", *(f"hpa-newer/api_v1{minor}" for minor in (34, 35, 36, 37)))
def api(case: dict[str, Any]) -> Iterable[str]:
    compat = compat_of(case[SUITE], case["featureGates"])
    if any(_zero_next_to_an_average(metric) for metric in case["v2"]["spec"].get("metrics") or ()):
        raise NamedDifference(ZERO_NEXT_TO_AN_AVERAGE)
    stored = hpa_versions.to_v2(copy.deepcopy(case["input"]))
    problems: list[hpa_validation.Problem] = []
    if case["op"] == "create":
        hpa_versions.drop_disabled(stored, compat)
        stored["status"] = hpa_versions.cleared_status()
        hpa_versions.count_generation(stored, compat)
        problems = hpa_validation.validate(stored, compat=compat)
    elif "old" in case:
        old = hpa_versions.to_v2(copy.deepcopy(case["old"]))
        if case["op"] == "update":
            strategy.keep_status(stored, old)
            hpa_versions.drop_disabled(stored, compat, old=old)
            hpa_versions.count_generation(stored, compat, old=old)
            problems = hpa_validation.validate(stored, old=old, compat=compat)
        else:
            stored = strategy.only_status(stored, old)
            hpa_versions.drop_disabled(stored, compat, old=old)
            problems = hpa_status_validation.validate_status(stored, compat)
    else:
        hpa_versions.drop_disabled(stored, compat, old=stored)
    if "generation" in case:
        yield from differences(case["generation"], stored["metadata"].get("generation", 0), path="generation")
    expected = sorted((error["field"], error["type"]) for error in case.get("validationErrors", ()))
    yield from differences(expected, sorted((p.field, p.type) for p in problems), path="validationErrors")
    for version, shown in (("v2", stored), ("v1", hpa_versions.v1_from_v2(copy.deepcopy(stored)))):
        yield from differences(_parsed(case[version]), _parsed(shown), quantities=True, drop_empty=True, path=version)


def _zero_next_to_an_average(metric: dict[str, Any]) -> bool:
    target = (metric.get("object") or {}).get("target") or {}
    return target.get("value") == "0" and "averageValue" in target


def _parsed(obj: dict[str, Any]) -> dict[str, Any]:
    """Replace the JSON text of annotations by what it says."""
    metadata = dict(obj.get("metadata") or {})
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {
        key: json.loads(text) if key in hpa_annotations.ANNOTATIONS else text for key, text in annotations.items()
    }
    return {**obj, "metadata": metadata}
