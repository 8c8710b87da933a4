"""The ConfigMap, key by key: read, complete with defaults, keep the last good state.

    cluster       = default ⊕ cluster strategy
    node strategy = cluster ⊕ its own fields            (⊕: kubetide.api.qos.slo_merge.overlay)

A key that cannot be read keeps its previous configuration and says so; the other keys still apply. A colocation
cluster strategy with an unacceptable value is dropped as a whole; a node entry with one falls back to the cluster's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kubetide.api.qos.slo_merge import (
    COLOCATION,
    CPU_BURST,
    MID_STATIC,
    MID_THRESHOLDS,
    SYSTEM,
    SYSTEM_UNSET,
    THRESHOLDS,
    overlay,
)
from kubetide.api.values.codec import convert, decode_raw, fold_keys, to_builtins, without_nulls
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import parse_quantity
from kubetide.api.values.selectors import LabelSelector, selector_from
from kubetide.durations import format_duration, parse_duration
from kubetide.errors import DecodeError, InvalidInput, SelectorError
from kubetide.slo.core import compat as since
from kubetide.slo.core import shapes
from kubetide.slo.core.compat import NEWEST, known_fields

Raw = dict[str, Any]

COLOCATION_KEY = "colocation-config"
THRESHOLD_KEY = "resource-threshold-config"
QOS_KEY = "resource-qos-config"
CPU_BURST_KEY = "cpu-burst-config"
SYSTEM_KEY = "system-config"
HOST_APPLICATION_KEY = "host-application-config"
CPU_NORMALIZATION_KEY = "cpu-normalization-config"
AMPLIFICATION_KEY = "resource-amplification-config"

# The order in which the keys are looked at, with what upstream calls each of them in its messages.
NODESLO_KEYS = {
    THRESHOLD_KEY: "ThresholdCfg",
    QOS_KEY: "ResourceQOSCfg",
    CPU_BURST_KEY: "CPUBurstCfg",
    SYSTEM_KEY: "SystemCfg",
    HOST_APPLICATION_KEY: "HostApplicationCfg",
}

SLO_UNREADABLE = "SLOCfgUnmarshalFailed"
COLOCATION_UNREADABLE = "ColocationCfgUnmarshalFailed"
NORMALIZATION_UNREADABLE = "CPUNormalizationCfgUnmarshalFailed"
AMPLIFICATION_UNREADABLE = "ResourceAmplificationCfgUnmarshalFailed"
COLOCATION_NOT_ACCEPTABLE = "ColocationCfgNotAcceptable"

_STRATEGY_SHAPES: dict[str, tuple[type[Any], Raw]] = {
    THRESHOLD_KEY: (shapes.ThresholdConfig, THRESHOLDS),
    QOS_KEY: (shapes.QOSConfig, {}),
    CPU_BURST_KEY: (shapes.CPUBurstConfig, CPU_BURST),
    SYSTEM_KEY: (shapes.SystemConfig, SYSTEM),
}
SHAPES: dict[str, type[Any]] = {
    COLOCATION_KEY: shapes.ColocationConfig,
    HOST_APPLICATION_KEY: shapes.HostApplicationConfig,
    CPU_NORMALIZATION_KEY: shapes.CPUNormalizationConfig,
    AMPLIFICATION_KEY: shapes.AmplificationConfig,
    **{key: shape for key, (shape, _) in _STRATEGY_SHAPES.items()},
}

_SELECTING = ("name", "nodeSelector")


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """Something in the ConfigMap that cannot be used: becomes a Warning event on it."""

    reason: str
    key: str
    message: str


def read(key: str, text: str, compat: Compat = NEWEST) -> Raw:
    """Read the text of a data key into a raw dict of given fields, in canonical spelling; raise DecodeError."""
    return read_shape(text, SHAPES[key], what=key, compat=compat)


def read_shape(text: str, shape: type[Any], *, what: str, compat: Compat = NEWEST) -> Raw:
    """Read JSON of a known shape into a raw dict of given fields; `null` gives nothing."""
    raw = decode_raw(text, what=what)
    if raw is None:
        return {}
    known = known_fields(fold_keys(raw, shape), compat)
    found: Raw = without_nulls(to_builtins(convert(known, shape, what=what)))
    _check_values(found, what)
    return {name: _given_items(value, name) for name, value in found.items()}


def colocation_defaults(compat: Compat = NEWEST) -> Raw:
    """Return the colocation strategy where nothing is configured."""
    mid = MID_THRESHOLDS if compat.has(since.MID_DEFAULTS) else {}
    return {**COLOCATION, **mid, **(MID_STATIC if compat.has(since.MID_STATIC) else {})}


def complete(key: str, given: Mapping[str, Any], compat: Compat = NEWEST) -> Raw:
    """Return the configuration of a NodeSLO key with defaults and cluster values filled in."""
    if key == HOST_APPLICATION_KEY:
        return dict(given)
    default = _STRATEGY_SHAPES[key][1]
    if key == SYSTEM_KEY and compat.has(since.SYSTEM_UNSET):
        default = SYSTEM_UNSET
    cluster = overlay(default, given.get("clusterStrategy"))
    nodes = [_completed_entry(cluster, entry) for entry in given.get("nodeStrategies") or ()]
    return {"clusterStrategy": cluster, **({"nodeStrategies": nodes} if nodes else {})}


def merge_key(
    key: str, data: Mapping[str, str] | None, previous: Mapping[str, Any] | None, compat: Compat = NEWEST
) -> tuple[Raw, str | None]:
    """Return the new configuration of a NodeSLO key and, if its text is unreadable, the error (the previous stays)."""
    if data is None or key not in data:
        return complete(key, {}, compat), None
    try:
        return complete(key, read(key, data[key], compat), compat), None
    except DecodeError as error:
        return dict(previous or {}), str(error)


def choose(entries: list[Raw] | None, labels: Mapping[str, str] | None) -> Raw | None:
    """Return the first entry whose selector matches; an absent selector matches nothing, an unreadable one neither."""
    for entry in entries or ():
        raw = entry.get("nodeSelector")
        if raw is None:
            continue
        try:
            if selector_from(convert(raw, LabelSelector)).matches(labels):
                return entry
        except (SelectorError, DecodeError):
            continue
    return None


def own_fields(entry: Mapping[str, Any]) -> Raw:
    """Return a node entry without its name and selector."""
    return {name: value for name, value in entry.items() if name not in _SELECTING}


def acceptance_problem(strategy: Mapping[str, Any] | None, compat: Compat = NEWEST) -> str | None:
    """Return which value of a complete colocation strategy cannot be used, or None."""
    if strategy is None:
        return "no strategy"
    positive = _POSITIVE if compat.has(since.RECLAIM_ZERO) else (*_POSITIVE, *_RECLAIM)
    for name in positive:
        value = strategy.get(name)
        if value is not None and not value > 0:
            return f"{name} is {value}, must be greater than 0"
    for name in (*_RECLAIM, *_AT_LEAST_ZERO):
        if (value := strategy.get(name)) is not None and value < 0:
            return f"{name} is {value}, must be at least 0"
    for name in MID_THRESHOLDS if compat.has(since.MID_DEFAULTS) else ():
        if (value := strategy.get(name)) is not None and not 0 <= value <= 100:
            return f"{name} is {value}, must be 0 to 100"
    if strategy.get("metricMemoryCollectPolicy") == "":
        return "metricMemoryCollectPolicy must not be empty"
    return None


_POSITIVE = (
    "metricAggregateDurationSeconds",
    "metricReportIntervalSeconds",
    "degradeTimeMinutes",
    "updateTimeThresholdSeconds",
    "resourceDiffThreshold",
)
_RECLAIM = ("cpuReclaimThresholdPercent", "memoryReclaimThresholdPercent")
_AT_LEAST_ZERO = (*MID_STATIC, "batchCPUThresholdPercent", "batchMemoryThresholdPercent")


@dataclass(frozen=True, slots=True)
class NodeSLOConfig:
    """The five keys that make a NodeSLO, complete."""

    keys: Mapping[str, Raw]
    available: bool = False
    compat: Compat = NEWEST

    @classmethod
    def initial(cls, compat: Compat = NEWEST) -> "NodeSLOConfig":
        """Return the defaults."""
        return cls({key: complete(key, {}, compat) for key in NODESLO_KEYS}, compat=compat)

    def updated(self, data: Mapping[str, str] | None) -> tuple["NodeSLOConfig", tuple[ConfigProblem, ...]]:
        """Take in a state of the ConfigMap (None: it does not exist)."""
        keys: dict[str, Raw] = {}
        problems = []
        for key, called in NODESLO_KEYS.items():
            keys[key], error = merge_key(key, data, self.keys[key], self.compat)
            if error is not None:
                problems.append(ConfigProblem(SLO_UNREADABLE, key, f"failed to unmarshal {called}, err: {error}"))
        return replace(self, keys=keys, available=True), tuple(problems)


@dataclass(frozen=True, slots=True)
class ColocationState:
    """The colocation configuration in force, and whether the last text could be used."""

    config: Raw
    available: bool = False
    error: bool = False
    compat: Compat = NEWEST

    @classmethod
    def initial(cls, compat: Compat = NEWEST) -> "ColocationState":
        """Return the defaults."""
        return cls(colocation_defaults(compat), compat=compat)

    def updated(self, data: Mapping[str, str] | None) -> tuple["ColocationState", tuple[ConfigProblem, ...]]:
        """Take in a state of the ConfigMap (None: it does not exist)."""
        defaults = replace(self.initial(self.compat), available=True)
        if data is None:
            return replace(defaults, error=True), ()
        text = data.get(COLOCATION_KEY)
        if not text:
            return defaults, ()
        try:
            given = read(COLOCATION_KEY, text, self.compat)
        except DecodeError as error:
            message = f"failed to unmarshal colocation config, err: {error}"
            return replace(self, error=True), (ConfigProblem(COLOCATION_UNREADABLE, COLOCATION_KEY, message),)
        entries = given.pop("nodeConfigs", [])
        cluster = overlay(defaults.config, given)
        if problem := acceptance_problem(cluster, self.compat):
            return replace(self, error=True), (ConfigProblem(COLOCATION_NOT_ACCEPTABLE, COLOCATION_KEY, problem),)
        nodes, problems = _complete_entries(cluster, entries, self.compat)
        config = {**cluster, **({"nodeConfigs": nodes} if nodes else {})}
        return replace(defaults, config=config), problems


@dataclass(frozen=True, slots=True)
class NormalizationState:
    """The CPU normalization configuration in force."""

    config: Raw = field(default_factory=lambda: {"enable": False})
    compat: Compat = NEWEST

    def updated(self, data: Mapping[str, str] | None) -> tuple["NormalizationState", tuple[ConfigProblem, ...]]:
        """Take in a state of the ConfigMap (None: it does not exist)."""
        if data is None or CPU_NORMALIZATION_KEY not in data:
            return NormalizationState(compat=self.compat), ()
        try:
            given = read(CPU_NORMALIZATION_KEY, data[CPU_NORMALIZATION_KEY], self.compat)
        except DecodeError as error:
            message = f"failed to unmarshal CPUNormalizationCfg, err: {error}"
            problem = ConfigProblem(NORMALIZATION_UNREADABLE, CPU_NORMALIZATION_KEY, message)
            return self, (problem,)
        entries = given.pop("nodeConfigs", [])
        cluster = merge_normalization({"enable": False}, given)
        nodes = [{**_selecting(e), **merge_normalization(cluster, own_fields(e))} for e in entries]
        return replace(self, config={**cluster, **({"nodeConfigs": nodes} if nodes else {})}), ()


@dataclass(frozen=True, slots=True)
class AmplificationState:
    """The resource amplification configuration in force."""

    config: Raw = field(default_factory=lambda: {"enable": False})
    compat: Compat = NEWEST

    def updated(self, data: Mapping[str, str] | None) -> tuple["AmplificationState", tuple[ConfigProblem, ...]]:
        """Take in a state of the ConfigMap (None: it does not exist)."""
        default = AmplificationState(compat=self.compat)
        if data is None or AMPLIFICATION_KEY not in data or not self.compat.has(since.AMPLIFICATION_CONFIG):
            return default, ()
        try:
            given = read(AMPLIFICATION_KEY, data[AMPLIFICATION_KEY], self.compat)
        except DecodeError as error:
            message = f"failed to unmarshal ResourceAmplificationCfg, err: {error}"
            return self, (ConfigProblem(AMPLIFICATION_UNREADABLE, AMPLIFICATION_KEY, message),)
        entries = given.pop("nodeConfigs", [])
        cluster = overlay(default.config, given)
        nodes = [_completed_entry(cluster, entry) for entry in entries]
        return replace(self, config={**cluster, **({"nodeConfigs": nodes} if nodes else {})}), ()


def merge_normalization(base: Mapping[str, Any], over: Mapping[str, Any]) -> Raw:
    """Merge by model name; the entry of a model is replaced as a whole."""
    models = {**base.get("ratioModel", {}), **over.get("ratioModel", {})}
    merged = overlay(base, {name: value for name, value in over.items() if name != "ratioModel"})
    return {**merged, "ratioModel": models} if models else merged


def _complete_entries(cluster: Raw, entries: list[Raw], compat: Compat) -> tuple[list[Raw], tuple[ConfigProblem, ...]]:
    nodes, problems = [], []
    for entry in entries:
        completed = _completed_entry(cluster, entry)
        if problem := acceptance_problem(own_fields(completed), compat):
            name = entry.get("name") or "without a name"
            message = f"node config {name}: {problem}; the cluster strategy applies instead"
            problems.append(ConfigProblem(COLOCATION_NOT_ACCEPTABLE, COLOCATION_KEY, message))
            completed = {**_selecting(entry), **cluster}
        nodes.append(completed)
    return nodes, tuple(problems)


def _completed_entry(cluster: Raw, entry: Raw) -> Raw:
    return {**_selecting(entry), **overlay(cluster, own_fields(entry))}


def _selecting(entry: Raw) -> Raw:
    return {name: entry[name] for name in _SELECTING if name in entry}


def _check_values(value: Any, key: str, name: str = "") -> None:
    """Refuse durations and quantities that do not parse and integers too large to store; write both as Go does."""
    if isinstance(value, dict):
        policy = value.get("metricAggregatePolicy")
        if isinstance(policy, dict) and "durations" in policy:
            policy["durations"] = [_parsed(key, "durations", _canonical, text) for text in policy["durations"]]
        if _BANDWIDTH in value:
            value[_BANDWIDTH] = str(_parsed(key, _BANDWIDTH, parse_quantity, value[_BANDWIDTH]))
        for inner_name, inner in value.items():
            if inner_name != "extensions":
                _check_values(inner, key, inner_name)
    elif isinstance(value, list):
        for inner in value:
            _check_values(inner, key, name)
    elif isinstance(value, int):
        bits = 32 if name in _NARROW else 64
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise DecodeError(f"{value} does not fit {bits} bits", subject=key, field=name)


def _given_items(value: Any, name: str, *, inside: bool = False) -> Any:
    """Drop empty texts from the items of lists that a NodeSLO passes on whole: there too they mean "not given"."""
    if isinstance(value, dict):
        if name in _NOT_PASSED_ON:
            return value
        kept = {key: inner for key, inner in value.items() if not (inside and inner == "")}
        return {key: _given_items(inner, key, inside=inside) for key, inner in kept.items()}
    if isinstance(value, list):
        return [_given_items(inner, name, inside=inside or name in _PASSED_ON_WHOLE) for inner in value]
    return value


_PASSED_ON_WHOLE = frozenset({"applications", "blocks"})
_NOT_PASSED_ON = frozenset({"extensions", "nodeSelector"})

_BANDWIDTH = "totalNetworkBandwidth"

# Percentages that may also be rates as text, and priorities of pods.
_NARROW = frozenset(
    {
        "ingressRequest",
        "ingressLimit",
        "egressRequest",
        "egressLimit",
        "evictEnabledPriorityThreshold",
        "allocatableEvictPriorityThreshold",
    }
)


def _canonical(text: str) -> str:
    return format_duration(parse_duration(text))


def _parsed(key: str, name: str, parse: Callable[[Any], Any], value: Any) -> Any:
    try:
        return parse(value)
    except InvalidInput as error:
        raise DecodeError(str(error), subject=key, field=name) from error
