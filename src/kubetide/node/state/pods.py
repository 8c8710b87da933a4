"""The pods of this node, from the kubelet or from the API server.

An empty answer of the kubelet keeps the previous pods: it may just have restarted. An empty list of the API server
counts: there are no pods. The source is chosen once, at start, and stays.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta

import msgspec

from kubetide.api.objects.core import Pod
from kubetide.api.objects.scheme import PODS
from kubetide.api.values.codec import decode
from kubetide.api.values.quantity import parse_quantity
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.log import get_logger
from kubetide.node.core.layout import Layout
from kubetide.node.core.snapshot import PodState, pod_state
from kubetide.node.state.callbacks import Callbacks, News
from kubetide.node.state.kubelet import Kubelet
from kubetide.node.telemetry import RoundGauge
from kubetide.telemetry import Telemetry

log = get_logger("node.state")

_LABELS = ("node", "resource", "unit", "pod_uid", "pod_name", "pod_namespace", "container_id", "container_name")
_EXTENDED = (
    "kubernetes.io/batch-cpu",
    "kubernetes.io/batch-memory",
    "kubernetes.io/mid-cpu",
    "kubernetes.io/mid-memory",
)
_MIN_GAP = 0.2


class _PodList(msgspec.Struct, frozen=True):
    items: tuple[Pod, ...] | None = None


class NodePods:
    """All pods of the node with their classes and cgroups."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        node_name: str,
        layout: Callable[[], Layout],
        callbacks: Callbacks,
        telemetry: Telemetry,
        *,
        sync_interval: timedelta,
        kubelet: Kubelet | None = None,
    ) -> None:
        self.source = "kubelet" if kubelet is not None else "apiserver"
        self.synced = False
        self._node_name = node_name
        self._layout = layout
        self._callbacks = callbacks
        self._interval = sync_interval.total_seconds()
        self._kubelet = kubelet
        self._states: tuple[PodState, ...] = ()
        self._known: dict[str, tuple[Pod, PodState]] = {}
        self._stale = False
        self._poke = asyncio.Event()
        self._informer = Informer(client, PODS, clock=clock, field_selector=f"spec.nodeName={node_name}")
        self._informer.add_handler(lambda old, new: self._changed())
        self._requests = RoundGauge(
            telemetry.gauge(
                "koordlet_container_resource_requests", "Overcommitted resources a container requests.", _LABELS
            )
        )
        self._limits = RoundGauge(
            telemetry.gauge(
                "koordlet_container_resource_limits", "Overcommitted resources a container is limited to.", _LABELS
            )
        )

    def states(self) -> tuple[PodState, ...]:
        """Return all pods; those that did not change are the same objects as before."""
        if self._stale:
            self._stale = False
            self._replace(self._informer.store.values())
        return self._states

    def latest(self) -> tuple[PodState, ...]:
        """Return the pods as `states` gave them last; for other threads, which must not make them anew."""
        return self._states

    def _changed(self) -> None:
        self._stale = True
        if self._informer.has_synced:
            self._callbacks.signal(News.PODS)

    def _replace(self, pods: Iterable[Pod]) -> None:
        paths = self._layout().paths
        known: dict[str, tuple[Pod, PodState]] = {}
        for pod in pods:
            before = self._known.get(pod.metadata.uid)
            known[pod.metadata.uid] = before if before and before[0] is pod else (pod, pod_state(pod, paths))
        self._known = known
        self._states = tuple(state for _, state in known.values())
        self._show()

    def poke(self) -> None:
        """Ask the kubelet soon: a new pod directory appeared."""
        self._poke.set()

    async def run(self) -> None:
        """Follow the pods until cancelled."""
        if self._kubelet is None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._informer.run(), name=self._informer.name)
                await self._informer.wait_synced()
                self._stale = True
                self.synced = True
                self._callbacks.signal(News.PODS)
            return
        while True:
            await self._ask(self._kubelet)
            if self._interval <= 0:
                return
            try:
                async with asyncio.timeout(self._interval):
                    await self._poke.wait()
            except TimeoutError:
                continue
            self._poke.clear()
            # Several directories appear at once; one question answers for all.
            await asyncio.sleep(_MIN_GAP)

    async def _ask(self, kubelet: Kubelet) -> None:
        try:
            pods = decode(await kubelet.pods(), _PodList, what="pods of the kubelet").items or ()
        except KubetideError as error:
            log.warning("kubelet did not answer, the pods stay as they were", error=str(error))
            return
        if not pods:
            log.info("kubelet knows no pods, the pods stay as they were")
            return
        self._replace(pods)
        self.synced = True
        self._callbacks.signal(News.PODS)

    def _show(self) -> None:
        self._requests.begin()
        self._limits.begin()
        for state in self._states:
            who = (state.uid, state.name, state.namespace)
            for container in state.containers:
                resources = container.spec.resources
                if container.status is None or resources is None:
                    continue
                for gauge, amounts, unit in (
                    (self._requests, resources.requests or {}, "integer"),
                    (self._limits, resources.limits or {}, "byte"),
                ):
                    for name in _EXTENDED:
                        if name in amounts:
                            labels = (self._node_name, name, unit, *who, container.id, container.name)
                            gauge.set(labels, float(parse_quantity(amounts[name])))
        self._requests.end()
        self._limits.end()
