"""The one checker of all drills: nothing lost, nothing done twice, nothing shrunk on doubt.

It reads the audit log of the API server and nothing else; what a controller believes to have done plays no part.
Users of kubetide are called `kubetide-COMPONENT-REPLICA`; everybody else is the cluster or its people.

*Lost* is what somebody else wrote and kubetide's writes take away:
  - a field outside of what the component may write, or an object replaced without saying which version was read;
  - an object of others that it deletes while what it belongs to is still there;
  - history: a checkpoint that holds fewer samples than before, a recommendation that is there no more.
*Done twice* is an act that was done already:
  - a pod evicted or deleted again, a count or a size written that is in force already;
  - any write of a replica while the Lease of its component belongs to another one.
*Shrunk on doubt* is anything made smaller while what it rests on could not be read:
  - fewer replicas although the newest reading of one of the autoscaler's metrics failed, or there is none;
  - fewer replicas, a lower recommendation, an eviction, or a resize that is not known to grow, in a time that the drill
    names as doubtful (`Doubt`), because an answer was empty or never came, which no status code shows.
What is overcommitted is a loan: less of it on doubt is the careful direction, so that is no shrinking.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from drills.audit import METRICS_GROUPS, WRITES, Event
from drills.bodies import replicas_of, status_of, targets, touched, uid_of
from drills.ownership import OWN, OWNERS, SHARED
from kubetide.api.values.quantity import parse_quantity

Key = tuple[str, str, str]
"""Resource, namespace, name."""

PREFIX = "kubetide-"
LEADERS = ("hpa", "recommender", "updater", "slo", "policy", "plan")
"""Components of which one replica acts: the one that holds the Lease."""

STEADY = 0.99
"""A recommendation that falls by less than a hundredth has not shrunk: percentiles are read from buckets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A time in which something could not be known, and about whom."""

    start: datetime
    end: datetime
    why: str
    namespace: str = ""
    name: str = ""
    """A workload; its pods are called after it. Empty: all."""

    def covers(self, event: Event) -> bool:
        about = not self.namespace or event.namespace == self.namespace
        named = not self.name or event.name == self.name or event.name.startswith(f"{self.name}-")
        return about and named and self.start <= event.at <= self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the log shows."""

    lost: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    writes: int = 0
    """Writes of kubetide that the server accepted, Leases and events left out."""
    acts: int = 0
    """Scales, evictions, resizes and deletions among them."""

    @property
    def offences(self) -> list[str]:
        return [
            f"{what}: {each}"
            for what, found in (("lost", self.lost), ("twice", self.twice), ("on doubt", self.doubtful))
            for each in found
        ]


def judge(events: Iterable[Event], *, doubts: Sequence[Doubt] = (), restored: Sequence[datetime] = ()) -> Findings:
    """Check a whole log, which is read more than once. `restored`: when the server went back to an older state."""
    own = [event.subresource or event.verb for event in events if _is_act_or_write(event)]
    acts = sum(each in ("scale", "eviction", "resize", "delete") for each in own)
    return Findings(
        lost=tuple(lost(events, restored=restored)),
        twice=tuple(done_twice(events, restored=restored)),
        doubtful=tuple(shrunk_on_doubt(events, doubts=doubts, restored=restored)),
        writes=len(own),
        acts=acts,
    )


def component(user: str) -> str:
    """Return the component that a user runs, empty for everybody else; a ServiceAccount may be called as a user is."""
    user = user.rpartition(":")[2]
    return user.removeprefix(PREFIX).rpartition("-")[0] if user.startswith(PREFIX) else ""


def _is_act_or_write(event: Event) -> bool:
    return bool(event.accepted and event.verb in WRITES and component(event.user) and event.resource not in SHARED)


# -- lost


