"""What a search for better numbers moves, what it minimises, and how what it finds is put in force.

    footprint    what is reserved: memory to the clairvoyant, CPU to the work done, their mean where both count;
                 replica-hours to the least possible
    wrong        overruns, work above the request, their mean where both count; late and lost work
    cost         footprint + 20 × wrong, as everywhere in replays: decides among candidates, on days not searched on

A candidate is on the front when no other is at least as good in both and better in one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.replay.core.figures import PRICE, figures
from kubetide.replay.core.services import LoadFigures
from kubetide.replay.core.spec import PolicySpec, read_policy
from kubetide.stats.buckets import Floats

Objective = Literal["memory", "cpu", "both", "replicas"]
Estimator = Literal["vpa", "krr", "peak"]
Numbers = Mapping[str, float]
Values = tuple[float, float]
"""Footprint and what goes wrong."""
Range = tuple[float, float, float]
"""Lowest, highest, step."""
HPA: Final = "hpa"


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The numbers that are searched, and those that hold where nobody searches."""

    estimator: str
    """Of sizes, or `hpa` for replica counts."""
    ranges: Mapping[str, Range]
    defaults: Numbers


_HALF_LIFE: Final[Range] = (6, 336, 6)
_SHARE: Final[Range] = (0.5, 1.0, 0.005)
_RANGES: Final[Mapping[str, Mapping[str, tuple[Range, float, tuple[Objective, ...]]]]] = {
    "vpa": {
        "target_memory": (_SHARE, 0.9, ("memory", "both")),
        "memory_half_life": (_HALF_LIFE, 24, ("memory", "both")),
        "target_cpu": (_SHARE, 0.9, ("cpu", "both")),
        "cpu_half_life": (_HALF_LIFE, 24, ("cpu", "both")),
        "margin": ((0.0, 0.6, 0.01), 0.15, ("memory", "cpu", "both")),
    },
    "krr": {
        "days": ((1, 28, 1), 14, ("memory", "cpu", "both")),
        "percentile": (_SHARE, 0.95, ("cpu", "both")),
        "factor": ((1.0, 2.0, 0.01), 1.15, ("memory", "both")),
    },
    "peak": {
        "days": ((1, 28, 1), 7, ("memory", "cpu", "both")),
        "factor": ((1.0, 2.0, 0.01), 1.2, ("memory", "cpu", "both")),
    },
    HPA: {"target": ((20, 95, 1), 60, ("replicas",)), "window": ((0, 900, 15), 300, ("replicas",))},
}
"""Range, default, and for which objectives a number matters. Half-lives are in hours, windows in seconds."""
_FIGURES: Final[Mapping[Objective, tuple[tuple[str, str], ...]]] = {
    "memory": (("memory_footprint", "overruns"),),
    "cpu": (("cpu_footprint", "work_above"),),
    "both": (("memory_footprint", "overruns"), ("cpu_footprint", "work_above")),
}
_ANNOTATIONS: Final = {
    "target_memory": "target-memory-percentile",
    "target_cpu": "target-cpu-percentile",
    "memory_half_life": "memory-half-life",
    "cpu_half_life": "cpu-half-life",
    "margin": "margin-fraction",
}
_FLAGS: Final = {
    "target_memory": "target-memory-percentile",
    "target_cpu": "target-cpu-percentile",
    "memory_half_life": "memory-histogram-decay-half-life",
    "cpu_half_life": "cpu-histogram-decay-half-life",
    "margin": "recommendation-margin-fraction",
}


def space_of(estimator: Estimator, objective: Objective) -> Space:
    """Return what is searched for an objective; replica counts are those of an HPA."""
    name = HPA if objective == "replicas" else estimator
    chosen = {key: each for key, each in _RANGES[name].items() if objective in each[2]}
    if not chosen:
        raise InvalidInput(f"{estimator} has no numbers for {objective}", field="--objective")
    return Space(
        estimator=name,
        ranges={key: each[0] for key, each in chosen.items()},
        defaults={key: float(each[1]) for key, each in chosen.items()},
    )


def policy_of(estimator: str, numbers: Numbers, name: str) -> PolicySpec:
    """Return the policy with these numbers."""
    if estimator == HPA:
        return read_policy({"replicas": {"target": round(numbers["target"]), "behavior": _behavior(numbers)}}, name)
    return read_policy({"sizes": {"estimator": estimator, "numbers": written(numbers)}}, name)


def hpa_patch(numbers: Numbers) -> dict[str, Any]:
    """Return the patch that gives an HPA on CPU utilization these numbers."""
    target = {"type": "Utilization", "averageUtilization": round(numbers["target"])}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    return {"spec": {"metrics": [metric], "behavior": _behavior(numbers)}}


def _behavior(numbers: Numbers) -> dict[str, Any]:
    return {"scaleDown": {"stabilizationWindowSeconds": round(numbers["window"])}}


def written(numbers: Numbers) -> dict[str, float | str]:
    """Return numbers as a policy file has them: half-lives are durations, the rest is free of rounding dust."""
    return {
        name: f"{round(value)}h" if name.endswith("half_life") else round(value, 3) for name, value in numbers.items()
    }


def annotations(numbers: Numbers) -> list[str]:
    """Return the annotations that give a VPA these numbers, under `--per-vpa-tuning`."""
    return [f"kubetide.io/{_ANNOTATIONS[name]}={value}" for name, value in written(numbers).items()]


def flags(numbers: Numbers) -> list[str]:
    """Return the flags that give a recommender these numbers."""
    return [f"--{_FLAGS[name]}={value}" for name, value in written(numbers).items()]


def values_of(sums: Floats, objective: Objective) -> Values:
    """Return what some workloads came to; NaN where there is nothing to count."""
    found = figures(sums)
    pairs = [(found[footprint], found[wrong]) for footprint, wrong in _FIGURES[objective]]
    return sum(each for each, _ in pairs) / len(pairs), sum(each for _, each in pairs) / len(pairs)


def load_values(load: LoadFigures, services: Sequence[int]) -> Values:
    """Return what the replica counts of some services came to; NaN where there is nothing to count."""
    found = load.figures(services)
    return found["replicas_to_minimum"], found["late"] + found["lost"]


def cost(values: Values) -> float:
    """Return one number for both."""
    return values[0] + PRICE * values[1]


def front(candidates: Sequence[Values]) -> list[int]:
    """Return the places of those that no other beats, by rising footprint; of equal ones the first."""
    found: list[int] = []
    least = np.inf
    for place in sorted(range(len(candidates)), key=lambda at: (*candidates[at], at)):
        if candidates[place][1] < least:
            found.append(place)
            least = candidates[place][1]
    return found
