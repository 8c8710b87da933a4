"""Laws of the webhook: whatever is written into a VPA, it gets an answer."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubetide.vpa.admission.core.validate import default_patch, validate, warnings

LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "Off", "Auto", "*", "100m", "-1", "1u"])
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner), max_leaves=6
)
BOUNDS = st.dictionaries(st.sampled_from(["cpu", "memory", "x"]), JSON, max_size=2) | JSON
POLICY = st.fixed_dictionaries(
    {},
    optional={
        "containerName": JSON,
        "mode": JSON,
        "minAllowed": BOUNDS,
        "maxAllowed": BOUNDS,
        "controlledValues": JSON,
        "oomBumpUpRatio": JSON,
        "memoryAggregationIntervalCount": JSON,
        "startupBoost": st.fixed_dictionaries({}, optional={"cpu": JSON}) | JSON,
    },
)
SPEC = st.fixed_dictionaries(
    {},
    optional={
        "targetRef": JSON,
        "updatePolicy": st.fixed_dictionaries(
            {}, optional={"updateMode": JSON, "minReplicas": JSON, "evictAfterOOMSeconds": JSON}
        )
        | JSON,
        "resourcePolicy": st.fixed_dictionaries({"containerPolicies": st.lists(POLICY | JSON, max_size=2) | JSON})
        | JSON,
        "recommenders": JSON,
        "startupBoost": st.fixed_dictionaries(
            {},
            optional={
                "cpu": st.fixed_dictionaries({}, optional={"type": JSON, "factor": JSON, "quantity": JSON}) | JSON
            },
        )
        | JSON,
    },
)


@given(SPEC | JSON, SPEC | JSON)
def test_every_object_is_judged_and_every_mistake_has_a_field(spec: Any, old: Any) -> None:
    vpa = {"spec": spec}
    for mistake in validate(vpa, creating=True, old={"spec": old}):
        assert mistake.field.startswith("spec")
        assert mistake.message
    default_patch(vpa)
    warnings(vpa)
