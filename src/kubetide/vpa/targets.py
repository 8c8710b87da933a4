"""What a VPA aims at, and which VPA a pod belongs to: the part of the cluster that all three components share.

Well-known controllers, VPAs and LimitRanges are read from informers; anything else that can be scaled is asked for
its scale object, and the answer is kept for a while (`kube.owners`).
"""

import asyncio
import os
import random
from collections.abc import Callable, Iterable
from typing import Any

from kubetide.api.objects.apps import (
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from kubetide.api.objects.core import LimitRange
from kubetide.api.objects.meta import CrossVersionObjectReference, ObjectKey, ObjectMeta, OwnerReference
from kubetide.api.objects.scheme import LIMIT_RANGES, VPAS
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.selectors import LabelSelector, Selector, parse_selector, selector_from
from kubetide.clock import Clock
from kubetide.errors import KubetideError, SettingsError
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.view import CacheView
from kubetide.kube.client.client import Client
from kubetide.kube.owners import WELL_KNOWN, ControllerKey, OwnerChain, OwnerNotFound
from kubetide.kube.scale import ScaleClient
from kubetide.log import get_logger
from kubetide.vpa.core.limits import NamespaceLimits, namespace_limits
from kubetide.vpa.core.matching import Candidate, controlling, pod_owner

log = get_logger("vpa.targets")

BY_TARGET = "target"


class TargetNotFound(KubetideError):
    """The controller that a VPA names is not there."""


class Targets(CacheView):
    """VPAs, their targets and the owners of pods. `run` keeps the informers going.

    LimitRanges are followed only by those who adjust pods (`limit_ranges`); a recommendation does not depend on them.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        namespace: str = "",
        ignored: Iterable[str] = (),
        limit_ranges: bool = True,
        rng: random.Random | None = None,
    ) -> None:
        self._ignored = frozenset(ignored)
        if namespace and self._ignored:
            raise SettingsError("--vpa-object-namespace and --ignored-vpa-object-namespaces cannot be used together")
        scope = namespace or None
        self.vpas: Informer[VerticalPodAutoscaler] = Informer(
            client, VPAS, clock=clock, namespace=scope, indexes={BY_TARGET: _targets_of}
        )
        self.limit_ranges: Informer[LimitRange] | None = None
        if limit_ranges:
            self.limit_ranges = Informer(client, LIMIT_RANGES, clock=clock, namespace=scope)
            self.limit_ranges.add_handler(lambda old, new: self._forget_limits(old or new))
        self.controllers: dict[str, Informer[Any]] = {
            kind: Informer(client, resource, clock=clock, namespace=scope) for kind, resource in WELL_KNOWN.items()
        }
        self._scales = ScaleClient(client)
        self._owners = OwnerChain(
            client,
            self._scales,
            clock=clock,
            stores={kind: informer.store for kind, informer in self.controllers.items()},
            rng=rng,
        )
        # A pod may be reviewed before the copy has heard of the controller that has just made it.
        self._unseen = OwnerChain(client, self._scales, clock=clock, rng=rng)
        self._limits: dict[str, NamespaceLimits] = {}
        ranges = () if self.limit_ranges is None else (self.limit_ranges,)
        self.informers: tuple[Informer[Any], ...] = (self.vpas, *ranges, *self.controllers.values())
        """All of them are about what is in namespaces."""
        self.caches = self.informers

    async def run(self) -> None:
        """Keep the caches fresh, and what is known of owners, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run(), name="targets")
            group.create_task(self._owners.run(), name=self._owners.name)

    def all_vpas(self) -> list[VerticalPodAutoscaler]:
        """Return the VPAs that are ours to look at."""
        return [vpa for vpa in self.vpas.store.values() if vpa.metadata.namespace not in self._ignored]

    def has_vpas(self, namespace: str) -> bool:
        """Return whether any VPA may have a say about the pods of a namespace."""
        return namespace not in self._ignored and bool(self.vpas.store.in_namespace(namespace))

    def limits_in(self, namespace: str) -> NamespaceLimits:
        """Return the effective LimitRange items of a namespace."""
        if self.limit_ranges is None:
            raise RuntimeError("LimitRanges are not watched here")
        known = self._limits.get(namespace)
        if known is None:
            known = self._limits[namespace] = namespace_limits(self.limit_ranges.store.in_namespace(namespace))
        return known

    def stated_replicas(self, namespace: str, kind: str, name: str) -> int | None:
        """Return how many pods a controller wants (a DaemonSet: has ready); None when it does not report it."""
        informer = self.controllers.get(kind)
        found = informer.store.get(ObjectKey(namespace, name)) if informer is not None else None
        match found:
            case ReplicaSet() | StatefulSet() | ReplicationController() | Deployment():
                return found.spec.replicas
            case DaemonSet():
                return found.status.number_ready
        return None

    async def candidate(self, vpa: VerticalPodAutoscaler) -> Candidate | None:
        """Return a VPA with its selector, or None when its target cannot be read."""
        meta, target = vpa.metadata, vpa.spec.target_ref
        if target is None:
            return None
        try:
            selector = await self.selector(meta.namespace, target)
        except KubetideError as error:
            log.debug("target cannot be read", vpa=f"{meta.namespace}/{meta.name}", error=str(error))
            return None
        return Candidate(
            namespace=meta.namespace,
            name=meta.name,
            created=meta.creation_timestamp,
            target=target,
            selector=selector,
        )

    async def selector(self, namespace: str, target: CrossVersionObjectReference) -> Selector:
        """Return the selector of a target: its own, or that of its scale object."""
        if target.kind not in self.controllers:
            found = (await self._scales.get(namespace, target)).selector
            if not found:
                raise TargetNotFound(f"the scale of {target.kind} {namespace}/{target.name} has no selector")
            return parse_selector(found)
        controller = self.controllers[target.kind].store.get(ObjectKey(namespace, target.name))
        match controller:
            case Deployment() | ReplicaSet() | StatefulSet() | DaemonSet() | Job():
                return selector_from(controller.spec.selector)
            case ReplicationController():
                return selector_from(LabelSelector(match_labels=controller.spec.selector))
            case CronJob():
                template = controller.spec.job_template.spec.template
                labels = template.metadata.labels if template is not None else None
                return selector_from(LabelSelector(match_labels=labels))
        raise TargetNotFound(f"{target.kind} {namespace}/{target.name} does not exist")

    async def topmost(self, namespace: str, owner: OwnerReference) -> ControllerKey | None:
        """Return the controller above an owner that a VPA may name; None when there is none or it cannot be known."""
        key = ControllerKey(namespace=namespace, kind=owner.kind, name=owner.name, api_version=owner.api_version)
        try:
            try:
                return await self._owners.topmost(key)
            except OwnerNotFound:
                return await self._unseen.topmost(key)
        except KubetideError as error:
            log.debug("owner cannot be resolved", owner=str(key), error=str(error))
            return None

    async def controlling(
        self, meta: ObjectMeta, namespace: str, *, counts: Callable[[VerticalPodAutoscaler], bool]
    ) -> VerticalPodAutoscaler | None:
        """Return the VPA that controls a pod, of those that count. The owner is resolved first: it is cheaper."""
        owner = pod_owner(meta)
        top = await self.topmost(namespace, owner) if owner is not None else None
        if top is None or namespace in self._ignored:
            return None
        aimed = self.vpas.store.by_index(BY_TARGET, _target_index(namespace, top.kind, top.name))
        by_name = {vpa.metadata.name: vpa for vpa in aimed if counts(vpa)}
        found = [c for c in [await self.candidate(vpa) for vpa in by_name.values()] if c is not None]
        best = controlling(found, namespace=namespace, labels=meta.labels, kind=top.kind, name=top.name)
        return by_name[best.name] if best is not None else None

    def _forget_limits(self, changed: Any) -> None:
        if changed is not None:
            self._limits.pop(changed.metadata.namespace, None)


def own_namespace(given: str) -> str:
    """Return the namespace that was set, else that of the environment (`NAMESPACE`), else kube-system."""
    return given or os.environ.get("NAMESPACE", "") or "kube-system"


def _targets_of(vpa: VerticalPodAutoscaler) -> list[str]:
    target = vpa.spec.target_ref
    return [] if target is None else [_target_index(vpa.metadata.namespace, target.kind, target.name)]


def _target_index(namespace: str, kind: str, name: str) -> str:
    return f"{namespace}/{kind}/{name}"