def lost(events: Iterable[Event], *, restored: Sequence[datetime] = ()) -> Iterator[str]:
    """Find what kubetide took away from others, or from what it had learnt."""
    gone: set[Key] = set()
    makers: dict[Key, str] = {}
    checkpoint_of: dict[Key, str] = {}
    samples: dict[Key, int] = {}
    recommended: dict[Key, set[str]] = {}
    past = _Restores(restored)
    for event in events:
        if past.just_before(event):
            samples.clear()
            recommended.clear()
            gone.clear()
        if not event.accepted or event.verb not in WRITES:
            continue
        key = (event.resource, event.namespace, event.name)
        who = component(event.user)
        if who and event.resource not in SHARED:
            yield from _beyond_its_own(event, who)
            if event.verb == "delete" and not _may_delete(key, gone, makers, checkpoint_of):
                yield f"{event} deletes what is still needed"
        if event.verb == "delete" and not event.subresource:
            gone.add(key)
            samples.pop(key, None)
            recommended.pop(key, None)
        elif event.verb == "create" and not event.subresource:
            gone.discard(key)
            makers[key] = who
        if event.resource == "verticalpodautoscalercheckpoints" and event.verb != "delete":
            yield from _fewer_samples(event, key, samples, checkpoint_of)
        if event.kind == "verticalpodautoscalers/status" and who in ("recommender", ""):
            yield from _fewer_recommendations(event, key, recommended)


def _beyond_its_own(event: Event, who: str) -> Iterator[str]:
    allowed = OWN.get(who, {})
    fields = allowed.get(event.kind, allowed.get(f"*/{event.subresource}") if event.subresource else None)
    if fields is None:
        yield f"{event} is none of its business"
    elif event.verb == "update" and not event.subresource and not _version(event):
        yield f"{event} replaces an object whatever it has become"
    elif event.verb == "patch" and "" not in fields:
        foreign = [path for path, _ in touched(event.body) if not path.startswith(fields)]
        if foreign:
            yield f"{event} writes {foreign[0]}"


def _version(event: Event) -> str:
    metadata = event.body.get("metadata") if isinstance(event.body, dict) else None
    return str((metadata or {}).get("resourceVersion") or "")


def _may_delete(key: Key, gone: set[Key], makers: dict[Key, str], checkpoint_of: dict[Key, str]) -> bool:
    resource, namespace, name = key
    if resource == "pods" or makers.get(key) == "policy":
        return True
    if resource == "verticalpodautoscalercheckpoints":
        return ("verticalpodautoscalers", namespace, checkpoint_of.get(key, "")) in gone
    return (OWNERS.get(resource, ""), namespace, name) in gone


def _fewer_samples(event: Event, key: Key, samples: dict[Key, int], checkpoint_of: dict[Key, str]) -> Iterator[str]:
    if isinstance(event.body, dict) and (owner := (event.body.get("spec") or {}).get("vpaObjectName")):
        checkpoint_of[key] = owner
    status = status_of(event)
    count = status.get("totalSamplesCount") if status is not None else None
    if count is None:
        return
    before, samples[key] = samples.get(key, 0), int(count)
    if int(count) < before and component(event.user):
        yield f"{event} leaves {count} samples of {before}"


def _fewer_recommendations(event: Event, key: Key, recommended: dict[Key, set[str]]) -> Iterator[str]:
    status = status_of(event)
    if status is None or "recommendation" not in status:
        return
    now = set(targets(status))
    missing = recommended.get(key, set()) - now
    recommended[key] = now
    if missing and component(event.user):
        yield f"{event} has no recommendation for {', '.join(sorted(missing))} any more"


# -- done twice


def done_twice(events: Iterable[Event], *, restored: Sequence[datetime] = ()) -> Iterator[str]:
    """Find acts that had been done already, and writes of replicas that do not hold the Lease."""
    evicted: set[tuple[str, str, str]] = set()
    counts: dict[Key, int] = {}
    sizes: dict[Key, tuple[str, Any]] = {}
    leases = _Leases()
    past = _Restores(restored)
    for event in events:
        if past.just_before(event):
            evicted.clear()
            counts.clear()
            sizes.clear()
            leases = _Leases()
        if not event.accepted or event.verb not in WRITES:
            continue
        who = component(event.user)
        if event.resource == "leases":
            leases.note(event, who)
            continue
        if who in LEADERS and event.resource not in SHARED and (holder := leases.other(who, event.user)):
            yield f"{event} while the Lease belongs to {holder}"
        yield from _acts_again(event, who, evicted, counts, sizes)


