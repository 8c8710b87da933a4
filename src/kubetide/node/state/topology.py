"""Keeps the NodeResourceTopology of this node: calculates it every few seconds, writes it when it changed.

The copy in memory is what the agent itself uses; the object is written only while reporting is switched on. Only our
own annotations and zone entries are changed. The object is watched, so a sync in which nothing changed asks nobody.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from kubetide.api.objects.core import Node, Pod
from kubetide.api.objects.meta import ObjectKey, TypedObject
from kubetide.api.objects.scheme import Resource
from kubetide.api.qos import qos, reservation
from kubetide.api.values.codec import decode_raw, encode
from kubetide.api.values.compat import Compat
from kubetide.api.values.cpuset import CpuSet
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, Conflict, NotFound, TooManyRequests
from kubetide.log import get_logger
from kubetide.node.core.compat import ALLOCATIONS_ALWAYS, NEWEST, NUMA_RESERVATION, RESERVATION_WHOLE
from kubetide.node.core.layout import inside
from kubetide.node.core.series.store import Facts
from kubetide.node.core.topology import kubelet as kubelet_rules
from kubetide.node.core.topology import pools, zones
from kubetide.node.host.protocol import Host, is_gone
from kubetide.node.host.worker import Inline, Worker
from kubetide.node.state.callbacks import Callbacks, News
from kubetide.node.state.kubelet import Kubelet
from kubetide.node.state.objects import metadata_below
from kubetide.node.telemetry import RoundGauge
from kubetide.telemetry import Telemetry

log = get_logger("node.topology")


class ReportedTopology(TypedObject, frozen=True, kw_only=True, gc=False):
    """A NodeResourceTopology as far as it is compared."""

    topology_policies: list[str] | None = None
    zones: list[dict[str, Any]] | None = None

    def to_raw(self) -> dict[str, Any]:
        """Return it in the form of the API."""
        return {
            "metadata": {"annotations": self.metadata.annotations, "labels": self.metadata.labels},
            "topologyPolicies": self.topology_policies,
            "zones": self.zones,
        }


TOPOLOGIES: Resource[ReportedTopology] = Resource(
    "topology.node.k8s.io",
    "v1alpha1",
    "noderesourcetopologies",
    "NodeResourceTopology",
    ReportedTopology,
    namespaced=False,
)
MANAGED_BY = {"app.kubernetes.io/managed-by": "Koordinator"}
_ATTEMPTS = 4
_RETRY_SECONDS = 0.01


class NotKnownYet(KubetideError):
    """Facts that the calculation needs are missing."""


class TopologyReporter:
    """Calculates and writes the NodeResourceTopology."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        host: Host,
        facts: Facts,
        callbacks: Callbacks,
        node_name: str,
        *,
        node: Callable[[], Node | None],
        pods: Callable[[], tuple[Pod, ...]],
        interval: timedelta,
        report: bool,
        huge_pages: bool,
        kubelet: Kubelet | None,
        kubelet_root: str,
        telemetry: Telemetry | None = None,
        query_kubelet: bool = True,
        compat: Compat = NEWEST,
        kernel: Worker | None = None,
    ) -> None:
        self.annotations: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.zones: list[dict[str, Any]] = []
        self.policy = kubelet_rules.NONE_POLICY
        self.problem = ""
        self._ignored: tuple[str, ...] = ()
        self._client = client
        self._host = host
        self._facts = facts
        self._callbacks = callbacks
        self._node_name = node_name
        self._node = node
        self._pods = pods
        self._interval = interval.total_seconds()
        self._report = report
        self._huge_pages = huge_pages
        self._kubelet = kubelet
        self._kubelet_root = kubelet_root
        self._query_kubelet = query_kubelet
        self._compat = compat
        self._kernel = kernel or Inline()
        self._pools = _PoolGauges(telemetry or Telemetry(), node_name)
        self._informer = Informer(client, TOPOLOGIES, clock=clock, field_selector=f"metadata.name={node_name}")

    async def run(self) -> None:
        """Calculate and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._report:
                group.create_task(self._informer.run(), name=self._informer.name)
            group.create_task(self._syncs(), name="topology/syncs")

    async def _syncs(self) -> None:
        while True:
            try:
                await self.round()
                self.problem = ""
            except (KubetideError, OSError) as error:
                if self.problem != str(error):
                    self.problem = str(error)
                    log.info("topology not updated", reason=self.problem)
            await asyncio.sleep(self._interval)

    async def round(self) -> None:
        """Sync once."""
        annotations, policy, new = await self.calculate()
        node = self._node()
        labels = zones.labels_of(node.metadata.labels if node else None) if self._compat.has(NUMA_RESERVATION) else {}
        in_memory = {
            "metadata": {"annotations": self.annotations, "labels": self.labels},
            "topologyPolicies": [self.policy],
            "zones": self.zones,
        }
        if zones.changed(in_memory, annotations, policy, new, labels):
            self.annotations, self.policy, self.zones, self.labels = annotations, policy, new, labels
            self._callbacks.signal(News.TOPOLOGY)
        if self._report:
            if not self._informer.has_synced:
                raise NotKnownYet("the NodeResourceTopology was not listed yet")
            known = self._informer.store.get(ObjectKey("", self._node_name))
            if known is None or zones.changed(known.to_raw(), annotations, policy, new, labels):
                await self._write(annotations, policy, new)

    async def calculate(self) -> tuple[dict[str, str], str, list[dict[str, Any]]]:
        """Return annotations, topology policy and zones; raise what keeps them from being known."""
        facts, node = self._facts, self._node()
        if not facts.processors or facts.basic is None or not facts.numa:
            raise NotKnownYet("CPU and NUMA facts are not known yet")
        if node is None:
            raise NotKnownYet("the node is not known yet")
        reserving = self._compat.has(NUMA_RESERVATION) and zones.labels_of(node.metadata.labels)
        new = zones.zones(
            facts.processors,
            facts.numa,
            huge_pages=self._huge_pages,
            reserved=reservation.kubelet_reserved(node) if reserving else None,
        )
        config = kubelet_rules.KubeletConfig()
        annotations: dict[str, Any] = {}
        if self._kubelet is not None:
            config = kubelet_rules.config_from(await self._kubelet.config())
            annotations[qos.ANNOTATION_CPU_MANAGER] = kubelet_rules.manager_annotation(config, facts.processors)
            self._warn_of_ignored(kubelet_rules.negative_reservations(config))
        policy = kubelet_rules.topology_policy(config.topology_policy, config.topology_scope)
        reserved = pools.node_reserved(node.metadata.annotations, facts.processors)
        always = self._compat.has(ALLOCATIONS_ALWAYS)
        state = ""
        if self._query_kubelet or not always:
            state = await self._kernel.call(self._manager_state, "reading the kubelet's CPU manager state")
        pods = self._pods()
        allocations = kubelet_rules.kubelet_allocations(state, pods)
        shared = pools.share_pools(facts.processors, pods, allocations, reserved, node.metadata.annotations)
        self._pools.show(shared)
        annotations |= {
            qos.ANNOTATION_CPU_BASIC_INFO: facts.basic.to_json(),
            qos.ANNOTATION_CPU_TOPOLOGY: pools.cpu_topology(facts.processors),
            qos.ANNOTATION_LS_SHARE_POOLS: [pool.to_json() for pool in shared.latency_sensitive],
            qos.ANNOTATION_BE_SHARE_POOLS: [pool.to_json() for pool in shared.best_effort],
            qos.ANNOTATION_RESERVATION: self._reservation(node, reserved),
            qos.ANNOTATION_SYSTEM_QOS: _system_qos(node.metadata.annotations),
        }
        if allocations or always:
            annotations[qos.ANNOTATION_POD_CPU_ALLOCS] = [one.to_json() for one in allocations] or None
        return {name: encode(value).decode() for name, value in annotations.items()}, policy, new

    def _reservation(self, node: Node, reserved: CpuSet) -> dict[str, Any]:
        """Return the annotation about what the node reserves: the node's own, with the CPUs that were chosen."""
        cpus = {"reservedCPUs": str(reserved)} if len(reserved) else {}
        text = (node.metadata.annotations or {}).get(qos.ANNOTATION_RESERVATION)
        if (
            not text
            or not self._compat.has(RESERVATION_WHOLE)
            or reservation.reservation(node.metadata.annotations) is None
        ):
            return cpus
        whole: dict[str, Any] = decode_raw(text, what=qos.ANNOTATION_RESERVATION)
        return {**whole, **cpus}

    def _warn_of_ignored(self, amounts: tuple[str, ...]) -> None:
        if amounts and amounts != self._ignored:
            log.warning("a negative reserved CPU amount counts as none", node=self._node_name, amounts=list(amounts))
        self._ignored = amounts

    def _manager_state(self) -> str:
        try:
            return self._host.read(inside(self._kubelet_root, "cpu_manager_state"))
        except OSError as error:
            if is_gone(error):
                return ""
            raise

    async def _write(self, annotations: Mapping[str, str], policy: str, new: list[dict[str, Any]]) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                current = await self._client.get_raw(TOPOLOGIES, self._node_name)
            except NotFound:
                await self._create()
                continue
            if not zones.changed(current, annotations, policy, new, self.labels):
                return
            labels = {
                name: text
                for name, text in (current["metadata"].get("labels") or {}).items()
                if name not in zones.LABELS
            }
            kept = {
                name: text
                for name, text in (current["metadata"].get("annotations") or {}).items()
                if name not in zones.ANNOTATIONS
            }
            body = {
                **current,
                "metadata": {
                    **current["metadata"],
                    "labels": {**labels, **self.labels},
                    "annotations": {**kept, **annotations},
                },
                "topologyPolicies": [policy],
                "zones": zones.merge_zones(current.get("zones"), new),
            }
            try:
                await self._client.update(TOPOLOGIES, self._node_name, body)
            except (Conflict, TooManyRequests):
                await asyncio.sleep(_RETRY_SECONDS * 5**attempt)
                continue
            log.debug("topology written", node=self._node_name)
            return

    async def _create(self) -> None:
        body = {
            "apiVersion": TOPOLOGIES.api_version,
            "kind": TOPOLOGIES.kind,
            "metadata": metadata_below(self._node(), self._node_name, dict(MANAGED_BY)),
            "topologyPolicies": [kubelet_rules.NONE_POLICY],
            "zones": [],
        }
        try:
            await self._client.create(TOPOLOGIES, body)
        except AlreadyExists:
            return


