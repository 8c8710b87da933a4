"""What happens in a cluster, in one line per change, with its reason.

Most of it stands in Kubernetes events already: who did what, and why. What has no event (a new recommendation, other
resources after a pod was replaced, overcommitted batch resources) is read from the difference of two versions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kubetide.api.values.quantity import quantity_float
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import ResourceKey
from kubetide.embedded.sim.load.scenario_events import Announcement

Tone = Literal["plain", "good", "warn", "bad"]

_EVENTS: dict[str, Tone] = {
    "ScalingReplicaSet": "plain",
    "SuccessfulRescale": "good",
    "FailedScheduling": "warn",
    "Preempted": "warn",
    "OOMKilling": "bad",
    "BackOff": "warn",
    "BackoffLimitExceeded": "bad",
    "Completed": "plain",
    "EvictedByVPA": "warn",
    "FailedGetResourceMetric": "warn",
    "FailedGetPodsMetric": "warn",
    "evictPodByNodeMemoryUsage": "warn",
    "ResizeDeferred": "warn",
    "ResizeInfeasible": "warn",
}
_ONCE = ("BackOff", "FailedGetResourceMetric", "FailedGetPodsMetric")
"""Repeated while the cause lasts; the first one has it all."""
_VPAS = ResourceKey("autoscaling.k8s.io", "verticalpodautoscalers")
_HPAS = ResourceKey("autoscaling", "horizontalpodautoscalers")
_NODES = ResourceKey("", "nodes")
_PODS = ResourceKey("", "pods")
_EVENT_RESOURCE = ResourceKey("", "events")
_WORTH_TELLING = 0.1
"""Changes of a recommendation below this share are noise to a reader."""
_WORTH_TELLING_BATCH = 0.3


@dataclass(frozen=True, slots=True)
class Line:
    """One change: when, what it is about, what happened and why."""

    at: datetime
    subject: str
    text: str
    tone: Tone = "plain"
    namespace: str = ""

    def render(self) -> str:
        """Return the line as plain text."""
        return f"{self.at:%a %H:%M:%S}  {self.subject:<34}  {self.text}"


class Narrator:
    """Turns changes into lines. `tell` gets each one as it happens."""

    def __init__(self, now: Callable[[], datetime], tell: Callable[[Line], None]) -> None:
        self._now = now
        self._tell = tell
        self._recommended: dict[str, dict[str, float]] = {}
        self._batch: dict[str, tuple[float, float]] = {}
        self._told_batch = (0.0, 0)
        self._autoscaled: set[tuple[str, str]] = set()

    def changed(self, resource: ResourceKey, old: Raw | None, new: Raw | None) -> None:
        """Narrate a change, if it is of a kind that people follow."""
        if new is None:
            return
        if resource == _EVENT_RESOURCE:
            self._event(old, new)
        elif resource == _VPAS:
            self._recommendation(new)
        elif resource == _NODES:
            self._overcommit(new)
        elif resource == _PODS and old is not None and old["spec"] is not new["spec"]:
            self._resize(old, new)
        elif resource == _HPAS:
            target = (new.get("spec") or {}).get("scaleTargetRef") or {}
            self._autoscaled.add((str(new["metadata"].get("namespace")), str(target.get("name"))))

    def _event(self, old: Raw | None, new: Raw) -> None:
        reason = str(new.get("reason"))
        tone = _EVENTS.get(reason)
        again = old is not None and old.get("count") == new.get("count")
        if tone is None or again:
            return
        involved = new.get("involvedObject") or new.get("regarding") or {}
        if (reason in _ONCE and old is not None) or involved.get("kind") == "VerticalPodAutoscaler":
            return
        message = " ".join(str(new.get("message") or new.get("note") or reason).split())
        autoscaled = (involved.get("namespace"), involved.get("name")) in self._autoscaled
        # The autoscaler reports why by itself; what is left is the coming and going of revisions.
        revision = " from 0 " in message or message.endswith(" to 0")
        if reason == "ScalingReplicaSet" and autoscaled and not revision:
            return
        subject = f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"
        self._say(subject, message, tone, str(involved.get("namespace") or ""))

    def _resize(self, old: Raw, new: Raw) -> None:
        changes = []
        before = {c["name"]: (c.get("resources") or {}) for c in old["spec"].get("containers") or ()}
        for container in new["spec"].get("containers") or ():
            was, now = before.get(container["name"], {}), container.get("resources") or {}
            for part, word in (("requests", ""), ("limits", " limit")):
                one, two = was.get(part) or {}, now.get(part) or {}
                changes += [
                    f"{name}{word} {_text(name, one.get(name))} to {_text(name, two.get(name))}"
                    for name in sorted({*one, *two})
                    if one.get(name) != two.get(name)
                ]
        if changes:
            self._say(
                f"pod/{new['metadata']['name']}",
                "resized in place: " + ", ".join(changes),
                "good",
                new["metadata"]["namespace"],
            )

    def _recommendation(self, vpa: Raw) -> None:
        recommendation = (vpa.get("status") or {}).get("recommendation") or {}
        name = vpa["metadata"]["name"]
        for container in recommendation.get("containerRecommendations") or ():
            target = container.get("target") or {}
            amounts = {key: quantity_float(value) for key, value in sorted(target.items())}
            key = f"{vpa['metadata'].get('namespace')}/{name}/{container.get('containerName')}"
            before = self._recommended.get(key)
            if before is not None and all(_close(before.get(k, 0.0), v) for k, v in amounts.items()):
                continue
            self._recommended[key] = amounts
            told = ", ".join(f"{resource} {_amount(resource, value)}" for resource, value in amounts.items())
            was = ""
            if before is not None:
                was = " (was " + ", ".join(f"{k} {_amount(k, v)}" for k, v in before.items()) + ")"
            text = f"recommends {told} for container {container.get('containerName')}{was}"
            self._say(f"vpa/{name}", text, "good", str(vpa["metadata"].get("namespace") or ""))

    def _overcommit(self, node: Raw) -> None:
        """Report batch resources as one sum: nodes follow their load up and down all day, each in its own time."""
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        raw = allocatable.get("kubernetes.io/batch-cpu")
        if raw is None:
            return
        memory = quantity_float(allocatable.get("kubernetes.io/batch-memory", "0"))
        self._batch[node["metadata"]["name"]] = (quantity_float(raw) / 1000, memory)
        cpu = sum(each for each, _ in self._batch.values())
        before, nodes = self._told_batch
        if nodes == len(self._batch) and abs(cpu - before) <= _WORTH_TELLING_BATCH * max(before, 1.0):
            return
        self._told_batch = cpu, len(self._batch)
        held = _amount("memory", sum(each for _, each in self._batch.values()))
        was = f" (was {before:.1f} cores)" if nodes == len(self._batch) else ""
        self._say("nodes", f"overcommit {cpu:.1f} cores and {held} for batch work{was}", "good")

    def announced(self, event: Announcement) -> None:
        """Report a scenario event."""
        text = event.text if not event.seconds else f"{event.text} for {_minutes(event.seconds)}"
        space, _, name = event.subject.rpartition("/")
        subject = f"event/{name}"
        self._tell(Line(self._now(), subject, text, "good" if event.over else "warn", namespace=space))

    def _say(self, subject: str, text: str, tone: Tone, namespace: str = "") -> None:
        self._tell(Line(self._now(), subject, text, tone, namespace=namespace))


def nodes_text(count: int) -> str:
    """Return `1 node` or `3 nodes`."""
    return "1 node" if count == 1 else f"{count} nodes"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"


def _close(before: float, after: float) -> bool:
    return abs(after - before) <= _WORTH_TELLING * max(abs(before), 1e-9)


def _text(resource: str, value: str | float | None) -> str:
    return "none" if value is None else _amount(resource, quantity_float(value))


def _amount(resource: str, value: float) -> str:
    if resource == "cpu":
        return f"{round(value * 1000)}m"
    if resource == "memory":
        return f"{round(value / 2**20)}Mi"
    return f"{value:g}"
