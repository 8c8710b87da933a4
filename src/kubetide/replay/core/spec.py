"""Policies as values: which sizes, when they may change, which replica counts.

    sizes:
      estimator: vpa          # current, vpa, krr, peak, static, adaptive, adaptive-one, oracle
      numbers: {target_cpu: 0.95, margin: 0.2}
      update: {every: 1h, when: change, change: 0.1, cooldown: 12h, by: in-place}
    replicas:
      target: 60              # percent of the CPU request; or `headroom: learned`
      min: 1
      max: 200
      behavior: {…}           # as in an autoscaler

A policy may have either part or both. What is wrong in a file is one line that names the field.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any, Final, Literal, get_args

import msgspec

from kubetide.api.objects.hpa import Behavior, HpaSpec
from kubetide.durations import parse_duration
from kubetide.errors import InvalidInput
from kubetide.replay.core.learned import AdaptivePolicy
from kubetide.replay.core.plain import VpaPolicy
from kubetide.replay.core.policies import Fleet, SizePolicy
from kubetide.replay.core.rules import CurrentPolicy, KrrPolicy, OraclePolicy, PeakPolicy, StaticPolicy
from kubetide.vpa.core.policy import CPU
from kubetide.vpa.recommender.core.aggregate import Tuning
from kubetide.vpa.recommender.core.estimator import Estimation

PERIOD: Final = "period"
_HPA_KIND: Final = "HorizontalPodAutoscaler"
Estimator = Literal["current", "vpa", "krr", "peak", "static", "adaptive", "adaptive-one", "oracle"]
_DURATIONS: Final = frozenset({"confidence_cpu", "confidence_memory", "cpu_half_life", "memory_half_life", "interval"})
_ESTIMATION: Final = frozenset(field.name for field in fields(Estimation))
_TUNING: Final = frozenset(field.name for field in fields(Tuning))
_NUMBERS: Final[Mapping[str, frozenset[str]]] = {
    "vpa": _ESTIMATION | _TUNING,
    "krr": frozenset({"days", "percentile", "factor"}),
    "peak": frozenset({"days", "factor"}),
}

_RULE_BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "days": (0.0, 366.0),
    "percentile": (0.0, 1.0),
    "factor": (0.0, 100.0),
}


class Update(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a size that was recommended comes into force."""

    every: str = "period"
    """How often sizes are recommended: once per period, a duration, or `0s` for every sample."""
    when: Literal["always", "change", "bounds"] = "always"
    """`change`: when a request is off by `change`. `bounds`: when it is outside the recommender's bounds, too."""
    change: float = 0.1
    cooldown: str = "0s"
    """How long a size stays at least."""
    by: Literal["in-place", "eviction"] = "eviction"


class Sizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How containers are sized."""

    estimator: Estimator
    numbers: dict[str, float | str] = {}
    update: Update = msgspec.field(default_factory=Update)


class Replicas(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How replicas are counted: an autoscaler on CPU utilization, learned headroom, or as they were."""

    target: int | None = None
    headroom: Literal["learned", "safe"] | None = None
    recorded: bool = False
    """The counts that were recorded; services without any are not counted."""
    min: int = 1
    max: int = 200
    tolerance: float = 0.1
    behavior: Behavior | None = None


class PolicySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One policy."""

    name: str = ""
    sizes: Sizes | None = None
    replicas: Replicas | None = None

    @property
    def every_seconds(self) -> int | None:
        """Return how often sizes are recommended: 0 for every sample, None for every period."""
        every = self.sizes.update.every if self.sizes is not None else PERIOD
        return None if every == PERIOD else _seconds(every)

    @property
    def independent(self) -> bool:
        """Return whether the sizes of a workload depend on that workload alone."""
        return self.sizes is not None and not self.sizes.estimator.startswith("adaptive")


def built_in(name: str) -> PolicySpec | None:
    """Return a policy that needs no file; None where there is none of this name."""
    if name in get_args(Estimator):
        # The learned sizes move within the day, in place; all others are applied once a period, as their tools do.
        update = Update(every="1h", by="in-place") if name.startswith("adaptive") else Update()
        counts = Replicas(recorded=True) if name == "current" else None
        sizes = msgspec.convert({"estimator": name, "update": update}, Sizes)
        return PolicySpec(name=name, sizes=sizes, replicas=counts)
    if name in ("headroom", "headroom-safe"):
        kind: Literal["learned", "safe"] = "learned" if name == "headroom" else "safe"
        return PolicySpec(name=name, replicas=Replicas(headroom=kind))
    prefix, _, percent = name.partition(":")
    if prefix == "hpa" and percent.isascii() and percent.isdigit() and 1 <= int(percent) <= 1000:
        return PolicySpec(name=name, replicas=Replicas(target=int(percent)))
    return None


BUILT_IN_NAMES: Final = (
    "current, vpa, krr, peak, static, adaptive, adaptive-one, headroom, headroom-safe, hpa:PERCENT, oracle"
)


def read_policy(content: Any, subject: str) -> PolicySpec:
    """Return the policy that a file holds, with every field checked; the manifest of an HPA is one, too."""
    if isinstance(content, dict) and content.get("kind") == _HPA_KIND:
        content = {"replicas": _of_hpa(content, subject)}
    try:
        spec = msgspec.convert(content, PolicySpec)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        field = where.rstrip("`").lstrip(".")
        if field == "sizes.estimator":
            text += f": it is one of {', '.join(get_args(Estimator))}"
        raise InvalidInput(text, subject=subject, field=field) from error
    if spec.sizes is None and spec.replicas is None:
        raise InvalidInput("has neither sizes nor replicas", subject=subject)
    if spec.sizes is not None:
        _check_sizes(spec.sizes, subject)
    if spec.replicas is not None:
        _check_replicas(spec.replicas, subject)
    return spec if spec.name else msgspec.structs.replace(spec, name=subject)


def _of_hpa(content: Mapping[str, Any], subject: str) -> dict[str, Any]:
    """Return the replicas of a policy from the manifest of an HPA on CPU utilization alone."""
    try:
        spec = msgspec.convert(content.get("spec"), HpaSpec)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        raise InvalidInput(text, subject=subject, field=f"spec{where.rstrip('`')}") from error
    metrics = spec.metrics or ()
    resource = metrics[0].resource if len(metrics) == 1 else None
    if resource is None or resource.name != CPU or resource.target.average_utilization is None:
        raise InvalidInput(
            "a replay needs one metric, CPU with averageUtilization", subject=subject, field="spec.metrics"
        )
    found = {"target": resource.target.average_utilization, "min": spec.min_replicas or 1, "max": spec.max_replicas}
    return {**found, "behavior": content["spec"]["behavior"]} if spec.behavior is not None else found


def _check_sizes(sizes: Sizes, subject: str) -> None:
    known = _NUMBERS.get(sizes.estimator, frozenset())
    for name in sizes.numbers:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise InvalidInput(
                f"{sizes.estimator} has no such number; it has {listed}", subject=subject, field=f"sizes.numbers.{name}"
            )
    update = sizes.update
    if update.every != PERIOD:
        _seconds(update.every, subject, "sizes.update.every")
    _seconds(update.cooldown, subject, "sizes.update.cooldown")
    if not 0.0 <= update.change < 100.0:
        raise InvalidInput("must be between 0 and 100", subject=subject, field="sizes.update.change")
    if update.when == "bounds" and sizes.estimator != "vpa":
        raise InvalidInput(f"{sizes.estimator} has no bounds; only vpa has", subject=subject, field="sizes.update.when")
    if sizes.estimator == "vpa":
        _vpa_numbers(sizes.numbers, subject)
    else:
        _check_rule(sizes.numbers, subject)


def _check_rule(numbers: Mapping[str, float | str], subject: str) -> None:
    """Check the numbers of a rule on windows of samples."""
    for name, value in numbers.items():
        field, (low, high) = f"sizes.numbers.{name}", _RULE_BOUNDS[name]
        if isinstance(value, str):
            raise InvalidInput(f"{value!r} is not a number", subject=subject, field=field)
        if not low < value <= high:
            raise InvalidInput(f"must be above {low:g} and at most {high:g}", subject=subject, field=field)


def _check_replicas(replicas: Replicas, subject: str) -> None:
    if (replicas.target is not None) + (replicas.headroom is not None) + replicas.recorded != 1:
        raise InvalidInput("needs one of target, headroom and recorded", subject=subject, field="replicas")
    if replicas.target is not None and not 1 <= replicas.target <= 1000:
        raise InvalidInput("must be between 1 and 1000 percent", subject=subject, field="replicas.target")
    if replicas.min < 1:
        raise InvalidInput("must be at least 1", subject=subject, field="replicas.min")
    if replicas.max < replicas.min:
        raise InvalidInput(f"is below min {replicas.min}", subject=subject, field="replicas.max")
    if not 0.0 <= replicas.tolerance < 1.0:
        raise InvalidInput("must be between 0 and 1", subject=subject, field="replicas.tolerance")
    if replicas.target is None and replicas.behavior is not None:
        raise InvalidInput("is for policies with a target", subject=subject, field="replicas.behavior")


def _seconds(text: str, subject: str = "policy", field: str = "") -> int:
    """Return a duration in whole seconds; days are allowed."""
    days, separator, rest = text.partition("d")
    try:
        if separator and not rest and days.isdigit():
            return int(days) * 86400
        return int(parse_duration(text).total_seconds())
    except (ValueError, InvalidInput) as error:
        raise InvalidInput(
            f"{text!r} is not a duration such as 30m, 12h or 1d", subject=subject, field=field
        ) from error


def cooldown_seconds(update: Update) -> int:
    """Return how long a size stays at least."""
    return _seconds(update.cooldown)


def _vpa_numbers(numbers: Mapping[str, float | str], subject: str) -> tuple[Estimation, Tuning]:
    chosen: dict[str, Any] = {}
    for name, value in numbers.items():
        field = f"sizes.numbers.{name}"
        if name in _DURATIONS:
            chosen[name] = timedelta(seconds=_seconds(str(value), subject, field))
            if not chosen[name]:
                raise InvalidInput("must be above 0", subject=subject, field=field)
        elif isinstance(value, str):
            raise InvalidInput(f"{value!r} is not a number", subject=subject, field=field)
        elif name.startswith(("target_", "lower_", "upper_")) and not 0.0 < value <= 1.0:
            raise InvalidInput("must be above 0 and at most 1", subject=subject, field=field)
        elif not 0.0 <= value < float("inf"):
            raise InvalidInput("must be a finite number, not below 0", subject=subject, field=field)
        elif name == "interval_count" and (value < 1 or value % 1):
            raise InvalidInput("must be a whole number above 0", subject=subject, field=field)
        else:
            chosen[name] = int(value) if name == "interval_count" else float(value)
    estimation = Estimation(**{name: value for name, value in chosen.items() if name in _ESTIMATION})
    return estimation, Tuning(**{name: value for name, value in chosen.items() if name in _TUNING})


def maker_of(sizes: Sizes) -> Callable[[Fleet], SizePolicy]:
    """Return what makes the estimator of a policy for a fleet."""
    numbers: Any = sizes.numbers
    match sizes.estimator:
        case "vpa":
            estimation, tuning = _vpa_numbers(sizes.numbers, "policy")
            bounds = sizes.update.when == "bounds"
            return lambda fleet: VpaPolicy(fleet, estimation=estimation, tuning=tuning, with_bounds=bounds)
        case "krr":
            return lambda fleet: KrrPolicy(fleet, **numbers)
        case "peak":
            return lambda fleet: PeakPolicy(fleet, **numbers)
        case "static":
            return StaticPolicy
        case "adaptive":
            return lambda fleet: AdaptivePolicy(fleet, limit_apart=True)
        case "adaptive-one":
            return lambda fleet: AdaptivePolicy(fleet, limit_apart=False)
        case "oracle":
            return OraclePolicy
        case _:
            return CurrentPolicy
