"""Events as values: what happened to which object, and why.

Pure functions of each capability make them; `control.recorder` publishes them, once per change, and never waits.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from kubetide.api.objects.meta import ObjectReference, TypedObject


class EventType(Enum):
    """Kubernetes knows two."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened to `regarding`. The reason is the machine's word, the message the person's."""

    regarding: ObjectReference
    type: EventType
    reason: str
    message: str
    action: str = ""


def normal(regarding: ObjectReference, reason: str, message: str) -> Event:
    """Return an event about something that went as it should."""
    return Event(regarding=regarding, type=EventType.NORMAL, reason=reason, message=message)


def warning(regarding: ObjectReference, reason: str, message: str) -> Event:
    """Return an event about something a person should look at."""
    return Event(regarding=regarding, type=EventType.WARNING, reason=reason, message=message)


def reference_to(obj: TypedObject, *, kind: str, api_version: str) -> ObjectReference:
    """Return the reference an event needs; items of a list do not know their own kind."""
    meta = obj.metadata
    return ObjectReference(
        api_version=api_version,
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


class RecordedEvent(TypedObject, frozen=True, kw_only=True, gc=False):
    """An event as the API server stores it (core/v1); `events.k8s.io` names its members otherwise."""

    type: str = ""
    reason: str = ""
    message: str = ""
    note: str = ""
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    involved_object: ObjectReference | None = None
    regarding: ObjectReference | None = None
