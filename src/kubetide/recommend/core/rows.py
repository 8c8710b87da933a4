"""One row per container: what it requests, what it should, what speaks for that, and what it saves.

    high      OOM kills, or memory passed the request and would pass it less often with the recommendation
    medium    a request is missing or too small by more than 5 %
    none      the requests suffice; they may be too large
    unknown   there is no usage to go by

Rows are sorted by risk, then by savings: what is too small comes before what is too large.
"""

from collections.abc import Mapping, Sequence

import msgspec

from kubetide.recommend.core.backtest import Backtest, backtest
from kubetide.recommend.core.estimators import estimate_all, estimator, percentile_used
from kubetide.recommend.core.money import Prices, monthly
from kubetide.recommend.core.sizing import Options, limits_for, sized
from kubetide.recommend.core.workloads import Bounds, Container, ContainerKey, Estimate, Sizes, Usage, Workload, key_of

RISKS = ("high", "medium", "none", "unknown")
TOLERANCE = 0.05
"""A request within 5 % of the recommendation fits: neighbouring buckets of histograms are that far apart."""
_ENOUGH_DAYS, _ENOUGH_SAMPLES = 7.0, 1000


class Amounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Requests and limits of one container."""

    cpu_request_millis: int | None = None
    cpu_limit_millis: int | None = None
    memory_request_bytes: int | None = None
    memory_limit_bytes: int | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a recommendation rests on."""

    source: str = ""
    days: float = 0.0
    samples: int = 0
    pods: int = 0
    departed_pods: int = 0
    percentile: str = ""
    oom_kills: int = 0
    throttled: float | None = None
    with_current: Backtest | None = None
    with_recommended: Backtest | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The recommendation for one container of one workload."""

    cluster: str = ""
    namespace: str
    api_version: str
    kind: str
    name: str
    container: str
    sidecar: bool = False
    position: int = 0
    """Among the containers of its pod template: a patch in another order would move them."""
    replicas: int
    risk: str
    current: Amounts
    recommended: Amounts | None
    confidence: str
    reason: str
    evidence: Evidence
    notes: tuple[str, ...] = ()
    saved_cpu_millis: int = 0
    """Of all replicas; negative where more is needed."""
    saved_memory_bytes: int = 0
    saved_money: float | None = None
    """Per month."""

    @property
    def workload(self) -> str:
        """Return the name as people write it."""
        return f"{self.namespace}/{self.name}"


def rows(
    workloads: Sequence[Workload],
    usage: Mapping[ContainerKey, Usage | Estimate],
    options: Options | None = None,
    *,
    bounds: Mapping[str, Bounds] | None = None,
    prices: Prices | None = None,
    why_missing: Mapping[ContainerKey, str] | None = None,
) -> list[Row]:
    """Return a row for every container, sorted by risk, then by savings; `bounds` are by cluster."""
    chosen = options or Options()
    found: list[Row] = []
    estimates = _estimates(workloads, usage, chosen)
    for workload in workloads:
        for container in workload.containers:
            key = key_of(workload, container.name)
            given = usage.get(key)
            if given is None or key not in estimates:
                reason = (why_missing or {}).get(key, "no usage found")
                found.append(_empty(workload, container, reason))
                continue
            limits = (bounds or {}).get(workload.cluster, Bounds())
            found.append(_row(workload, container, given, estimates[key], chosen, limits, prices))
    return sorted(found, key=order)


def order(row: Row) -> tuple[int, float, str, str, str]:
    """Return the place of a row: risk, then savings, then name."""
    saved = (
        row.saved_money if row.saved_money is not None else row.saved_cpu_millis / 1000 + row.saved_memory_bytes / 2**32
    )
    return (RISKS.index(row.risk), -saved, row.cluster, row.workload, row.container)


def _estimates(
    workloads: Sequence[Workload], usage: Mapping[ContainerKey, Usage | Estimate], options: Options
) -> dict[ContainerKey, tuple[float, float]]:
    found: dict[ContainerKey, tuple[float, float]] = {}
    by_share: dict[int, list[tuple[ContainerKey, Usage]]] = {}
    for workload in workloads:
        for container in workload.containers:
            key = key_of(workload, container.name)
            match usage.get(key):
                case Usage() as series if series.samples:
                    by_share.setdefault(len(workload.containers), []).append((key, series))
                case Estimate() as one:
                    found[key] = (one.cpu_millis / 1000, float(one.memory_bytes))
    for share, members in sorted(by_share.items()):
        make = estimator(options.estimator, share, options.estimators)
        results = estimate_all([series for _, series in members], make)
        found.update((key, result) for (key, _), result in zip(members, results, strict=True))
    return found


def _row(
    workload: Workload,
    container: Container,
    given: Usage | Estimate,
    estimate: tuple[float, float],
    options: Options,
    bounds: Bounds,
    prices: Prices | None,
) -> Row:
    series = given if isinstance(given, Usage) else None
    requests, notes = sized(estimate, workload, container, series, options, bounds)
    limits, more = limits_for(container, requests, options)
    old = container.requests
    pods = max(0, workload.replicas)
    cpu_saved = ((old.cpu_millis or 0) - (requests.cpu_millis or 0)) * pods if requests.cpu_millis is not None else 0
    memory_saved = (
        ((old.memory_bytes or 0) - (requests.memory_bytes or 0)) * pods if requests.memory_bytes is not None else 0
    )
    evidence = _evidence(workload, given, old, requests, options)
    confidence, reason = _confidence(given, workload)
    if evidence.departed_pods:
        more.append(f"{evidence.departed_pods} departed pods matched by name")
    elif series is not None and workload.kind not in ("DaemonSet", "StatefulSet"):
        more.append("no departed pods in the history")
    return Row(
        cluster=workload.cluster,
        namespace=workload.namespace,
        api_version=workload.api_version,
        kind=workload.kind,
        name=workload.name,
        container=container.name,
        sidecar=container.sidecar,
        position=workload.containers.index(container),
        replicas=workload.replicas,
        risk=_risk(old, requests, evidence),
        current=_amounts(old, container.limits),
        recommended=_amounts(requests, limits),
        confidence=confidence,
        reason=reason,
        evidence=evidence,
        notes=(*notes, *more),
        saved_cpu_millis=cpu_saved,
        saved_memory_bytes=memory_saved,
        saved_money=None if prices is None else monthly(prices.of(workload), cpu_saved, memory_saved),
    )


def _evidence(workload: Workload, given: Usage | Estimate, old: Sizes, new: Sizes, options: Options) -> Evidence:
    if isinstance(given, Estimate):
        return Evidence(source=given.source, days=given.days, samples=given.samples, percentile=percentile_used("vpa"))
    departed = sum(pod not in workload.pods for pod in given.pods)
    return Evidence(
        source=given.source,
        days=round(given.days, 2),
        samples=given.samples,
        pods=len(given.pods),
        departed_pods=departed,
        percentile=percentile_used(options.estimator),
        oom_kills=len(given.ooms),
        throttled=given.throttled,
        with_current=backtest(given, old),
        with_recommended=backtest(given, new),
    )


def _confidence(given: Usage | Estimate, workload: Workload) -> tuple[str, str]:
    days, samples = given.days, given.samples
    text = f"{days:.1f} days, {samples:,} samples"
    if isinstance(given, Usage):
        text += f" of {len(given.pods)} pods" if len(given.pods) != 1 else " of 1 pod"
    else:
        text += f" in {given.source}, no series to test against"
    if days < 1.0:
        return "low", f"less than a day of history: {text}"
    if days < _ENOUGH_DAYS:
        return "medium", f"less than a week of history: {text}"
    if samples < _ENOUGH_SAMPLES:
        return "low" if samples < _ENOUGH_SAMPLES / 10 else "medium", f"few samples: {text}"
    return ("high" if isinstance(given, Usage) else "medium"), text


def _risk(old: Sizes, new: Sizes, evidence: Evidence) -> str:
    before, after = evidence.with_current, evidence.with_recommended
    above = (before.memory_days_above or 0) if before is not None else 0
    better = (after.memory_days_above or 0) if after is not None else 0
    if evidence.oom_kills or (_too_small(old.memory_bytes, new.memory_bytes) and above > better):
        return "high"
    missing = (old.cpu_millis is None and new.cpu_millis) or (old.memory_bytes is None and new.memory_bytes)
    if missing or _too_small(old.memory_bytes, new.memory_bytes) or _too_small(old.cpu_millis, new.cpu_millis):
        return "medium"
    return "none"


def _too_small(old: int | None, new: int | None) -> bool:
    return old is not None and new is not None and old < new * (1.0 - TOLERANCE)


def _empty(workload: Workload, container: Container, reason: str) -> Row:
    return Row(
        cluster=workload.cluster,
        namespace=workload.namespace,
        api_version=workload.api_version,
        kind=workload.kind,
        name=workload.name,
        container=container.name,
        sidecar=container.sidecar,
        position=workload.containers.index(container),
        replicas=workload.replicas,
        risk="unknown",
        current=_amounts(container.requests, container.limits),
        recommended=None,
        confidence="low",
        reason=reason,
        evidence=Evidence(),
    )


def _amounts(requests: Sizes, limits: Sizes) -> Amounts:
    return Amounts(
        cpu_request_millis=requests.cpu_millis,
        cpu_limit_millis=limits.cpu_millis,
        memory_request_bytes=requests.memory_bytes,
        memory_limit_bytes=limits.memory_bytes,
    )
