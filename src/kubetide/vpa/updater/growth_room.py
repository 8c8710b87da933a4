"""What is left for memory that has to grow: on the node of a pod, and in the quotas of its namespace.

What a node can still promise is its allocatable memory without the requests of all its pods, whosever they are. The
updater's own cache knows them where it holds every pod. Where it holds a part, because replicas share the namespaces or
because it looks after one of them, the pods of the node are read from the API server, which finds them by an index; an
answer is good for two seconds. What cannot be read is not known, which is not the same as empty: `None`.

Two replicas may read the same room at the same moment and both give it away. The kubelet then defers the second
resize, as it does with any that does not fit.
"""

from collections.abc import Container, Iterable
from typing import Final, TypeVar

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.resources import parse_list, pod_requests
from kubetide.api.objects.scheme import PODS, RESOURCE_QUOTAS
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.log import get_logger
from kubetide.vpa.core.policy import MEMORY, container_amounts
from kubetide.vpa.core.sidecars import as_written, with_sidecars
from kubetide.vpa.updater.core.growth import Room, quota_room
from kubetide.vpa.updater.observer import NOT_FINISHED, UpdaterView

T = TypeVar("T")

log = get_logger("updater.memory")

GOOD_SECONDS: Final = 2.0
MOST_KEPT: Final = 1000
"""Answers that are kept, of nodes and of namespaces each."""

_Quotas = tuple[int | None, int | None]


class GrowthRoom:
    """Reads what is left, and remembers what was given away that nobody can read yet."""

    def __init__(self, client: Client, view: UpdaterView, clock: Clock) -> None:
        self._client = client
        self._view = view
        self._clock = clock
        self._granted: dict[str, dict[str, int]] = {}
        self._quotas: dict[str, tuple[float, _Quotas]] = {}
        self._pods: dict[str, tuple[float, tuple[Pod, ...] | None]] = {}

    async def of(self, pod: Pod) -> Room:
        """Return what a pod may still take; raises QuantityError."""
        requests, limits = await self._quota(pod.metadata.namespace)
        pods = await self._on_node(pod.spec.node_name)
        return Room(node=self._left(pod.spec.node_name, pods), quota_requests=requests, quota_limits=limits)

    def promise(self, uid: str, container: str, request: int) -> None:
        """Count a request of a container as taken, before its pod shows it."""
        self._granted.setdefault(uid, {})[container] = request

    def withdraw(self, uid: str) -> None:
        """Count nothing that was promised to a pod."""
        self._granted.pop(uid, None)

    def forget(self, uids: Container[str]) -> None:
        """Drop what was promised to pods that are gone."""
        self._granted = {uid: one for uid, one in self._granted.items() if uid in uids}

    def _left(self, node: str, pods: Iterable[Pod] | None) -> int | None:
        """Return what requests may still take on a node; None where that is not known."""
        found = self._view.nodes.store.get(ObjectKey("", node)) if self._view.nodes is not None else None
        allocatable = parse_list(found.status.allocatable if found is not None else None)
        if pods is None or MEMORY not in allocatable:
            return None
        taken = 0
        for pod in pods:
            requests = pod_requests(as_written(pod))
            taken += requests[MEMORY].value if MEMORY in requests else 0
            taken += self._promised(pod)
        return max(allocatable[MEMORY].value - taken, 0)

    def _promised(self, pod: Pod) -> int:
        """Return what was given to a pod that its spec does not show yet."""
        granted = self._granted.get(pod.metadata.uid)
        if granted is None:
            return 0
        missing = 0
        for spec in pod.spec.containers or ():
            own = container_amounts(spec.name, spec.resources).requests
            missing += max(granted.get(spec.name, 0) - (own[MEMORY].value if MEMORY in own else 0), 0)
        if not missing:
            del self._granted[pod.metadata.uid]
        return missing

    async def _on_node(self, node: str) -> Iterable[Pod] | None:
        """Return all pods of a node that have not finished; None where they cannot be read."""
        if self._view.holds_all_pods:
            return self._view.on_node(node)
        now = self._clock.monotonic()
        at, known = self._pods.get(node, (float("-inf"), None))
        if now - at < GOOD_SECONDS:
            return known
        try:
            listed = await self._client.list(PODS, field_selector=f"{NOT_FINISHED},spec.nodeName={node}", limit=0)
            # A pod that cannot be decoded requests something that nobody can tell.
            known = None if listed.rejected else tuple(map(with_sidecars, listed.items))
        except KubetideError as error:
            known = None
            log.warning("pods of a node cannot be read, memory requests on it stay", node=node, error=str(error))
        _keep(self._pods, node, (now, known))
        return known

    async def _quota(self, namespace: str) -> _Quotas:
        """Return what quotas leave for requests and limits; the API server has the last word anyway."""
        now = self._clock.monotonic()
        at, known = self._quotas.get(namespace, (float("-inf"), (None, None)))
        if now - at < GOOD_SECONDS:
            return known
        try:
            known = quota_room((await self._client.list(RESOURCE_QUOTAS, namespace=namespace)).items)
        except KubetideError as error:
            log.debug("quotas cannot be read", namespace=namespace, error=str(error))
        _keep(self._quotas, namespace, (now, known))
        return known


def _keep(kept: dict[str, T], name: str, answer: T) -> None:
    if len(kept) >= MOST_KEPT:
        kept.clear()
    kept[name] = answer
