"""What is wrong with a VPA object, and where.

All mistakes are reported together, each with the path of its field, so that one try is enough to mend an object.
Fields behind a feature gate are accepted without it when the stored object already uses them: switching a gate off
must not make existing objects impossible to edit.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubetide.api.objects.vpa import RECOMMENDATION_ONLY
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.api.values.selectors import label_key_problem
from kubetide.errors import QuantityError
from kubetide.vpa.core.compat import CONTROLLED_RESOURCES, FOLLOWED, TARGET_BY_SCHEMA
from kubetide.vpa.core.limits import PERCENTAGE, QUANTITY
from kubetide.vpa.core.scope import DAEMON_SETS_ALONE

DEFAULT_UPDATE_MODE = "Recreate"
UPDATE_MODES = frozenset({"Off", "Initial", "Recreate", "Auto", "InPlaceOrRecreate", "InPlace"})
RESOURCES = ("cpu", "memory")
SCALING_MODES = frozenset({"Auto", "Off"})

AUTO_WARNING = (
    'updateMode "Auto" is deprecated: it behaves as "Recreate". '
    'Name the behaviour you want: "Recreate", "Initial" or "InPlaceOrRecreate".'
)

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FieldError:
    """One mistake. `reason` is the machine-readable kind that a Status cause carries."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


