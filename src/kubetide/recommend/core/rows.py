"""One row per container: what it requests, what it should, what speaks for that, and what it saves.

    high      OOM kills, or memory passed the request and would pass it less often with the recommendation
    medium    a request is missing or too small by more than 5 %
    none      the requests suffice; they may be too large
    unknown   there is no usage to go by

Rows are sorted by risk, then by savings: what is too small comes before what is too large.
"""

from collections.abc import Mapping, Sequence

import msgspec

from kubetide.recommend.core.backtest import Backtest, backtest, until, walk_forward
from kubetide.recommend.core.estimators import Estimated, estimate_all, estimator, percentile_used
from kubetide.recommend.core.money import Prices, monthly
from kubetide.recommend.core.sizing import Options, Planned, limits_for, sized, within
from kubetide.recommend.core.workloads import (
    Bounds,
    Container,
    ContainerKey,
    Estimate,
    Maker,
    Place,
    Sizes,
    Usage,
    Workload,
    key_of,
)

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
    """In hindsight: against the samples that the recommendation was made of."""
    day_by_day: Backtest | None = None
    """Each day against what was recommended from the days before."""


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
    """Of all replicas; of Jobs and CronJobs of those that run on average; negative where more is needed."""
    saved_memory_bytes: int = 0
    saved_money: float | None = None
    """Per month."""
    place: Place | None = None
    """Where its sizes stand in a custom resource."""
    after: tuple[str, ...] = ()
    """The containers before it in its list: kustomize moves what a patch names before all that it does not name."""
    maker: Maker | None = None
    """What makes its pods, where that is another object."""
    managed_by: str = ""
    """What made the workload and would undo a patch."""

    @property
    def key(self) -> ContainerKey:
        """Return what usage is kept under, as `key_of` does."""
        return (self.cluster, self.namespace, self.kind, self.name, self.container)

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
    planned: dict[ContainerKey, Planned] = {}
    for workload in workloads:
        for container in workload.containers:
            key = key_of(workload, container.name)
            planned[key] = Planned(workload, container, None, [])
            if (given := usage.get(key)) is not None and key in estimates:
                series = given if isinstance(given, Usage) else None
                made = sized(estimates[key].size, workload, container, series, chosen)
                planned[key] = Planned(workload, container, made.sizes, made.notes, made.needed)
    within(list(planned.values()), bounds or {})
    for key, each in planned.items():
        if each.sizes is None:
            found.append(_empty(each.workload, each.container, (why_missing or {}).get(key, "no usage found")))
        else:
            found.append(_row(each, each.sizes, usage[key], estimates[key], chosen, prices))
    return sorted(found, key=order)


class Total(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the rows of a namespace save together; negative where it needs more."""

    cluster: str = ""
    namespace: str
    containers: int
    too_small: int
    saved_cpu_millis: int
    saved_memory_bytes: int
    saved_money: float | None = None


def by_namespace(found: Sequence[Row]) -> list[Total]:
    """Return what is saved per namespace, most containers at risk first, then the largest savings."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        groups.setdefault((row.cluster, row.namespace), []).append(row)
    totals = [
        Total(
            cluster=cluster,
            namespace=namespace,
            containers=len(mine),
            too_small=sum(row.risk in RISKS[:2] for row in mine),
            saved_cpu_millis=sum(row.saved_cpu_millis for row in mine),
            saved_memory_bytes=sum(row.saved_memory_bytes for row in mine),
            saved_money=None
            if all(row.saved_money is None for row in mine)
            else sum(row.saved_money or 0.0 for row in mine),
        )
        for (cluster, namespace), mine in groups.items()
    ]
    return sorted(
        totals,
        key=lambda one: (
            -one.too_small,
            -(one.saved_money if one.saved_money is not None else one.saved_cpu_millis / 1000),
            one.cluster,
            one.namespace,
        ),
    )


def order(row: Row) -> tuple[int, float, str, str, str]:
    """Return the place of a row: risk, then savings, then name."""
    saved = (
        row.saved_money if row.saved_money is not None else row.saved_cpu_millis / 1000 + row.saved_memory_bytes / 2**32
    )
    return (RISKS.index(row.risk), -saved, row.cluster, row.workload, row.container)


def _estimates(
    workloads: Sequence[Workload], usage: Mapping[ContainerKey, Usage | Estimate], options: Options
) -> dict[ContainerKey, Estimated]:
    found: dict[ContainerKey, Estimated] = {}
    members: list[tuple[ContainerKey, Usage]] = []
    for workload in workloads:
        for container in workload.containers:
            key = key_of(workload, container.name)
            match usage.get(key):
                case Usage() as series if series.samples:
                    members.append((key, series))
                case Estimate() as one:
                    found[key] = Estimated((one.cpu_millis / 1000, float(one.memory_bytes)))
    results = estimate_all([series for _, series in members], estimator(options.estimator, options.estimators))
    found.update((key, result) for (key, _), result in zip(members, results, strict=True))
    return found


def _row(
    planned: Planned,
    requests: Sizes,
    given: Usage | Estimate,
    estimate: Estimated,
    options: Options,
    prices: Prices | None,
) -> Row:
    workload, container = planned.workload, planned.container
    series = given if isinstance(given, Usage) else None
    limits, more = limits_for(container, requests, options)
    old = container.requests
    pods, seldom = _pods_at_a_time(workload, given)
    cpu_saved, memory_saved = (
        0 if new is None else round(((had or 0) - new) * pods)
        for had, new in ((old.cpu_millis, requests.cpu_millis), (old.memory_bytes, requests.memory_bytes))
    )
    evidence = _evidence(workload, given, old, requests, options)
    if series is not None:
        past = [
            _at_most(sized(size, workload, container, until(series, day), options).sizes, planned.held)
            for day, size in enumerate(estimate.by_day, start=1)
        ]
        evidence = msgspec.structs.replace(evidence, day_by_day=walk_forward(series, past))
    confidence, reason = _confidence(given, workload)
    if evidence.departed_pods:
        more.append(f"{counted(evidence.departed_pods, 'departed pod')} matched by name")
    elif series is not None and workload.kind not in ("DaemonSet", "StatefulSet"):
        more.append("no departed pods in the history")
    more += [*seldom, *_belonging(workload)]
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
        risk=_risk(old, requests, planned.needed, evidence),
        current=_amounts(old, container.limits),
        recommended=_amounts(requests, limits),
        confidence=confidence,
        reason=reason,
        evidence=evidence,
        notes=(*planned.notes, *more),
        saved_cpu_millis=cpu_saved,
        saved_memory_bytes=memory_saved,
        saved_money=None if prices is None else monthly(prices.of(workload), cpu_saved, memory_saved),
        place=container.place,
        after=container.after,
        maker=workload.maker,
        managed_by=workload.managed_by,
    )