class _Leases:
    """Who holds which Lease, also upstream's components, and which Leases belong to which component of kubetide."""

    def __init__(self) -> None:
        self._holders: dict[tuple[str, str], str] = {}
        self._own: dict[str, set[tuple[str, str]]] = {}

    def note(self, event: Event, who: str) -> None:
        """Take note of a write to a Lease."""
        spec = event.body.get("spec") if isinstance(event.body, dict) else None
        if spec is not None and "holderIdentity" in spec:
            lease = (event.namespace, event.name)
            self._holders[lease] = event.user if spec["holderIdentity"] else ""
            if who:
                self._own.setdefault(who, set()).add(lease)

    def other(self, who: str, user: str) -> str:
        """Return who holds the only Lease of a component instead of a user; empty if he does, or there are more."""
        own = self._own.get(who, set())
        holders = {self._holders[lease] for lease in own}
        return (next(iter(holders)) or "nobody") if len(own) == 1 and user not in holders else ""


def _acts_again(
    event: Event, who: str, evicted: set[Key], counts: dict[Key, int], sizes: dict[Key, tuple[str, Any]]
) -> Iterator[str]:
    key = (event.resource, event.namespace, event.name)
    if event.kind == "pods/eviction" or (event.kind == "pods" and event.verb == "delete"):
        act = (event.namespace, event.name, uid_of(event))
        if who and act in evicted:
            yield f"{event} evicts a pod that was evicted"
        evicted.add(act)
        sizes.pop(key, None)
        return
    if event.kind == "pods" and event.verb == "create":
        evicted -= {one for one in evicted if one[:2] == key[1:]}
        sizes.pop(key, None)
    if event.subresource == "resize":
        wanted = (uid_of(event), [pair for pair in touched(event.body) if not pair[0].startswith("metadata")])
        if who and sizes.get(key) == wanted:
            yield f"{event} writes a size that is in force"
        sizes[key] = wanted
    replicas = replicas_of(event)
    if replicas is not None:
        if who and event.subresource == "scale" and counts.get(key) == replicas:
            yield f"{event} writes {replicas} replicas, which there are"
        counts[key] = replicas
    elif event.verb == "delete" and not event.subresource:
        counts.pop(key, None)


# -- shrunk on doubt


@dataclass(slots=True)
class _Known:
    """What the log has shown so far."""

    counts: dict[Key, int] = field(default_factory=dict)
    metrics: dict[tuple[str, str, str], tuple[Any, ...]] = field(default_factory=dict)
    """Metrics of autoscalers, by kind, namespace and name of their targets."""
    readings: dict[tuple[str, str, str, str], int] = field(default_factory=dict)
    """The last answer by user, metrics API, namespace and metric."""
    targets: dict[tuple[Key, str, str], float] = field(default_factory=dict)
    sizes: dict[tuple[Key, str], float] = field(default_factory=dict)


def shrunk_on_doubt(
    events: Iterable[Event], *, doubts: Sequence[Doubt] = (), restored: Sequence[datetime] = ()
) -> Iterator[str]:
    """Find what was made smaller while what it rests on could not be read."""
    known, past = _Known(), _Restores(restored)
    for event in events:
        if past.just_before(event):
            known = _Known()
        who = component(event.user)
        if event.group in METRICS_GROUPS:
            known.readings[event.user, event.group, event.namespace, _metric_name(event)] = event.code
            continue
        if not event.accepted or event.verb not in WRITES:
            continue
        doubt = next((each.why for each in doubts if each.covers(event)), "") if who else ""
        if event.resource == "horizontalpodautoscalers" and not event.subresource:
            _note_metrics(event, known)
        replicas = replicas_of(event)
        if replicas is not None:
            key = (event.resource, event.namespace, event.name)
            before = known.counts.get(key, replicas + 1 if doubt else replicas)
            known.counts[key] = replicas
            if who and replicas < before:
                doubt = doubt or _unread(event, known)
                if doubt:
                    yield f"{event} shrinks from {before} to {replicas} although {doubt}"
        elif event.kind == "pods/eviction" and doubt:
            yield f"{event} although {doubt}"
        elif event.subresource == "resize" and who:
            smaller = list(_smaller(event, known))
            if doubt and smaller:
                yield f"{event} shrinks {smaller[0]} although {doubt}"
        elif event.kind == "verticalpodautoscalers/status" and who == "recommender":
            lower = list(_lower(event, known))
            if doubt and lower:
                yield f"{event} lowers {lower[0]} although {doubt}"


