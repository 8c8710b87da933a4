"""Who may lead: the rule of the Lease, as pure functions of what was read and when.

A Lease is judged by our own steady clock since its state was first seen, never by the times written in it: the clocks
of two machines need not agree.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from kubetide.api.objects.core import LeaseSpec


class Move(Enum):
    """What a candidate does next."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A state of the Lease and when it was first seen (seconds of our own steady clock)."""

    version: str
    spec: LeaseSpec
    at: float


def see(previous: Sighting | None, version: str, spec: LeaseSpec, *, now: float) -> Sighting:
    """Return the sighting after reading the Lease; the same state keeps the time it was first seen."""
    if previous is not None and previous.version == version:
        return previous
    return Sighting(version=version, spec=spec, at=now)


def next_move(sighting: Sighting | None, identity: str, *, duration: float, now: float) -> Move:
    """Return what a candidate may do with the Lease in that state."""
    if sighting is None:
        return Move.CREATE
    spec = sighting.spec
    if spec.holder_identity == identity:
        return Move.RENEW
    if not spec.holder_identity:
        return Move.TAKE
    return Move.TAKE if now >= sighting.at + (spec.lease_duration_seconds or duration) else Move.WAIT


def claim(current: LeaseSpec | None, identity: str, *, duration: float, now: datetime) -> dict[str, Any]:
    """Return the spec that says `identity` leads from now on, or still does."""
    stamp = micro_time(now)
    mine = current is not None and current.holder_identity == identity
    acquired = micro_time(current.acquire_time) if current is not None and mine and current.acquire_time else stamp
    # The first holder begins at 0; every change of hands counts one.
    transitions = 0 if current is None else current.lease_transitions + (0 if mine else 1)
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": int(duration),
        "acquireTime": acquired,
        "renewTime": stamp,
        "leaseTransitions": transitions,
    }


def released(current: LeaseSpec, *, now: datetime) -> dict[str, Any]:
    """Return the spec of a Lease that its holder gives back; anyone may take it at once."""
    stamp = micro_time(now)
    return {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": stamp,
        "renewTime": stamp,
        "leaseTransitions": current.lease_transitions,
    }


def micro_time(at: datetime) -> str:
    """Return a time as Leases write it: RFC 3339 with microseconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
