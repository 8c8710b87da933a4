"""What components would do: every intent once, as a line for people or a JSON object for programs.

Where intents come from is the same for all: the writes that the transport held back (`kube.client.dry_run`), and for
the two controllers that remember what they did, their decisions themselves: they judge and do not act. What was not
done is wanted again in the next loop, so an intent is told again only when what it would change has changed.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODE_SLOS, NODES, PODS, VPAS
from kubetide.api.values.changes import FieldChange, field_changes
from kubetide.api.values.codec import encode
from kubetide.clock import Clock
from kubetide.hpa.core.observation import ScaleDecision
from kubetide.kube.client.dry_run import HeldWrite
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry

log = get_logger("dry-run")

_KINDS = {each.plural: each.kind for each in (NODES, NODE_SLOS, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, PODS, VPAS)}
_VERBS = {"POST": "create", "PUT": "change", "PATCH": "change", "DELETE": "delete"}
_MOST_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What would be done to an object, and why."""

    component: str
    action: str
    object: str
    changes: tuple[FieldChange, ...] = ()
    why: str = ""
    part: str = ""
    """Which part of the object, where several are written one by one."""

    def as_line(self) -> str:
        """Return it for a person."""
        shown = "; ".join(str(change) for change in self.changes[:_MOST_SHOWN])
        more = len(self.changes) - _MOST_SHOWN
        told = f"  {shown}" + (f"; and {more} more" if more > 0 else "") if shown else ""
        return f"{self.component}: would {self.action} {self.object}{told}" + (f"  ({self.why})" if self.why else "")

    def as_fields(self) -> dict[str, Any]:
        """Return it for a program."""
        changes = [{"field": path, "from": before, "to": after} for path, before, after in self.changes]
        return {
            "component": self.component,
            "action": self.action,
            "object": self.object,
            "changes": changes,
            "why": self.why,
        }


class Asked:
    """A component that does nothing by itself: the others bring it what they decide, and it is asked about that."""

    __slots__ = ()

    def ready(self) -> bool:
        """Always."""
        return True

    def healthy(self) -> bool:
        """Always."""
        return True

    async def run(self) -> None:
        """Do nothing until cancelled."""
        await asyncio.Event().wait()


