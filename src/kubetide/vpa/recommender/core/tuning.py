"""Numbers that one VPA sets for itself.

With the gate PerVPAConfig a container policy may set `oomBumpUpRatio`, `oomMinBumpUp`, the memory windows, and with
`recommendationPercentiles` the six percentiles of its recommendation (whole percents, proposal AEP-9970). With
`--per-vpa-tuning` annotations on the VPA may set the rest, for all its containers:

    kubetide.io/target-cpu-percentile       0…1, also target-memory-, lower-bound-…-, upper-bound-…-percentile
    kubetide.io/margin-fraction             0 or more
    kubetide.io/cpu-half-life               a duration such as 12h, also memory-half-life
    kubetide.io/oom-bump-up-ratio           1 or more
    kubetide.io/oom-min-bump-up             a quantity

An annotation that cannot be used is reported and the general setting applies. A policy whose target lies outside its
bounds is reported and used.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from kubetide.api.objects.vpa import ContainerResourcePolicy, PodResourcePolicy
from kubetide.api.values.quantity import parse_quantity
from kubetide.durations import parse_duration
from kubetide.errors import InvalidInput
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.core.aggregate import Tuning
from kubetide.vpa.recommender.core.estimator import Estimation

PREFIX = "kubetide.io/"


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a VPA asks for, by container name (`*` for the others), and what is wrong with it."""

    tunings: Mapping[str, Tuning]
    estimations: Mapping[str, Estimation] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def tuned(
    policy: PodResourcePolicy | None,
    annotations: Mapping[str, str],
    *,
    tuning: Tuning,
    estimation: Estimation,
    policies: bool,
    by_annotation: bool,
) -> Tuned:
    """Return the numbers of one VPA; empty when it sets none."""
    problems: list[str] = []
    base, own = tuning, estimation
    if by_annotation:
        base, own, problems = _annotated(annotations, tuning, estimation)
    tunings, estimations = {"*": base}, {"*": own}
    if policies:
        for entry in (policy.container_policies if policy is not None else None) or ():
            name = entry.container_name
            # As everywhere: the first entry of a name, the last `*`, and never a mixture of the two.
            if name != "*" and name in tunings:
                continue
            try:
                tunings[name], estimations[name] = _from_policy(entry, base), _percentiles(entry, own)
            except InvalidInput as error:
                tunings[name], estimations[name] = base, own
                problems.append(f"container policy {name}: {error}")
            else:
                problems += (f"container policy {name}: {text}" for text in _out_of_order(entry, estimations[name]))
    if all(one == tuning for one in tunings.values()):
        tunings = {}
    if all(one == estimation for one in estimations.values()):
        estimations = {}
    return Tuned(tunings, estimations, tuple(problems))


def _from_policy(entry: ContainerResourcePolicy, base: Tuning) -> Tuning:
    changes: dict[str, Any] = {}
    if entry.oom_bump_up_ratio is not None:
        changes["oom_ratio"] = float(parse_quantity(entry.oom_bump_up_ratio))
    if entry.oom_min_bump_up is not None:
        changes["oom_min_bytes"] = float(parse_quantity(entry.oom_min_bump_up).value)
    if entry.memory_aggregation_interval_seconds is not None:
        changes["interval"] = timedelta(seconds=max(1, entry.memory_aggregation_interval_seconds))
    if entry.memory_aggregation_interval_count is not None:
        changes["interval_count"] = max(1, entry.memory_aggregation_interval_count)
    return replace(base, **changes)


def _percentiles(entry: ContainerResourcePolicy, base: Estimation) -> Estimation:
    given = entry.recommendation_percentiles
    changes: dict[str, Any] = {}
    for name in given.__struct_fields__ if given is not None else ():
        percent = getattr(given, name)
        if percent is None:
            continue
        if not 1 <= percent <= 100:
            raise InvalidInput(f"recommendationPercentiles: {percent} must lie between 1 and 100")
        changes[name.replace("_bound", "")] = percent / 100
    return replace(base, **changes)


def _out_of_order(entry: ContainerResourcePolicy, estimation: Estimation) -> Iterator[str]:
    """Yield where the target of a policy lies outside the bounds in force: allowed, but hardly what was meant."""
    if entry.recommendation_percentiles is None:
        return
    for resource, name in ((CPU, "targetCPU"), (MEMORY, "targetMemory")):
        target, lower, upper = estimation.percentiles(resource)
        if not lower <= target <= upper:
            given, bounds = f"{name} {round(target * 100)}", f"{round(lower * 100)} to {round(upper * 100)}"
            yield f"recommendationPercentiles: {given} lies outside the bounds ({bounds}); used"


def _annotated(
    annotations: Mapping[str, str], tuning: Tuning, estimation: Estimation
) -> tuple[Tuning, Estimation, list[str]]:
    problems: list[str] = []
    for key, text in sorted(annotations.items()):
        known = _KNOWN.get(key.removeprefix(PREFIX)) if key.startswith(PREFIX) else None
        if known is None:
            continue
        name, parse, of_estimation = known
        try:
            value = parse(text)
        except (ValueError, InvalidInput) as error:
            problems.append(f"annotation {key}: {text!r} cannot be used: {error}")
            continue
        if of_estimation:
            estimation = replace(estimation, **{name: value})
        else:
            tuning = replace(tuning, **{name: value})
    return tuning, estimation, problems


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise ValueError("must lie between 0 and 1")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0.0 <= value < 1e6:
        raise ValueError("must be 0 or more")
    return value


def _ratio(text: str) -> float:
    value = float(text)
    if not 1.0 <= value < 1e6:
        raise ValueError("must be 1 or more")
    return value


def _half_life(text: str) -> timedelta:
    value = parse_duration(text)
    if not timedelta(minutes=1) <= value <= timedelta(days=3650):
        raise ValueError("must lie between 1m and ten years")
    return value


def _bytes(text: str) -> float:
    return float(max(0, parse_quantity(text).value))


_KNOWN: Mapping[str, tuple[str, Callable[[str], Any], bool]] = {
    "target-cpu-percentile": ("target_cpu", _share, True),
    "target-memory-percentile": ("target_memory", _share, True),
    "lower-bound-cpu-percentile": ("lower_cpu", _share, True),
    "lower-bound-memory-percentile": ("lower_memory", _share, True),
    "upper-bound-cpu-percentile": ("upper_cpu", _share, True),
    "upper-bound-memory-percentile": ("upper_memory", _share, True),
    "margin-fraction": ("margin", _not_negative, True),
    "cpu-half-life": ("cpu_half_life", _half_life, False),
    "memory-half-life": ("memory_half_life", _half_life, False),
    "oom-bump-up-ratio": ("oom_ratio", _ratio, False),
    "oom-min-bump-up": ("oom_min_bytes", _bytes, False),
}
