"""What the cluster has room for, as the ceilings of recommendations ask for it (`vpa.core.ceilings`).

Watched are only the kinds that a ceiling needs. Nothing is decided before they are known: a recommendation that was
capped must not rise for a moment because a list is late.
"""

import random
from collections.abc import Callable, Mapping, Sequence

from kubetide.api.objects.core import LimitRange, Node, Pod, ResourceQuota
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import LIMIT_RANGES, RESOURCE_QUOTAS
from kubetide.api.objects.scheme import NODES as NODE_RESOURCE
from kubetide.clock import Clock
from kubetide.errors import InvalidInput
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.view import CacheView
from kubetide.kube.client.client import Client
from kubetide.log import get_logger
from kubetide.vpa.core.ceilings import NODES, QUOTAS, RANGES, Room, Workload, under_ceilings
from kubetide.vpa.core.limits import NamespaceLimits, namespace_limits
from kubetide.vpa.core.policy import Recommended
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.settings import RecommenderSettings

log = get_logger("vpa.recommender")

_ENDED = ("Succeeded", "Failed")


class ClusterRoom(CacheView):
    """Nodes, LimitRanges and quotas, where a ceiling asks for them."""

    def __init__(self, client: Client, *, clock: Clock, settings: RecommenderSettings, rng: random.Random) -> None:
        asked, namespace = settings.ceilings, settings.vpa_object_namespace or None
        self._nodes: Informer[Node] | None = None
        self._ranges: Informer[LimitRange] | None = None
        self._quotas: Informer[ResourceQuota] | None = None
        if NODES in asked:
            self._nodes = Informer(client, NODE_RESOURCE, clock=clock, rng=rng)
        if RANGES in asked:
            self._ranges = Informer(client, LIMIT_RANGES, clock=clock, namespace=namespace, rng=rng)
        if QUOTAS in asked:
            self._quotas = Informer(client, RESOURCE_QUOTAS, clock=clock, namespace=namespace, rng=rng)
        self.caches = [cache for cache in (self._nodes, self._ranges, self._quotas) if cache is not None]

    def look(self) -> Room:
        """Return what there is room for now."""
        return Room(
            nodes=None if self._nodes is None else tuple(self._nodes.store.values()),
            ranges=None if self._ranges is None else self._limits(self._ranges),
            quotas=None if self._quotas is None else tuple(self._quotas.store.values()),
        )

    def cap(
        self,
        vpas: Sequence[VpaState],
        found: Mapping[ObjectKey, tuple[Recommended, ...]],
        pods: Callable[[ObjectKey], Pod | None],
        replicas: Callable[[VpaState], int | None],
    ) -> dict[ObjectKey, tuple[Recommended, ...]]:
        """Return what the cluster has room for of what was found, and remember with each VPA why it is less."""
        workloads = []
        for vpa in vpas:
            listed = [pods(key) for labels in vpa.label_sets.values() for key in labels.pods]
            workloads.append(
                Workload(
                    key=vpa.key,
                    found=found.get(vpa.key, ()),
                    policy=vpa.policy,
                    pods=[pod for pod in listed if pod is not None and pod.status.phase not in _ENDED],
                    replicas=replicas(vpa),
                    held=vpa.quota_caps,
                )
            )
        capped = under_ceilings(workloads, self.look())
        result = {}
        for vpa in vpas:
            one = capped[vpa.key]
            vpa.capped, vpa.quota_caps = one.notes, one.held
            # The very tuple of the last loop while nothing differs: then nothing is decided again.
            if vpa.allowed != one.found:
                vpa.allowed = one.found
            result[vpa.key] = vpa.allowed
        return result

    def _limits(self, ranges: Informer[LimitRange]) -> dict[str, NamespaceLimits]:
        listed: dict[str, list[LimitRange]] = {}
        for one in ranges.store.values():
            listed.setdefault(one.metadata.namespace, []).append(one)
        found = {}
        for namespace, own in listed.items():
            try:
                found[namespace] = namespace_limits(own)
            except InvalidInput as error:
                log.debug("LimitRanges cannot be read", namespace=namespace, error=str(error))
        return found
