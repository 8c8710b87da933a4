"""When a cluster goes on that had lived faster than real time, its clock must not go back.

Leases, ages and cool-downs compare times written before with times read now. The stamps that the server itself put
on its objects tell how far the cluster had got.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from kubetide.embedded.status import Raw


def parse_stamp(text: object) -> datetime | None:
    """Return the time that a stamp says, if it says one."""
    if not isinstance(text, str) or not text:
        return None
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def resume_time(objects: Iterable[Raw], now: datetime) -> datetime:
    """Return the time to go on from: `now`, or just after the newest stamp on an object if that is later."""
    newest = max((stamp for obj in objects for stamp in stamps_of(obj.get("metadata") or {})), default="")
    reached = parse_stamp(newest)
    return max(now, reached + timedelta(seconds=1)) if reached is not None else now


def stamps_of(metadata: Raw) -> Iterable[str]:
    """Yield the stamps of the server, all in the one form that it writes, which sorts as text."""
    created = metadata.get("creationTimestamp")
    if isinstance(created, str):
        yield created
    for entry in metadata.get("managedFields") or ():
        if isinstance(entry.get("time"), str):
            yield entry["time"]
