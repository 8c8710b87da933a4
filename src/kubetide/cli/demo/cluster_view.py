"""What `kubetide.verdicts` looks at, read from the store of a simulated cluster: no request, no waiting, no change."""

from typing import Any

from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.values.codec import convert
from kubetide.embedded.apiserver.rest.status import StatusError
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.verdicts.cluster_reader import STORED
from kubetide.verdicts.core.view import ClusterView


class ClusterViews:
    """Makes views of one cluster. An object that has not changed since the last view is not decoded again."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._decoded: dict[tuple[str, StoreKey], tuple[object, Any]] = {}

    def now(self) -> ClusterView:
        """Return the cluster as it is."""
        kept: dict[tuple[str, StoreKey], tuple[object, Any]] = {}
        members: dict[str, Any] = {}
        for member, resource in STORED.items():
            found = []
            for entry in self._cluster.api.store.collection(ResourceKey(resource.group, resource.plural)).entries():
                before = self._decoded.get((member, entry.key))
                if before is None or before[0] is not entry.obj:
                    before = entry.obj, convert(entry.obj, resource.type, what=str(entry.key))
                kept[member, entry.key] = before
                found.append(before[1])
            members[member] = tuple(found)
        self._decoded = kept
        metrics, absent = self._metrics()
        return ClusterView(now=self._cluster.clock.now(), pod_metrics=metrics, absent=absent, **members)

    def _metrics(self) -> tuple[tuple[PodMetrics, ...], frozenset[str]]:
        try:
            items = self._cluster.metrics.pod_metrics()
        except StatusError:  # an outage
            return (), frozenset({"pods.metrics.k8s.io"})
        return tuple(convert(item, PodMetrics, what="metrics") for item in items), frozenset()
