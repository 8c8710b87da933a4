"""When certificates that kubetide makes for itself are renewed.

A certificate is renewed after two thirds of its life. A new CA is trusted before it is used: first it goes into the
bundle that the API server is given, beside the old one; only when every API server had time to notice is the server
certificate signed by it. The old CA stays in the bundle until the next rotation. So at no moment is a certificate
shown that somebody does not trust yet.

    keep -> stage (new CA into the bundle) -> [1 minute] -> switch (server certificate of the new CA) -> keep
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

NOTICE = timedelta(minutes=1)


class Rotation(Enum):
    """What to do about the certificates now."""

    KEEP = "keep"
    STAGE = "stage a new CA"
    SWITCH = "sign with the staged CA"
    RENEW = "renew the server certificate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """When the certificates in use cease to be valid, and how long they were meant to live."""

    ca_expires: datetime
    ca_lifetime: timedelta
    server_expires: datetime
    server_lifetime: timedelta
    staged_at: datetime | None = None


def next_rotation(given: Lifetimes, *, now: datetime, notice: timedelta = NOTICE) -> Rotation:
    """Decide what to do about the certificates now."""
    if given.staged_at is not None:
        return Rotation.SWITCH if now - given.staged_at >= notice else Rotation.KEEP
    if _due(given.ca_expires, given.ca_lifetime, now):
        return Rotation.STAGE
    if _due(given.server_expires, given.server_lifetime, now):
        return Rotation.RENEW
    return Rotation.KEEP


def _due(expires: datetime, lifetime: timedelta, now: datetime) -> bool:
    return now >= expires - lifetime / 3
