"""The lease by which the webhook shows the updater that it lives, and that it really patches.

The updater evicts nothing while the lease is not fresh: the replacement would come back unchanged. Fresh means that
it was made or renewed within the timeout (a minute). kubetide adds three annotations; a lease without them
(upstream's), or renewed by another than who wrote them, is judged by its freshness alone.

    kubetide.io/patching        "true" or "false": whether a pod made as a dry run came back patched
    kubetide.io/patching-since  since when that has been so without a break
    kubetide.io/patching-by     the holder who says so
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from kubetide.api.objects.core import Lease

PATCHING = "kubetide.io/patching"
PATCHING_SINCE = "kubetide.io/patching-since"
PATCHING_BY = "kubetide.io/patching-by"
ADMISSION_LEASE = "vpa-admission-controller"
FRESH = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What the lease reports."""

    fresh: bool
    patching: bool | None = None
    """None: it does not say."""
    since: datetime | None = None

    @property
    def problem(self) -> str:
        """Why the updater must not act; empty when it may."""
        if not self.fresh:
            return "the lease of the admission controller is not fresh: replacements would come back unchanged"
        if self.patching is False:
            return "the admission controller reports that pods come back unpatched"
        return ""


ABSENT = Heartbeat(fresh=False)


def read_heartbeat(lease: Lease, *, now: datetime, timeout: timedelta = FRESH) -> Heartbeat:
    """Judge the lease of the admission controller."""
    times = (lease.metadata.creation_timestamp, lease.spec.renew_time)
    fresh = any(at is not None and at + timeout > now for at in times)
    notes = lease.metadata.annotations or {}
    holder = lease.spec.holder_identity
    said = notes.get(PATCHING) if notes.get(PATCHING_BY, holder) == holder else None
    patching = None if said is None else said == "true"
    return Heartbeat(fresh=fresh, patching=patching, since=_time(notes.get(PATCHING_SINCE)) if patching else None)


def annotations(patching: bool | None, since: datetime | None, holder: str) -> dict[str, str | None]:
    """Return the annotations to write; None removes one."""
    if patching is None:
        return {PATCHING: None, PATCHING_SINCE: None, PATCHING_BY: None}
    at = since.strftime("%Y-%m-%dT%H:%M:%SZ") if patching and since is not None else None
    return {PATCHING: str(patching).lower(), PATCHING_SINCE: at, PATCHING_BY: holder}


def _time(text: str | None) -> datetime | None:
    try:
        at = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None
