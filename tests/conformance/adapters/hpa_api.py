"""hpa/api: an object through defaults, field dropping, validation and both versions."""

import copy
import json
from collections.abc import Iterable
from typing import Any

from conformance.compare import differences
from conformance.registry import suite
from kubetide.api.objects import hpa_annotations, hpa_validation, hpa_versions


@suite("hpa/api")
def api(case: dict[str, Any]) -> Iterable[str]:
    gates = case["featureGates"]
    stored = hpa_versions.to_v2(copy.deepcopy(case["input"]))
    if case["op"] == "create":
        hpa_versions.drop_disabled(stored, configurable_tolerance=gates["HPAConfigurableTolerance"])
        stored["status"] = hpa_versions.cleared_status()
        problems = hpa_validation.validate(stored, scale_to_zero=gates["HPAScaleToZero"])
        expected = sorted((error["field"], error["type"]) for error in case["validationErrors"])
        yield from differences(expected, sorted((p.field, p.type) for p in problems), path="validationErrors")
    for version, shown in (("v2", stored), ("v1", hpa_versions.v1_from_v2(copy.deepcopy(stored)))):
        yield from differences(_parsed(case[version]), _parsed(shown), quantities=True, drop_empty=True, path=version)


def _parsed(obj: dict[str, Any]) -> dict[str, Any]:
    """Replace the JSON text of annotations by what it says."""
    metadata = dict(obj.get("metadata") or {})
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {
        key: json.loads(text) if key in hpa_annotations.ANNOTATIONS else text for key, text in annotations.items()
    }
    return {**obj, "metadata": metadata}
