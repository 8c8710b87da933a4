"""CPU normalization of a node: the ratio in its annotation, the switch in its label.

A ratio above 1 means that one CPU of this node does more than one of the cluster's slowest; quotas shrink by it.
"""

from collections.abc import Mapping

from kubetide.api.qos.qos import ANNOTATION_CPU_NORMALIZATION, LABEL_CPU_NORMALIZATION_ENABLED
from kubetide.api.values.quantity import parse_float
from kubetide.errors import InvalidInput

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_SAME_RATIO = 0.01


def node_ratio(annotations: Mapping[str, str] | None) -> float:
    """Return the normalization ratio of a node, -1 when not set; raise InvalidInput unless it is above 0."""
    text = (annotations or {}).get(ANNOTATION_CPU_NORMALIZATION)
    if text is None:
        return -1.0
    try:
        ratio = parse_float(text)
    except InvalidInput as error:
        raise InvalidInput(error.message, field=ANNOTATION_CPU_NORMALIZATION) from error
    if not ratio > 0:
        raise InvalidInput(f"{text!r} is not a positive number", field=ANNOTATION_CPU_NORMALIZATION)
    return ratio


def ratio_text(ratio: float) -> str:
    """Return the text of a ratio: two decimals."""
    return f"{ratio:.2f}"


def ratios_differ(old: float, new: float) -> bool:
    """Return whether two ratios differ by at least a hundredth."""
    return abs(old - new) >= _SAME_RATIO


def node_switch(labels: Mapping[str, str] | None) -> bool | None:
    """Return the switch on the node's label; None when absent; raise InvalidInput for what is no boolean."""
    text = (labels or {}).get(LABEL_CPU_NORMALIZATION_ENABLED)
    if text is None:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise InvalidInput(f"{text!r} is not a boolean", field=LABEL_CPU_NORMALIZATION_ENABLED)
