"""What a search for better numbers moves, what it minimises, and how what it finds is put in force.

    footprint    what is reserved: memory to the clairvoyant, CPU to the work done; their mean where both count
    wrong        overruns, work above the request; their mean where both count
    cost         footprint + 20 × wrong, as everywhere in replays: decides among candidates, on days not searched on

A candidate is on the front when no other is at least as good in both and better in one.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np

from kubetide.replay.core.figures import PRICE, figures
from kubetide.replay.core.spec import PolicySpec, read_policy
from kubetide.stats.buckets import Floats

Objective = Literal["memory", "cpu", "both"]
Numbers = Mapping[str, float]
Values = tuple[float, float]
"""Footprint and what goes wrong."""

_MEMORY: Final = {"target_memory": (0.5, 1.0, 0.005), "memory_half_life": (6, 336, 6)}
_CPU: Final = {"target_cpu": (0.5, 1.0, 0.005), "cpu_half_life": (6, 336, 6)}
_MARGIN: Final = {"margin": (0.0, 0.6, 0.01)}
SPACES: Final[Mapping[Objective, Mapping[str, tuple[float, float, float]]]] = {
    "memory": {**_MEMORY, **_MARGIN},
    "cpu": {**_CPU, **_MARGIN},
    "both": {**_MEMORY, **_CPU, **_MARGIN},
}
"""Lowest, highest and step of every number that is searched; half-lives are in hours."""
DEFAULTS: Final[Numbers] = {
    "target_memory": 0.9, "target_cpu": 0.9, "memory_half_life": 24, "cpu_half_life": 24, "margin": 0.15,
}  # fmt: skip
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


def policy_of(numbers: Numbers, name: str) -> PolicySpec:
    """Return the recommender with these numbers."""
    return read_policy({"sizes": {"estimator": "vpa", "numbers": written(numbers)}}, name)


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
