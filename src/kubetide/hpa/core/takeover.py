"""Whether to act at all: kube-controller-manager runs an autoscaler too, and two on one target undo each other.

Two signs say that it is at work: it wrote the status or the scale lately, or its lease is fresh. With a sign and
nothing said about it, kubetide looks and does not act. A sign that cannot be read counts as seen.

| said                                  | no sign | lease only | wrote lately            |
|---------------------------------------|---------|------------|-------------------------|
| nothing                               | act     | look       | look                    |
| --take-over, or managed-by: kubetide  | act     | act        | act, and warn hourly    |
| managed-by: somebody else             | look    | look       | look                    |
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from kubetide.api.objects.core import Lease
from kubetide.api.objects.hpa import ManagedFieldsEntry
from kubetide.hpa.core.annotations import KUBETIDE, Overrides

BUILT_IN_MANAGER = "kube-controller-manager"
LEASE_NAMESPACE = "kube-system"
LEASE_NAME = "kube-controller-manager"
FIELD_MANAGER = "kubetide-hpa"
RECENT_PERIODS = 3
WARN_EVERY = timedelta(hours=1)
DRY_RUN = "dry run"
HAND_OVER = (
    "to hand over, run kube-controller-manager with --controllers=*,-horizontal-pod-autoscaler-controller "
    "and kubetide with --take-over"
)


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of the built-in controller; empty texts say nothing."""

    wrote: str = ""
    runs: str = ""

    @property
    def any(self) -> str:
        return self.wrote or self.runs


class Stance(msgspec.Struct, frozen=True, kw_only=True):
    """Whether kubetide writes, and whether another controller is to be reported."""

    acts: bool
    warn: bool = False
    why: str = ""


def stance(overrides: Overrides, signs: Signs, *, take_over: bool, dry_run: bool) -> Stance:
    """Decide whether to act on one autoscaler."""
    if overrides.managed_by is not None and overrides.managed_by != KUBETIDE:
        return Stance(acts=False, why=f"left to {overrides.managed_by or 'somebody else'} by annotation")
    if overrides.dry_run if overrides.dry_run is not None else dry_run:
        return Stance(acts=False, why=DRY_RUN)
    if take_over or overrides.managed_by == KUBETIDE:
        return Stance(acts=True, warn=bool(signs.wrote), why=signs.wrote)
    if signs.any:
        return Stance(acts=False, warn=True, why=signs.any)
    return Stance(acts=True)


def stance_notes(stances: Iterable[Stance]) -> tuple[str, ...]:
    """Sum up for the health output where kubetide does not act, or not alone; nothing where it simply acts.

    Health is shown to anybody, so autoscalers are counted and not named.
    """
    seen = tuple(stances)
    looking = sum(one.warn and not one.acts for one in seen)
    fighting = sum(one.warn and one.acts for one in seen)
    dry = sum(not one.acts and one.why == DRY_RUN for one in seen)
    left = sum(not one.acts for one in seen) - looking - dry
    lines = (
        (looking, f"looks and does not act: the built-in controller is at work; {HAND_OVER}"),
        (fighting, "acts as told to, but the built-in controller writes too: switch one of them off"),
        (dry, "computes and writes nothing: dry run"),
        (left, "leaves it to another controller, by annotation"),
    )
    return tuple(f"{count} of {len(seen)} autoscalers: {text}" for count, text in lines if count)


def wrote_lately(
    entries: Iterable[ManagedFieldsEntry] | None, subresource: str, *, sync_period: timedelta, now: datetime
) -> bool:
    """Return whether the built-in controller wrote the subresource within three sync periods."""
    return any(
        entry.manager == BUILT_IN_MANAGER
        and entry.subresource == subresource
        and entry.time is not None
        and now - entry.time < RECENT_PERIODS * sync_period
        for entry in entries or ()
    )


def wrote_ever(entries: Iterable[ManagedFieldsEntry] | None) -> bool:
    """Return whether the built-in controller still owns anything of an object, however long ago it wrote it."""
    return BUILT_IN_MANAGER in [entry.manager for entry in entries or ()]


def lease_is_fresh(lease: Lease, *, now: datetime) -> bool:
    """Return whether the holder renewed its lease within the lease's own duration."""
    spec = lease.spec
    if not spec.holder_identity or spec.renew_time is None:
        return False
    return now - spec.renew_time <= timedelta(seconds=spec.lease_duration_seconds)
