"""What happened to an object lately: the rows of its controller, or the events about it, equal ones told once."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from kubetide.api.objects.events import RecordedEvent
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import EVENTS
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client

MOST = 20
"""Rows of events that are shown."""


async def events_about(client: Client, objects: Iterable[tuple[str, ObjectKey]]) -> list[dict[str, Any]]:
    """Return the events about objects, by kind and key, as rows, oldest first; none where events cannot be read."""
    rows: list[dict[str, Any]] = []
    for kind, key in objects:
        chosen = f"involvedObject.kind={kind},involvedObject.name={key.name}"
        try:
            listing = await client.list(EVENTS, namespace=key.namespace or None, field_selector=chosen)
        except KubetideError:
            continue
        rows += [
            {"at": at.isoformat(timespec="seconds").replace("+00:00", "Z"), "reason": one.reason, "text": one.message}
            for one in listing.items
            if (at := _time(one)) is not None
        ]
    return sorted(rows, key=lambda row: str(row["at"]))


def since(rows: Iterable[dict[str, Any]], span: timedelta | None, *, now: datetime) -> list[dict[str, Any]]:
    """Return the rows of the last `span`; all of them without one."""
    if span is None:
        return list(rows)
    return [row for row in rows if (at := _parsed(row.get("at"))) is None or now - at <= span]


def render_events(rows: list[dict[str, Any]]) -> str:
    """Return events for a person, newest first, those that say the same in a row as one."""
    if not rows:
        return ""
    lines = ["Events (newest first)"]
    for text, group in groupby(reversed(rows), key=lambda row: f"{row['reason']}: {row['text']}"):
        alike = list(group)
        count = f"{len(alike)}x" if len(alike) > 1 else ""
        at = alike[0]["at"]
        lines.append(f"  {at[:10]} {at[11:19]}Z {count:>4}  {text}")
    hidden = len(lines) - 1 - MOST
    return "\n".join([*lines[: MOST + 1], *([f"  … {hidden} older"] if hidden > 0 else [])])


def _time(event: RecordedEvent) -> datetime | None:
    return event.last_timestamp or event.event_time or event.first_timestamp or event.metadata.creation_timestamp


def _parsed(text: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return at if at.tzinfo is not None else None
