"""JSON pointers in the patches of pods."""

from collections.abc import Iterable
from typing import Any

from conformance.registry import suite
from kubetide.vpa.admission.core.mutate import annotation_path, resource_path


@suite("vpa-newer/json_patch_path")
def json_patch_path(case: dict[str, Any]) -> Iterable[str]:
    found = resource_path(f"/spec/containers/{case['index']}", case["field"], case["name"])
    if found != case["requestPath"]:
        yield f"requestPath: {found} instead of {case['requestPath']}"
    found = annotation_path(case["name"])
    if found != case["annotationPath"]:
        yield f"annotationPath: {found} instead of {case['annotationPath']}"