@dataclass(frozen=True, slots=True)
class FieldWarning:
    """Something about a field that is accepted and should be changed."""

    field: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Alpha features that an object may only use when they are switched on, and the release whose checks apply."""

    in_place: bool = False
    per_vpa_config: bool = False
    cpu_startup_boost: bool = False
    request_to_limit_ratio: bool = False
    pod_level: bool = False
    scope: bool = False
    compat: Compat = FOLLOWED


def validate(vpa: Raw, *, creating: bool, old: Raw | None = None, gates: Gates | None = None) -> tuple[FieldError, ...]:
    """Return every mistake in a VPA object; nothing means that it may be stored."""
    return tuple(_mistakes(vpa, creating=creating, old=_part(old or {}, "spec"), gates=gates or Gates()))


def default_patch(vpa: Raw) -> list[dict[str, Any]]:
    """Return the JSON patch that fills in what the user left open."""
    if _part(vpa, "spec").get("updatePolicy") is None:
        return [{"op": "add", "path": "/spec/updatePolicy", "value": {"updateMode": DEFAULT_UPDATE_MODE}}]
    return []


def warnings(vpa: Raw, *, old: Raw | None = None, gates: Gates | None = None) -> tuple[FieldWarning, ...]:
    """Return what the user should know, whether the object is accepted or not."""
    spec = _part(vpa, "spec")
    found = []
    if _part(spec, "updatePolicy").get("updateMode") == "Auto":
        found.append(FieldWarning("spec.updatePolicy", AUTO_WARNING))
    if gates is not None and gates.compat.has(CONTROLLED_RESOURCES):
        for path, name in _unsupported_resources(spec):
            if name in _controlled(_part(old or {}, "spec")):
                told = f"{path}: {name} is not supported and has no effect; only cpu and memory are"
                found.append(FieldWarning(path, told))
    return tuple(found)


def _unsupported_resources(spec: Raw) -> Iterator[tuple[str, Any]]:
    for index, policy in enumerate(_items(_part(spec, "resourcePolicy").get("containerPolicies"))):
        names = policy.get("controlledResources")
        for at, name in enumerate(names if isinstance(names, list) else ()):
            if name not in RESOURCES:
                yield f"spec.resourcePolicy.containerPolicies[{index}].controlledResources[{at}]", name


def _controlled(spec: Raw) -> set[str]:
    """Return the resources that any policy names."""
    lists = (
        policy.get("controlledResources") for policy in _items(_part(spec, "resourcePolicy").get("containerPolicies"))
    )
    return {name for names in lists if isinstance(names, list) for name in names if isinstance(name, str)}


def _mistakes(vpa: Raw, *, creating: bool, old: Raw, gates: Gates) -> Iterator[FieldError]:
    spec = _part(vpa, "spec")
    if spec.get("updatePolicy") is not None:
        yield from _update_policy(_part(spec, "updatePolicy"), _part(old, "updatePolicy"), gates)
    policies = _items(_part(spec, "resourcePolicy").get("containerPolicies"))
    old_policies = _items(_part(old, "resourcePolicy").get("containerPolicies"))
    for index, policy in enumerate(policies):
        yield from _container_policy(f"spec.resourcePolicy.containerPolicies[{index}]", policy, old_policies, gates)
    if _part(spec, "resourcePolicy").get("podPolicy") is not None:
        used = _part(old, "resourcePolicy").get("podPolicy") is not None
        yield from _pod_policy(_part(_part(spec, "resourcePolicy"), "podPolicy"), used=used, gates=gates)
    if spec.get("scope"):
        yield from _scope(spec, used=bool(old.get("scope")), gates=gates)
    if gates.compat.has(CONTROLLED_RESOURCES):
        for path, name in _unsupported_resources(spec):
            if name not in _controlled(old):
                yield FieldError(path, f"unsupported resource {name}: must be cpu or memory", "FieldValueNotSupported")
    if spec.get("startupBoost") is not None:
        yield from _startup_boost(
            "spec.startupBoost", _part(spec, "startupBoost"), used=old.get("startupBoost") is not None, gates=gates
        )
    if creating and spec.get("targetRef") is None and not gates.compat.has(TARGET_BY_SCHEMA):
        yield FieldError(
            "spec.targetRef",
            "TargetRef is required. If you're using v1beta1 version of the API, please migrate to v1",
            "FieldValueRequired",
        )
    if len(_items(spec.get("recommenders"))) > 1:
        yield FieldError(
            "spec.recommenders",
            "The current version of VPA object shouldn't specify more than one recommenders.",
            "FieldValueTooMany",
        )


def _update_policy(policy: Raw, old: Raw, gates: Gates) -> Iterator[FieldError]:
    mode = policy.get("updateMode")
    path = "spec.updatePolicy.updateMode"
    if mode is None:
        yield FieldError(path, "UpdateMode is required if UpdatePolicy is used", "FieldValueRequired")
    elif not isinstance(mode, str) or mode not in UPDATE_MODES:
        yield FieldError(path, f"unexpected UpdateMode value {mode}", "FieldValueNotSupported")
    elif mode == "InPlace" and not gates.in_place and old.get("updateMode") != "InPlace":
        yield FieldError(path, "UpdateMode InPlace needs the feature gate InPlace", "FieldValueForbidden")
    replicas = policy.get("minReplicas")
    if replicas is not None and not (_is_int(replicas) and replicas > 0):
        yield FieldError("spec.updatePolicy.minReplicas", f"MinReplicas has to be positive, got {replicas}")
    seconds = policy.get("evictAfterOOMSeconds")
    if seconds is not None:
        path = "spec.updatePolicy.evictAfterOOMSeconds"
        used = old.get("evictAfterOOMSeconds") is not None
        forbidden = tuple(_per_vpa_config(path, gates=gates, used=used))
        yield from forbidden
        if not forbidden and not (_is_int(seconds) and seconds >= 1):
            yield FieldError(path, f"evictAfterOOMSeconds has to be at least 1, got {seconds}")


def _container_policy(path: str, policy: Raw, old: list[Raw], gates: Gates) -> Iterator[FieldError]:
    if not policy.get("containerName"):
        yield FieldError(f"{path}.containerName", "ContainerPolicies.ContainerName is required", "FieldValueRequired")
    mode = policy.get("mode")
    named = [entry for entry in old if entry.get("containerName") == policy.get("containerName")]
    known = {RECOMMENDATION_ONLY} if gates.pod_level or any(e.get("mode") == mode for e in named) else set()
    if mode is not None and (not isinstance(mode, str) or mode not in SCALING_MODES | known):
        yield FieldError(f"{path}.mode", f"unexpected Mode value {mode}", "FieldValueNotSupported")
    yield from _allowed_range(path, policy)
    if mode == "Off" and policy.get("controlledValues") == "RequestsAndLimits":
        yield FieldError(
            f"{path}.controlledValues",
            "ControlledValues shouldn't be specified if container scaling mode is off.",
            "FieldValueForbidden",
        )
    # A name may occur more than once: what any of its entries uses is in use.
    before = {k: v for entry in named for k, v in entry.items()}
    yield from _tuning(path, policy, before, gates)
    if policy.get("requestToLimitRatio") is not None:
        yield from _limit_ratio(f"{path}.requestToLimitRatio", policy, before, gates)
    if policy.get("startupBoost") is not None:
        yield from _startup_boost(
            f"{path}.startupBoost",
            _part(policy, "startupBoost"),
            used=before.get("startupBoost") is not None,
            gates=gates,
        )


def _allowed_range(path: str, policy: Raw) -> Iterator[FieldError]:
    lowest, wrong = _amounts(f"{path}.minAllowed", policy.get("minAllowed"))
    yield from wrong
    highest, wrong = _amounts(f"{path}.maxAllowed", policy.get("maxAllowed"))
    yield from wrong
    for resource, minimum in lowest.items():
        if resource in highest and highest[resource] < minimum:
            yield FieldError(f"{path}.maxAllowed[{resource}]", f"max resource for {resource} is lower than min")


def _pod_policy(policy: Raw, *, used: bool, gates: Gates) -> Iterator[FieldError]:
    """Check how the resources of the pod as a whole are set."""
    path = "spec.resourcePolicy.podPolicy"
    if not gates.pod_level and not used:
        yield FieldError(path, "podPolicy needs the feature gate VPAPodLevelResources", "FieldValueForbidden")
        return
    mode = policy.get("mode")
    if mode is not None and (not isinstance(mode, str) or mode not in SCALING_MODES):
        yield FieldError(f"{path}.mode", f"unexpected Mode value {mode}", "FieldValueNotSupported")
    yield from _allowed_range(path, policy)
    names = policy.get("controlledResources")
    for at, name in enumerate(names if isinstance(names, list) else ()):
        if name not in RESOURCES:
            problem = f"unsupported resource {name}: must be cpu or memory"
            yield FieldError(f"{path}.controlledResources[{at}]", problem, "FieldValueNotSupported")


def _scope(spec: Raw, *, used: bool, gates: Gates) -> Iterator[FieldError]:
    """Check the node label that groups the pods of a DaemonSet."""
    if not gates.scope and not used:
        yield FieldError("spec.scope", "scope needs the feature gate DaemonSetScope", "FieldValueForbidden")
        return
    if _part(spec, "targetRef").get("kind") != "DaemonSet":
        yield FieldError("spec.scope", DAEMON_SETS_ALONE, "FieldValueForbidden")
    if problem := label_key_problem(str(spec["scope"])):
        yield FieldError("spec.scope", f"must be a label key: {problem}")


def _amounts(path: str, raw: Any) -> tuple[dict[str, Quantity], list[FieldError]]:
    """Parse a resource list; CPU must be whole millicores, memory whole bytes."""
    amounts: dict[str, Quantity] = {}
    wrong: list[FieldError] = []
    bound = path.rsplit(".", 1)[-1]
    bound = bound[0].upper() + bound[1:]
    for resource, text in (raw if isinstance(raw, Mapping) else {}).items():
        try:
            amount = amounts[resource] = parse_quantity(text)
        except QuantityError as error:
            wrong.append(FieldError(f"{path}[{resource}]", str(error)))
            continue
        if resource == "cpu" and amount.nanos % 10**6:
            problem = f"{bound}: CPU [{amount}] must be a whole number of milli CPUs"
            wrong.append(FieldError(f"{path}[cpu]", problem))
        if resource == "memory" and amount.nanos % 10**9:
            problem = f"{bound}: Memory [{amount}] must be a whole number of bytes"
            wrong.append(FieldError(f"{path}[memory]", problem))
    return amounts, wrong


def _tuning(path: str, policy: Raw, before: Raw, gates: Gates) -> Iterator[FieldError]:
    """Check the settings of the recommender that a container policy may override."""
    rules: tuple[tuple[str, int, Callable[[Any], bool]], ...] = (
        ("oomBumpUpRatio", 1, lambda value: _at_least(value, 1)),
        ("oomMinBumpUp", 0, lambda value: _at_least(value, 0)),
        ("memoryAggregationIntervalSeconds", 1, lambda value: _is_int(value) and value >= 1),
        ("memoryAggregationIntervalCount", 1, lambda value: _is_int(value) and value >= 1),
    )
    for name, least, good in rules:
        value = policy.get(name)
        if value is None:
            continue
        forbidden = tuple(_per_vpa_config(f"{path}.{name}", gates=gates, used=before.get(name) is not None))
        yield from forbidden
        if not forbidden and not good(value):
            yield FieldError(f"{path}.{name}", f"{name} has to be at least {least}, got {value}")

    percentiles = policy.get("recommendationPercentiles")
    if percentiles is not None:
        at = f"{path}.recommendationPercentiles"
        used = before.get("recommendationPercentiles") is not None
        forbidden = tuple(_per_vpa_config(at, gates=gates, used=used))
        yield from forbidden
        for name, percent in {} if forbidden else _part(policy, "recommendationPercentiles").items():
            if not (_is_int(percent) and 1 <= percent <= 100):
                yield FieldError(f"{at}.{name}", f"{name} has to lie between 1 and 100, got {percent}")


def _limit_ratio(path: str, policy: Raw, before: Raw, gates: Gates) -> Iterator[FieldError]:
    """Check how limits follow requests: one value, that of the type."""
    if not gates.request_to_limit_ratio and before.get("requestToLimitRatio") is None:
        yield FieldError(path, "requestToLimitRatio needs the feature gate RequestToLimitRatio", "FieldValueForbidden")
        return
    for resource, raw in _part(policy, "requestToLimitRatio").items():
        at, rule = f"{path}.{resource}", raw if isinstance(raw, Mapping) else {}
        percentage, amount = rule.get("percentage"), rule.get("quantity")
        if resource not in RESOURCES:
            yield FieldError(at, f"unsupported resource {resource}: must be cpu or memory", "FieldValueNotSupported")
        elif rule.get("type") == PERCENTAGE:
            if not (isinstance(percentage, int) and percentage >= 100):
                yield FieldError(f"{at}.percentage", f"percentage has to be at least 100, got {percentage}")
            if amount is not None:
                yield FieldError(f"{at}.quantity", "must be absent with type Percentage", "FieldValueForbidden")
        elif rule.get("type") == QUANTITY:
            if amount is None or not _at_least(amount, 0):
                yield FieldError(f"{at}.quantity", f"quantity has to be at least 0, got {amount}")
            if percentage is not None:
                yield FieldError(f"{at}.percentage", "must be absent with type Quantity", "FieldValueForbidden")
        else:
            yield FieldError(f"{at}.type", f"unexpected type {rule.get('type')}", "FieldValueNotSupported")


def _per_vpa_config(path: str, *, gates: Gates, used: bool) -> Iterator[FieldError]:
    if not gates.per_vpa_config and not used:
        name = path.rsplit(".", 1)[-1]
        yield FieldError(path, f"{name} needs the feature gate PerVPAConfig", "FieldValueForbidden")


def _startup_boost(path: str, boost: Raw, *, used: bool, gates: Gates) -> Iterator[FieldError]:
    if not gates.cpu_startup_boost and not used:
        yield FieldError(path, "startupBoost needs the feature gate CPUStartupBoost", "FieldValueForbidden")
    cpu = boost.get("cpu")
    if cpu is None:
        return
    cpu = _part(boost, "cpu")
    kind = cpu.get("type")
    if kind == "Factor":
        if not (_is_int(cpu.get("factor")) and cpu["factor"] >= 1):
            yield FieldError(f"{path}.cpu.factor", f"factor has to be at least 1, got {cpu.get('factor')}")
    elif kind == "Quantity":
        try:
            amount = parse_quantity(cpu.get("quantity") or "")
        except QuantityError as error:
            yield FieldError(f"{path}.cpu.quantity", str(error))
        else:
            if amount.nanos % 10**6:
                yield FieldError(f"{path}.cpu.quantity", f"CPU [{amount}] must be a whole number of milli CPUs")
    else:
        problem = f"unexpected StartupBoost.CPU.Type value {kind}"
        yield FieldError(f"{path}.cpu.type", problem, "FieldValueNotSupported")
    seconds = cpu.get("durationSeconds")
    if seconds is not None and not (_is_int(seconds) and seconds >= 0):
        yield FieldError(f"{path}.cpu.durationSeconds", f"durationSeconds has to be at least 0, got {seconds}")


def _at_least(value: Any, least: int) -> bool:
    try:
        return parse_quantity(value) >= Quantity.of(least)
    except QuantityError:
        return False


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _part(raw: Raw, name: str) -> Raw:
    value = raw.get(name)
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Raw]:
    return [item if isinstance(item, Mapping) else {} for item in value] if isinstance(value, list) else []
