"""What a ScaledObject of KEDA asks kubetide's external scaler for: a node signal of some pods, and its target.

    triggers:
    - type: external                     # external-push: KEDA hears of a change at once
      metadata:
        scalerAddress: kubetide-metrics.kube-system:9090
        signal: cpu_throttled_ratio      # one of SIGNALS, or cpu_forecast_cores
        selector: app=web                # pods of the ScaledObject's namespace; empty: all
        aggregate: average               # average (default), max or sum over the pods that report it
        target: "0.2"
        activation: "0.05"               # active above it; 0 by default
        lead: 5m                         # how far ahead a forecast looks; 1m to 1h

External scalers of others, asked for external metrics, are declared in the ConfigMap under `scalers.yaml`:

    scalers:
    - {metric: queue-length, address: "my-scaler.shop:9090", metadata: {queue: orders}, timeout: 2s}
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from kubetide.api.objects.sample_frames import SIGNALS
from kubetide.api.values.codec import parse_yaml
from kubetide.api.values.selectors import Selector, parse_selector
from kubetide.durations import parse_duration
from kubetide.errors import InvalidInput, KubetideError
from kubetide.metrics.core.usage_forecasts import DEFAULT_LEAD, LONGEST_LEAD, SHORTEST_LEAD

AGGREGATES = ("average", "max", "sum")
FORECAST = "cpu_forecast_cores"
"""What all the pods together will use; by default their sum, as KEDA divides it by the target of a pod."""
MOST_SCALERS = 100
LONGEST_TIMEOUT = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One trigger, checked."""

    signal: str
    selector: Selector
    aggregate: str
    target: float
    activation: float = 0.0
    lead: timedelta = DEFAULT_LEAD

    @property
    def metric(self) -> str:
        """The name under which KEDA knows the metric."""
        return f"kubetide-{self.signal.replace('_', '-')}"

    def value(self, readings: Sequence[float]) -> float | None:
        """Return the value over the pods that report the signal; None if none does."""
        if not readings:
            return None
        if self.aggregate == "max":
            return max(readings)
        total = math.fsum(readings)
        return total if self.aggregate == "sum" else total / len(readings)


def read_trigger(metadata: Mapping[str, str]) -> Trigger:
    """Read the metadata of a trigger; raises InvalidInput that names the field."""
    signal = metadata.get("signal", "")
    if signal not in (*SIGNALS, FORECAST):
        known = ", ".join((*SIGNALS, FORECAST))
        raise InvalidInput(f"{signal!r} is not one of {known}", subject="trigger", field="signal")
    aggregates = ("sum", "average") if signal == FORECAST else AGGREGATES
    aggregate = metadata.get("aggregate", "") or aggregates[0]
    if aggregate not in aggregates:
        raise InvalidInput(f"{aggregate!r} is not one of {', '.join(aggregates)}", subject="trigger", field="aggregate")
    lead = parse_duration(metadata.get("lead") or "5m")
    if not SHORTEST_LEAD <= lead <= LONGEST_LEAD:
        raise InvalidInput("must be between 1m and 1h", subject="trigger", field="lead")
    target = _number(metadata, "target")
    if target <= 0:
        raise InvalidInput("must be above 0", subject="trigger", field="target")
    return Trigger(
        signal=signal,
        selector=parse_selector(metadata.get("selector", "")),
        aggregate=aggregate,
        target=target,
        activation=_number(metadata, "activation") if metadata.get("activation") else 0.0,
        lead=lead,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaler:
    """An external scaler of somebody else, and the external metric it stands for."""

    metric: str
    address: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    ca: str = ""
    """PEM text; empty: without TLS, as KEDA asks scalers by default."""
    timeout: timedelta = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalers:
    """All of them by metric, and what of the ConfigMap cannot be used."""

    by_metric: Mapping[str, Scaler] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def read_scalers(text: str) -> Scalers:
    """Read the declaration of external scalers; raises InvalidInput when it is none."""
    raw = parse_yaml(text, what="scalers") or {}
    listed = raw.get("scalers") or [] if isinstance(raw, dict) else None
    if not isinstance(listed, list):
        raise InvalidInput("is not a list", subject="scalers")
    found: dict[str, Scaler] = {}
    problems: list[str] = []
    for number, one in enumerate(listed[:MOST_SCALERS]):
        try:
            made = _read_scaler(one, f"scalers[{number}]")
            found.setdefault(made.metric, made)
        except KubetideError as error:
            problems.append(str(error))
    if len(listed) > MOST_SCALERS:
        problems.append(f"scalers: more than {MOST_SCALERS}; the rest is left out")
    return Scalers(by_metric=found, problems=tuple(problems))


def _read_scaler(raw: object, place: str) -> Scaler:
    if not isinstance(raw, dict):
        raise InvalidInput("is not a mapping", subject=place)
    metric, address = str(raw.get("metric") or ""), str(raw.get("address") or "")
    host, _, port = address.rpartition(":")
    if not metric:
        raise InvalidInput("is missing", subject=place, field="metric")
    if not host or not port.isdecimal():
        raise InvalidInput(f"{address!r} is not host:port", subject=place, field="address")
    metadata = raw.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InvalidInput("is not a mapping", subject=place, field="metadata")
    timeout = parse_duration(str(raw.get("timeout") or "2s"))
    if not timedelta(0) < timeout <= LONGEST_TIMEOUT:
        limit = LONGEST_TIMEOUT.total_seconds()
        raise InvalidInput(f"must be above 0 and at most {limit:g} s", subject=place, field="timeout")
    texts = {str(key): str(value) for key, value in metadata.items()}
    return Scaler(metric=metric, address=address, metadata=texts, ca=str(raw.get("ca") or ""), timeout=timeout)


def _number(metadata: Mapping[str, str], key: str) -> float:
    try:
        value = float(metadata.get(key, ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput(f"{metadata.get(key, '')!r} is not a number", subject="trigger", field=key)
    return value
