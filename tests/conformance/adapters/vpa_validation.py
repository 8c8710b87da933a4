"""`vpa/vpa_validation`: what the webhook accepts, and the default it fills in."""

from collections.abc import Iterable
from typing import Any

from conformance.registry import suite
from kubetide.vpa.admission.core.validate import default_patch, validate


@suite("vpa/vpa_validation")
def vpa_validation(case: dict[str, Any]) -> Iterable[str]:
    errors = validate(case["object"], creating=case["operation"] == "CREATE")
    allowed = not errors
    if allowed != case["allowed"]:
        yield f"allowed: {allowed} instead of {case['allowed']} ({'; '.join(e.message for e in errors)})"
    added = allowed and bool(default_patch(case["object"]))
    if added != case["defaultUpdatePolicyAdded"]:
        yield f"defaultUpdatePolicyAdded: {added} instead of {case['defaultUpdatePolicyAdded']}"
