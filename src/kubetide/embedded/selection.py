"""The pod selector of a workload, as text."""

from typing import Any

from kubetide.api.codec import convert
from kubetide.api.selectors import LabelSelector, selector_from
from kubetide.embedded.status import Raw
from kubetide.errors import InvalidInput


def selector_of(obj: Raw) -> str:
    """Return the selector in canonical form; empty if there is none or it cannot be read."""
    raw = (obj.get("spec") or {}).get("selector")
    if not isinstance(raw, dict):
        return ""
    if obj.get("kind") == "ReplicationController":
        return ",".join(f"{key}={value}" for key, value in sorted(raw.items()))
    try:
        return str(selector_from(label_selector(raw)))
    except InvalidInput:
        return ""


def label_selector(raw: Any) -> LabelSelector:
    """Return a raw label selector as a value."""
    return convert(raw, LabelSelector)