class _PoolGauges:
    """How many CPUs are shared, and which ones."""

    def __init__(self, telemetry: Telemetry, node_name: str) -> None:
        self._node_name = node_name
        self._cores = {
            "": telemetry.gauge("koordlet_cpuset_share_pool_cpu_cores", "CPUs that pods share.", ("node",)),
            "be": telemetry.gauge("koordlet_cpuset_be_share_pool_cpu_cores", "CPUs of best-effort pods.", ("node",)),
        }
        labels = ("node", "socket", "numa", "cpuset")
        self._info = {
            "": RoundGauge(telemetry.gauge("koordlet_cpuset_share_pool_info", "CPUs that pods share.", labels)),
            "be": RoundGauge(
                telemetry.gauge("koordlet_cpuset_be_share_pool_info", "CPUs of best-effort pods.", labels)
            ),
        }

    def show(self, shared: pools.SharePools) -> None:
        for name, found in (("", shared.latency_sensitive), ("be", shared.best_effort)):
            self._cores[name].labels(self._node_name).set(sum(len(pool.cpus) for pool in found))
            self._info[name].begin()
            for pool in found:
                self._info[name].set((self._node_name, str(pool.socket), str(pool.node), str(pool.cpus)), 1.0)
            self._info[name].end()


def _system_qos(annotations: Mapping[str, str] | None) -> dict[str, Any] | None:
    found = reservation.system_qos(annotations)
    if found is None:
        return None
    fields = {"cpuset": found.cpuset, "cpusetExclusive": found.cpuset_exclusive}
    return {name: value for name, value in fields.items() if value not in (None, "")}