@dataclass(slots=True)
class Report(Asked):
    """Reports intents, each when it is new; a component of the process, so that it can be asked too."""

    echo: Callable[[str], None]
    clock: Clock
    telemetry: Telemetry
    as_json: bool = False
    name: str = "dry-run"
    explains: Callable[[str, str], dict[str, Any] | None] = lambda kind, key: None
    """Who is asked why; the components, once they are built."""
    closed: bool = False
    told: dict[tuple[str, str], dict[str, Intent]] = field(default_factory=dict)
    """The last intent about every part of an object, by component and object."""
    _evicted: set[str] = field(default_factory=set)
    _problem: str = ""

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return what would be done, for `/explain/dry-run/all`."""
        if (kind, key) != ("dry-run", "all"):
            return None
        return {"intents": [intent.as_fields() for intent in self.intents()]}

    def notes(self) -> tuple[str, ...]:
        """Return a line for health answers: nothing is written."""
        return (f"writes nothing; {len(self.intents())} intents stand",)

    def intents(self) -> list[Intent]:
        """Return what would be done, as far as it was not settled."""
        return [intent for parts in self.told.values() for intent in parts.values()]

    def intend(self, intent: Intent) -> None:
        """Report an intent, unless the same was the last one about this object."""
        parts = self.told.setdefault((intent.component, intent.object), {})
        last = parts.get(intent.part)
        if self.closed or (last is not None and (last.action, last.changes) == (intent.action, intent.changes)):
            return
        parts[intent.part] = intent
        self.telemetry.counter(
            "kubetide_dry_run_intents_total", "What components would have done.", ("component", "action")
        ).labels(intent.component, intent.action.split()[0]).inc()
        at = self.clock.now().isoformat(timespec="seconds")
        self.echo(encode({"at": at, **intent.as_fields()}).decode() if self.as_json else intent.as_line())

    def settled(self, component: str, subject: str) -> None:
        """Take note that nothing would be done to an object any more."""
        self.told.pop((component, subject), None)

    # Where intents come from.

    def decided(self, key: ObjectKey, decision: ScaleDecision) -> None:
        """Hear a decision of the horizontal autoscaler."""
        target = decision.hpa.spec.scale_target_ref
        subject = f"{target.kind} {ObjectKey(key.namespace, target.name)}"
        if not decision.rescale:
            self.settled("hpa", subject)
            return
        change = FieldChange("replicas", decision.current, decision.desired)
        self.intend(Intent(component="hpa", action="scale", object=subject, changes=(change,), why=decision.why))

    async def judged(self, traces: Iterable[dict[str, Any]], problem: str) -> None:
        """Hear what the updater would do to every pod."""
        if problem and problem != self._problem:
            self.echo_note("updater", f"would update nothing: {problem}")
        self._problem = problem
        seen: set[str] = set()
        for trace in traces:
            subject = f"Pod {trace['pod']}"
            seen.add(subject)
            if trace["action"] not in ("evict", "resize"):
                self.settled("updater", subject)
                continue
            action = "evict" if trace["action"] == "evict" else "resize in place"
            changes = tuple(_requests(trace["containers"]))
            why = f"VPA {trace['vpa']}: {trace['reason']}"
            self.intend(Intent(component="updater", action=action, object=subject, changes=changes, why=why))
        for component, subject in [key for key in self.told if key[0] == "updater" and key[1] not in seen]:
            self.settled(component, subject)

    def echo_note(self, component: str, text: str) -> None:
        """Report something that is no intent."""
        self.echo(encode({"component": component, "note": text}).decode() if self.as_json else f"{component}: {text}")

    def holder(self, component: str) -> Callable[[HeldWrite], None]:
        """Return what gets the writes that a component's transport holds back."""
        return lambda write: self._held(component, write)

    def _held(self, component: str, write: HeldWrite) -> None:
        place = write.place
        if place.plural == "events":
            self._event(component, write.after or {})
            return
        if place.subresource == "eviction":
            # Why comes with the event that tells of it.
            self._evicted.add(str(place.key))
            return
        if place.plural not in _KINDS:
            return  # checkpoints and the like: what a component keeps for itself
        subject = f"{_KINDS[place.plural]} {place.key}"
        changes = tuple(field_changes(write.before or {}, write.after or {})) if write.after is not None else ()
        if component == "recommender":
            changes = tuple(_targets(write.before or {}, write.after or {})) or changes
        action = "recommend for" if component == "recommender" else _VERBS[write.method]
        if not changes and action != "delete":
            return
        why = self._why(component, place.key)
        # Status and metadata of one object are written apart, and each on its own.
        part = "" if component == "recommender" else ",".join(sorted(change.path for change in changes))
        self.intend(Intent(component=component, action=action, object=subject, changes=changes, why=why, part=part))

    def _event(self, component: str, event: dict[str, Any]) -> None:
        about = event.get("involvedObject") or {}
        key = str(ObjectKey(str(about.get("namespace", "")), str(about.get("name", ""))))
        if about.get("kind") == "Pod" and key in self._evicted:
            self._evicted.discard(key)
            why = str(event.get("message", ""))
            self.intend(Intent(component=component, action="evict", object=f"Pod {key}", why=why))

    def _why(self, component: str, key: ObjectKey) -> str:
        trace = self.explains("vpa" if component == "recommender" else "node", str(key)) or {}
        if component == "recommender":
            parts = (f"{one['name']} has {one['samples']} samples" for one in trace.get("containers") or ())
            return ", ".join(parts)
        items = (trace.get("overcommit") or {}).get("items") or ()
        return "; ".join(dict.fromkeys(str(item["reason"]) for item in items if item.get("reason")))


def _requests(containers: Iterable[dict[str, Any]]) -> Iterable[FieldChange]:
    for one in containers:
        for resource, amount in (one.get("target") or {}).items():
            before = (one.get("requests") or {}).get(resource)
            if before != amount:
                yield FieldChange(f"{one['name']} {resource}", before, amount)


def targets_of(vpa: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Return the targets in the status of a VPA, by container and resource."""
    recommendation = (vpa.get("status") or {}).get("recommendation") or {}
    return {
        (one.get("containerName", ""), resource): str(amount)
        for one in recommendation.get("containerRecommendations") or ()
        for resource, amount in (one.get("target") or {}).items()
    }


def _targets(before: dict[str, Any], after: dict[str, Any]) -> Iterable[FieldChange]:
    old, new = targets_of(before), targets_of(after)
    for key in dict.fromkeys((*new, *old)):
        if old.get(key) != new.get(key):
            yield FieldChange(" ".join(key), old.get(key), new.get(key))
