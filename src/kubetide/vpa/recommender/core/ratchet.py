"""Recommendations that only rise: `kubetide.io/scale-up-only: memory` (or `cpu`, or both, separated by commas).

Upstream's eviction requirements keep running pods from shrinking, but the next pod that is made for another reason
gets the smaller size all the same. Here the recommendation itself does not fall below what is published already, so
whoever reads it agrees. To let it fall again, take the annotation away.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kubetide.stats.buckets import Ints
from kubetide.vpa.core.policy import CPU, RESOURCES
from kubetide.vpa.recommender.core.estimator import BOUNDS

if TYPE_CHECKING:
    from kubetide.vpa.recommender.core.recommend import Row

SCALE_UP_ONLY: Final = "kubetide.io/scale-up-only"


def scale_up_only(annotations: Mapping[str, str]) -> tuple[frozenset[str], str]:
    """Return the resources whose recommendation only rises, and what is wrong with the annotation."""
    text = annotations.get(SCALE_UP_ONLY)
    if text is None:
        return frozenset(), ""
    named = frozenset(part.strip() for part in text.split(","))
    if not named <= set(RESOURCES):
        # Whoever asks for it, however badly spelt, does not want anything to shrink.
        return frozenset(RESOURCES), f"annotation {SCALE_UP_ONLY}: {text!r} is not cpu, memory or both"
    return named, ""


def hold(rows: Sequence["Row"], amounts: Ints) -> None:
    """Raise targets to what is published already, where they may only rise."""
    for i, row in enumerate(rows):
        vpa = row.vpa
        if not vpa.only_up or vpa.recommendation is None:
            continue
        for one in vpa.recommendation:
            if one.container != row.container:
                continue
            before = one.uncapped or one.target
            for number, resource in enumerate(RESOURCES):
                if resource in vpa.only_up and resource in before:
                    amount = before[resource].milli if resource == CPU else before[resource].value
                    first = number * len(BOUNDS)
                    amounts[i, first] = max(int(amounts[i, first]), amount)
                    amounts[i, first + 2] = max(int(amounts[i, first + 2]), int(amounts[i, first]))