def _note_metrics(event: Event, known: _Known) -> None:
    spec = event.body.get("spec") if isinstance(event.body, dict) else None
    if spec and (target := spec.get("scaleTargetRef")):
        metrics = spec.get("metrics") or ({"type": "Resource"},)
        known.metrics[str(target.get("kind")).lower() + "s", event.namespace, target["name"]] = tuple(metrics)


def _metric_name(event: Event) -> str:
    """Return what tells metrics of one API apart: the name that follows the namespace."""
    return "" if event.group == "metrics.k8s.io" else event.resource if event.group.startswith("ext") else event.kind


def _unread(event: Event, known: _Known) -> str:
    """Return which metric of the autoscaler of a scale was not readable when its writer last asked."""
    for metric in known.metrics.get((event.resource, event.namespace, event.name), ()):
        kind = metric.get("type")
        if kind == "External":
            name = metric["external"]["metric"]["name"]
            code = known.readings.get((event.user, "external.metrics.k8s.io", event.namespace, name))
        elif kind in ("Resource", "ContainerResource"):
            name = str(kind)
            code = known.readings.get((event.user, "metrics.k8s.io", event.namespace, ""))
            code = known.readings.get((event.user, "metrics.k8s.io", "", "")) if code is None else code
        else:
            about = "pods" if kind == "Pods" else f"{metric['object']['describedObject']['kind'].lower()}s"
            name = metric["pods" if kind == "Pods" else "object"]["metric"]["name"]
            code = known.readings.get((event.user, "custom.metrics.k8s.io", event.namespace, f"{about}/{name}"))
        if code is None or not 200 <= code < 300:
            return f"{name} was never read" if code is None else f"reading {name} was answered with {code}"
    return ""


def _smaller(event: Event, known: _Known) -> Iterator[str]:
    key = (event.resource, event.namespace, event.name)
    for path, value in touched(event.body):
        amounts = value if isinstance(value, dict) else {path.rpartition(".")[2]: value}
        for resource, text in _amounts(amounts):
            where = f"{path}.{resource}"
            amount = float(parse_quantity(str(text)).value) if resource != "cpu" else parse_quantity(str(text)).milli
            before, known.sizes[key, where] = known.sizes.get((key, where)), amount
            # The size at the start is in no request: a first resize in doubt is not known to grow.
            if before is None or amount < before:
                yield where


def _amounts(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _amounts(inner)
        elif name in ("cpu", "memory") and isinstance(inner, str | int):
            yield name, inner


def _lower(event: Event, known: _Known) -> Iterator[str]:
    key = (event.resource, event.namespace, event.name)
    for container, amounts in targets(status_of(event) or {}).items():
        for resource, text in amounts.items():
            amount = float(parse_quantity(str(text)).milli)
            before = known.targets.get((key, container, resource), 0.0)
            known.targets[key, container, resource] = amount
            if amount < before * STEADY:
                yield f"{resource} of {container}"


class _Restores:
    """Notices when the log passes a moment at which the server went back to an older state."""

    def __init__(self, moments: Sequence[datetime]) -> None:
        self._left = sorted(moments)

    def just_before(self, event: Event) -> bool:
        passed = False
        while self._left and self._left[0] <= event.at:
            self._left.pop(0)
            passed = True
        return passed
