"""What the webhook accepts, what it warns of, and the default it fills in: VPA 1.7 and 1.8."""

from collections.abc import Iterable
from typing import Any

from conformance.registry import suite
from kubetide.api.values.compat import Compat
from kubetide.vpa.admission.core.validate import Gates, default_patch, validate, warnings
from kubetide.vpa.core.compat import V1_8


@suite("vpa/vpa_validation")
def vpa_validation(case: dict[str, Any]) -> Iterable[str]:
    errors = validate(case["object"], creating=case["operation"] == "CREATE")
    allowed = not errors
    if allowed != case["allowed"]:
        yield f"allowed: {allowed} instead of {case['allowed']} ({'; '.join(e.message for e in errors)})"
    added = allowed and bool(default_patch(case["object"]))
    if added != case["defaultUpdatePolicyAdded"]:
        yield f"defaultUpdatePolicyAdded: {added} instead of {case['defaultUpdatePolicyAdded']}"


@suite("vpa-newer/vpa_validation_master")
def vpa_validation_1_8(case: dict[str, Any]) -> Iterable[str]:
    switched = case["featureGates"]
    gates = Gates(
        in_place=switched["InPlace"],
        per_vpa_config=switched["PerVPAConfig"],
        cpu_startup_boost=switched["CPUStartupBoost"],
        compat=Compat(V1_8),
    )
    old = case.get("oldObject")
    errors = validate(case["object"], creating=case["operation"] == "CREATE", old=old, gates=gates)
    found = {(error.field, error.reason) for error in errors}
    wanted = {(error["field"], error["type"]) for error in case["errors"]}
    if found != wanted or (not errors) != case["allowed"]:
        yield f"errors: {sorted(found)} instead of {sorted(wanted)}"
    added = not errors and bool(default_patch(case["object"]))
    if added != case["defaultUpdatePolicyAdded"]:
        yield f"defaultUpdatePolicyAdded: {added} instead of {case['defaultUpdatePolicyAdded']}"
    fields = sorted(warning.field for warning in warnings(case["object"], old=old, gates=gates))
    if fields != sorted(case["warningFields"]) or len(fields) != case["warningCount"]:
        yield f"warnings: {fields} instead of {case['warningFields']}"
