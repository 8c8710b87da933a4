"""How kubetide itself is doing: who leads, whether pods are patched, how long certificates last, API latency."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubetide.api.objects.core import Lease, Pod
from kubetide.api.values.conditions import is_true
from kubetide.dashboard.core.model import Tone
from kubetide.dashboard.core.overview import Problem, problem
from kubetide.verdicts.core.finding import age
from kubetide.verdicts.core.view import ClusterView, is_live
from kubetide.verdicts.core.webhook import judge_webhook

SOON = timedelta(days=7)
"""A certificate that ends sooner is worth a warning."""
SHARD_RANGES = "kubetide.io/shard-ranges"
_NAME, _COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
_ANNOUNCED = "kubetide.io/status-"
_SHARD = re.compile(r"-(\d+)-of-(\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """Who leads, and since when nothing was heard of it."""

    name: str
    namespace: str
    holder: str
    renewed: str
    tone: Tone
    transitions: int
    place: str
    """Where it announces that it can be asked."""
    shard: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """The pods of one component of kubetide in the cluster."""

    name: str
    ready: int
    pods: int
    restarts: int
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate and when it ends."""

    name: str
    ends: datetime | None
    text: str
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """Whether something may be listed, and why not."""

    resource: str
    allowed: bool
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long requests of the dashboard to the API server took, in seconds."""

    requests: int = 0
    failed: int = 0
    median: float | None = None
    p95: float | None = None
    reading: float | None = None
    """How long the last look at the whole cluster took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The page."""

    components: tuple[Component, ...]
    leases: tuple[LeaseRow, ...]
    leases_unknown: str
    webhook: tuple[Problem, ...]
    certificates: tuple[Certificate, ...]
    permissions: tuple[Permission, ...]
    absent: tuple[str, ...]
    latency: Latency
    processes: tuple[tuple[str, str], ...]
    """Who answered, and what about."""


def health(
    view: ClusterView,
    leases: Sequence[Lease] | None,
    *,
    leases_unknown: str = "",
    certificates: Mapping[str, datetime | None] | None = None,
    permissions: Sequence[Permission] = (),
    latency: Latency | None = None,
    processes: Sequence[tuple[str, str]] = (),
) -> Health:
    """Return the page; `certificates` are the ends of those that webhooks are registered with."""
    return Health(
        components=tuple(components(view)),
        leases=tuple(lease_row(lease, view.now) for lease in leases or ()),
        leases_unknown=leases_unknown,
        webhook=tuple(problem(finding) for finding in judge_webhook(view)),
        certificates=tuple(_certificate(name, ends, view.now) for name, ends in (certificates or {}).items()),
        permissions=tuple(permissions),
        absent=tuple(sorted(view.absent)),
        latency=latency or Latency(),
        processes=tuple(processes),
    )


def components(view: ClusterView) -> list[Component]:
    """Return what runs of kubetide as pods, by component, as far as its pods can be read."""
    found: dict[str, list[Pod]] = {}
    for pod in view.pods:
        labels = pod.metadata.labels or {}
        if labels.get(_NAME) == "kubetide" and is_live(pod):
            found.setdefault(labels.get(_COMPONENT, "kubetide"), []).append(pod)
    rows = []
    for name, pods in sorted(found.items()):
        ready = sum(is_true(pod.status.conditions, "Ready") for pod in pods)
        restarts = sum(one.restart_count for pod in pods for one in pod.status.container_statuses or ())
        tone: Tone = "good" if ready == len(pods) else "warn" if ready else "bad"
        rows.append(Component(name=name, ready=ready, pods=len(pods), restarts=restarts, tone=tone))
    return rows


def lease_row(lease: Lease, now: datetime) -> LeaseRow:
    """Return one lease; a holder that has not renewed it in time no longer leads."""
    spec, notes = lease.spec, lease.metadata.annotations or {}
    renewed = spec.renew_time
    valid = timedelta(seconds=spec.lease_duration_seconds or 60)
    tone: Tone = "good"
    if not spec.holder_identity or renewed is None:
        tone = "warn"
    elif now - renewed > valid:
        tone = "bad"
    name = lease.metadata.name
    return LeaseRow(
        name=name,
        namespace=lease.metadata.namespace,
        holder=spec.holder_identity or "nobody",
        renewed="never" if renewed is None else f"{age(renewed, now)} ago",
        tone=tone,
        transitions=spec.lease_transitions,
        place=notes.get(f"{_ANNOUNCED}pod") or notes.get(f"{_ANNOUNCED}address", ""),
        shard=_shard(name, notes.get(SHARD_RANGES, "")),
    )


def _shard(name: str, ranges: str) -> str:
    """Return the share of a replica: of those that are numbered by its name, of those that divide by what it claims."""
    if numbered := _SHARD.search(name):
        return f"{numbered[1]}/{numbered[2]}"
    with suppress(ValueError):  # a digit stands for four ranges
        return f"{int(ranges, 16).bit_count()} of {4 * len(ranges)} ranges" if ranges else ""
    return "?"


def _certificate(name: str, ends: datetime | None, now: datetime) -> Certificate:
    if ends is None:
        return Certificate(name=name, ends=None, text="cannot be read", tone="warn")
    if ends <= now:
        return Certificate(name=name, ends=ends, text=f"ended {age(ends, now)} ago", tone="bad")
    left = ends - now
    return Certificate(name=name, ends=ends, text=f"ends in {age(now, ends)}", tone="warn" if left < SOON else "good")


def latency_of(seconds: Sequence[float], *, failed: int, reading: float | None) -> Latency:
    """Return the figures of requests."""
    ordered = sorted(seconds)
    if not ordered:
        return Latency(failed=failed, reading=reading)
    return Latency(
        requests=len(ordered),
        failed=failed,
        median=ordered[(len(ordered) - 1) // 2],
        p95=ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))],
        reading=reading,
    )
