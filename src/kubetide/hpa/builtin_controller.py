"""Looks out for the built-in controller: its lease, and its marks on autoscalers and targets.

The lease is one object for the whole cluster, so it is read once for all reconciles of a few seconds. The target is
read where its marks can decide: in any reconcile of an autoscaler whose status the built-in controller has ever
written, and before its scale is written, unless the write is held to a version whose writers are known. If the lease
alone forbids to act, nothing more is asked.
"""

from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaMeta
from kubetide.api.objects.hpa_compat import SAME_AS_NEWEST
from kubetide.api.objects.meta import TypedObject
from kubetide.api.objects.scheme import LEASES, Resource
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.hpa.core.annotations import NO_OVERRIDES, Overrides
from kubetide.hpa.core.takeover import (
    LEASE_NAME,
    LEASE_NAMESPACE,
    Signs,
    Stance,
    lease_is_fresh,
    stance,
    wrote_ever,
    wrote_lately,
)
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.kube.handover import in_cluster, warn_of
from kubetide.kube.scale import ScaleTarget

LEASE_SECONDS = 5.0
"""How long what the lease showed is taken to be so."""


class _Target(TypedObject, frozen=True, kw_only=True, gc=False):
    metadata: HpaMeta = HpaMeta()


class BuiltInWatch:
    """Finds out whether kubetide may act beside kube-controller-manager."""

    def __init__(self, client: Client, clock: Clock, settings: HpaSettings) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._lease_text = ""
        self._lease_read_at: float | None = None
        self._of_all: tuple[str, Stance] | None = None
        """What follows for most autoscalers from the lease, and from which text of it."""

    async def stance(
        self, hpa: HorizontalPodAutoscaler, overrides: Overrides, target: ScaleTarget | None, *, rescale: bool
    ) -> Stance:
        """Decide whether to act in this reconcile."""
        if overrides is NO_OVERRIDES and not rescale and not wrote_ever(hpa.metadata.managed_fields):
            return await self.stance_of_all()
        told = self._settings.take_over or overrides.managed_by is not None
        runs = "" if told else await self._lease_holder()
        marked = wrote_ever(hpa.metadata.managed_fields)
        decisive = rescale if told else not runs and (rescale or marked)
        wrote = await self._marks(hpa, target if decisive else None, held=rescale) if decisive or marked else ""
        signs = Signs(wrote=wrote, runs=runs)
        return stance(overrides, signs, take_over=self._settings.take_over, dry_run=self._settings.dry_run)

    async def stance_of_all(self) -> Stance:
        """Decide for all that have no annotation and no mark of the built-in controller, and are not rescaled."""
        settings = self._settings
        runs = "" if settings.take_over else await self._lease_holder()
        if self._of_all is None or self._of_all[0] != runs:
            found = stance(NO_OVERRIDES, Signs(runs=runs), take_over=settings.take_over, dry_run=settings.dry_run)
            self._of_all = runs, found
        return self._of_all[1]

    async def compare_versions(self) -> None:
        """Warn where the built-in controller is of another release than the one that is followed."""
        alike = map(str, SAME_AS_NEWEST)
        found = await in_cluster(self._client)
        warn_of(found, "hpa", str(self._settings.compat_rules.version), alike=tuple(alike))

    async def _lease_holder(self) -> str:
        """Return what the lease shows, or showed a moment ago; empty if nobody holds it."""
        now = self._clock.monotonic()
        if self._lease_read_at is None or now - self._lease_read_at >= LEASE_SECONDS:
            self._lease_text = await self._read_lease()
            self._lease_read_at = now
        return self._lease_text

    async def _read_lease(self) -> str:
        name = f"{LEASE_NAMESPACE}/{LEASE_NAME}"
        try:
            lease = await self._client.get(LEASES, LEASE_NAME, namespace=LEASE_NAMESPACE)
        except NotFound:
            return ""
        except KubetideError as error:
            return f"the lease {name} cannot be read: {error}"
        if lease_is_fresh(lease, now=self._clock.now()):
            return f"the lease {name} is held by {lease.spec.holder_identity}"
        return ""

    async def _marks(self, hpa: HorizontalPodAutoscaler, target: ScaleTarget | None, *, held: bool) -> str:
        """Return what the built-in controller wrote lately; empty if nothing. A write will be `held` to its version."""
        period, now = self._settings.sync_period, self._clock.now()
        if wrote_lately(hpa.metadata.managed_fields, "status", sync_period=period, now=now):
            return "kube-controller-manager wrote the status of this object lately"
        if target is None:
            return ""
        found, writers = target.resource, target.managed_fields if held else None
        if writers is None:
            resource = Resource(found.group, found.version, found.plural, found.kind, _Target, found.namespaced)
            try:
                read = await self._client.get(resource, target.name, namespace=target.namespace)
            except NotFound:
                return ""
            except KubetideError as error:
                return f"the writers of {found.kind} {target.name} cannot be read: {error}"
            writers = read.metadata.managed_fields
        if wrote_lately(writers, "scale", sync_period=period, now=now):
            return f"kube-controller-manager wrote the scale of {found.kind} {target.name} lately"
        return ""
