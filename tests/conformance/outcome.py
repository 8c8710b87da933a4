"""Comparison of one outcome by the conventions of the node-qos collection."""

from collections.abc import Iterable
from typing import Any

from conformance.compare import differences


def expect(case: dict[str, Any], actual: dict[str, Any], **options: Any) -> Iterable[str]:
    """Compare what the case names; success may be spelled out as `error: false`."""
    expected = case["expected"]
    if expected.get("error") is False and "error" not in actual:
        actual = {**actual, "error": False}
    return differences(expected, {key: actual[key] for key in expected if key in actual}, **options)
