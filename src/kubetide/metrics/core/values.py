"""How much an answer of somebody else may hold, before an autoscaler or its status has to hold it too."""

from collections.abc import Mapping
from typing import Any

MOST_VALUES = 2000
"""Values of one metric in one answer."""
MOST_LABELS, LONGEST_LABEL = 30, 1024


def bounded_labels(labels: Any) -> dict[str, str]:
    """Return the labels of a value without its name: the first in order, those that are too long left out."""
    if not isinstance(labels, Mapping):
        return {}
    kept = [
        (key, value)
        for key, value in sorted(labels.items())
        if key != "__name__" and isinstance(value, str) and max(len(key), len(value)) <= LONGEST_LABEL
    ]
    return dict(kept[:MOST_LABELS])