def _pods_at_a_time(workload: Workload, given: Usage | Estimate) -> tuple[float, list[str]]:
    """Return how many pods request something on average, with a note where that is not the number of replicas.

    What a Job requests is free again when it has ended: one that runs for an hour a day saves a 24th of its size.
    """
    if workload.kind not in ("Job", "CronJob"):
        return max(0, workload.replicas), []
    if isinstance(given, Estimate):
        return 0, ["no savings: it is not known for how long it runs"]
    average = given.samples / max(1, len(given.cpu))
    if abs(average - workload.replicas) <= TOLERANCE * workload.replicas:
        return average, []
    return average, [f"{average:.2g} pods run on average: savings are of these"]


def _belonging(workload: Workload) -> list[str]:
    """Return where sizes are to be written, where that is not the object that one would look at."""
    if workload.managed_by:
        return [f"{workload.managed_by} makes it: set sizes there, a patch would be undone"]
    if workload.no_template:
        return [f"{workload.no_template}: sizes of its pods today, and no patch"]
    if workload.maker is not None:
        return [f"its pods are made by {workload.maker.kind} {workload.maker.name}, from this template"]
    return []


def lasting(days: float) -> str:
    """Return how long that is, for people."""
    if days >= 1.0:
        return f"{days:.1f} days"
    return f"{days * 24:.1f} hours" if days * 24 >= 1.0 else counted(round(days * 1440), "minute")


def counted(count: int, noun: str) -> str:
    """Return how many there are of something."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _at_most(sizes: Sizes, held: Sizes) -> Sizes:
    """Return the smaller of two sizes each; what is not known bounds nothing."""

    def least(amount: int | None, bound: int | None) -> int | None:
        return amount if amount is None or bound is None else min(amount, bound)

    return Sizes(least(sizes.cpu_millis, held.cpu_millis), least(sizes.memory_bytes, held.memory_bytes))


def _evidence(workload: Workload, given: Usage | Estimate, old: Sizes, new: Sizes, options: Options) -> Evidence:
    if isinstance(given, Estimate):
        return Evidence(source=given.source, days=given.days, samples=given.samples, percentile=percentile_used("vpa"))
    departed = sum(pod not in workload.pods for pod in given.pods)
    return Evidence(
        source=given.source,
        days=round(given.days, 4),
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
    text = f"{lasting(days)}, {samples:,} samples"
    if isinstance(given, Usage):
        text += f" of {counted(len(given.pods), 'pod')}"
    else:
        text += f" in {given.source}, no series to test against"
    if days < 1.0:
        return "low", f"less than a day of history: {text}"
    if days < _ENOUGH_DAYS:
        return "medium", f"less than a week of history: {text}"
    if isinstance(given, Usage) and given.folded:
        return "medium", f"an upper bound, from {given.folded}: {days:.0f} days of {len(given.pods)} pods"
    if samples < _ENOUGH_SAMPLES:
        return "low" if samples < _ENOUGH_SAMPLES / 10 else "medium", f"few samples: {text}"
    return ("high" if isinstance(given, Usage) else "medium"), text


def _risk(old: Sizes, new: Sizes, needed: Sizes, evidence: Evidence) -> str:
    """Return how bad the requests of today are; that they are below some least size does not make them bad."""
    wanted = _at_most(new, needed)
    before, after = evidence.with_current, evidence.with_recommended
    above = (before.memory_days_above or 0) if before is not None else 0
    better = (after.memory_days_above or 0) if after is not None else 0
    if evidence.oom_kills or (_too_small(old.memory_bytes, wanted.memory_bytes) and above > better):
        return "high"
    missing = (old.cpu_millis is None and new.cpu_millis) or (old.memory_bytes is None and new.memory_bytes)
    if missing or _too_small(old.memory_bytes, wanted.memory_bytes) or _too_small(old.cpu_millis, wanted.cpu_millis):
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
        reason=reason if container.name else f"{workload.no_template}: nothing to size, and no patch",
        evidence=Evidence(),
        notes=tuple(_belonging(workload)) if container.name else (),
        place=container.place,
        after=container.after,
        maker=workload.maker,
        managed_by=workload.managed_by,
    )


def _amounts(requests: Sizes, limits: Sizes) -> Amounts:
    return Amounts(
        cpu_request_millis=requests.cpu_millis,
        cpu_limit_millis=limits.cpu_millis,
        memory_request_bytes=requests.memory_bytes,
        memory_limit_bytes=limits.memory_bytes,
    )
