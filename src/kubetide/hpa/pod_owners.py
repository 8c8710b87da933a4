"""Pods that belong to a target by ownership, not by labels alone: opt-in, for selectors that match too much.

A pod counts when the chain of its controlling owners reaches the target of the autoscaler, such as
pod -> ReplicaSet -> Deployment. Who owns a ReplicaSet hardly ever changes, so it is asked once per owner and kept.
Where an owner cannot be read every pod counts, as without this rule: a permission that is missing must not make a
target look idle.
"""

import random
from collections.abc import Sequence
from datetime import timedelta

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import CrossVersionObjectReference, OwnerReference, controller_of, group_of
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.hpa.core.pods import PodList
from kubetide.kube.cache.lookups import Lookups
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.kube.owners import WELL_KNOWN, InvalidOwner
from kubetide.log import get_logger

log = get_logger("hpa")

FRESH = timedelta(minutes=10)
KEPT = timedelta(hours=1)
LONGEST_CHAIN = 8


class PodOwners:
    """Follows controlling owners, with a memory of who owns whom."""

    def __init__(self, client: Client, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._clock = clock
        self._parents: Lookups[str, OwnerReference | None] = Lookups(
            freshness=FRESH.total_seconds(), lifetime=KEPT.total_seconds(), jitter=1.0, rng=rng
        )
        self._unreadable = False

    async def owned(self, pods: Sequence[Pod], namespace: str, target: CrossVersionObjectReference) -> Sequence[Pod]:
        """Return the pods that the target controls; all of them if that cannot be known."""
        try:
            found = [pod for pod in pods if await self._reaches(pod, namespace, target)]
        except KubetideError as error:
            if not self._unreadable:
                log.warning("owners cannot be read, pods count by labels alone", target=target.name, error=str(error))
            self._unreadable = True
            return pods
        self._unreadable = False
        return pods if len(found) == len(pods) else PodList(found)

    async def _reaches(self, pod: Pod, namespace: str, target: CrossVersionObjectReference) -> bool:
        owner = controller_of(pod.metadata)
        for _ in range(LONGEST_CHAIN):
            if owner is None:
                return False
            if (group_of(owner.api_version), owner.kind, owner.name) == (
                group_of(target.api_version),
                target.kind,
                target.name,
            ):
                return True
            owner = await self._parent(owner, namespace)
        return False

    async def _parent(self, owner: OwnerReference, namespace: str) -> OwnerReference | None:
        known, parent = self._parents.get(owner.uid, self._clock.monotonic())
        if known:
            return parent
        resource = WELL_KNOWN.get(owner.kind)
        if resource is None or resource.group != group_of(owner.api_version):
            raise InvalidOwner(f"the owner of {owner.kind} {owner.name} cannot be found out")
        try:
            found = await self._client.get(resource, owner.name, namespace=namespace)
            parent = controller_of(found.metadata) if found.metadata.uid == owner.uid else None
        except NotFound:
            parent = None
        self._parents.put(owner.uid, parent, self._clock.monotonic())
        return parent
