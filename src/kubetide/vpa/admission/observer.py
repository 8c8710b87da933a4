"""What the webhook has to know about a pod: its VPA, the limits of its namespace, usage and nodes."""

import asyncio
import random
from dataclasses import replace

from kubetide.api.objects.core import Node, Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.objects.resources import parse_list
from kubetide.api.objects.scheme import NODES
from kubetide.api.objects.vpa import OFF, VerticalPodAutoscaler, update_mode
from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.api.values.selectors import EVERYTHING, Selector
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.view import CacheView
from kubetide.kube.client.client import Client
from kubetide.kube.metrics import ResourceMetrics
from kubetide.log import get_logger
from kubetide.vpa.admission.core.mutate import Fitted, SizeLimits, amounts_of, fit_pod
from kubetide.vpa.admission.core.review import PodContext, shrinks_memory
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.core.boost import Boosted, boost, has_boost
from kubetide.vpa.core.limits import NamespaceLimits
from kubetide.vpa.core.policy import CPU
from kubetide.vpa.core.safety import Usage, largest, largest_usage, memory_usage
from kubetide.vpa.core.scope import for_group, scope_of, scope_value
from kubetide.vpa.targets import Targets

log = get_logger("admission")

USAGE_FRESH = 30.0
USAGE_TIMEOUT = 1.0
"""A pod must not wait long for numbers that only make its memory a little larger."""


class AdmissionView(CacheView):
    """Caches of what the webhook needs, and the questions it asks of them."""

    def __init__(self, client: Client, *, clock: Clock, settings: AdmissionSettings, rng: random.Random) -> None:
        self._clock = clock
        self._settings = settings
        self._metrics = ResourceMetrics(client)
        self._boosts = settings.gate("CPUStartupBoost")
        self._gated = SizeLimits(
            limit_ratio=settings.gate("RequestToLimitRatio"), pod_level=settings.gate("VPAPodLevelResources")
        )
        largest_boost = settings.max_allowed_cpu_boost
        self._largest_boost = parse_quantity(largest_boost) if largest_boost else None
        self._usage: dict[tuple[str, str], tuple[float, Usage | None]] = {}
        self._offers: tuple[dict[str, Quantity], ...] | None = None
        self.targets = Targets(
            client,
            clock=clock,
            namespace=settings.vpa_object_namespace,
            ignored=settings.ignored_vpa_object_namespaces,
            rng=rng,
        )
        self._scopes = settings.gate("DaemonSetScope")
        self._fits = settings.fit_nodes and not settings.upstream_behavior
        self.nodes: Informer[Node] | None = None
        if self._fits or self._scopes:
            self.nodes = Informer(client, NODES, clock=clock)
            self.nodes.add_handler(lambda old, new: self._node_changed())
        self.caches = [cache for cache in (self.targets, self.nodes) if cache is not None]

    async def selected(self) -> list[tuple[str, Selector]]:
        """Return the namespaces and selectors of all VPAs that have a say about new pods."""
        found = []
        for vpa in self.targets.all_vpas():
            if vpa.spec.target_ref is not None and self._counts(vpa):
                candidate = await self.targets.candidate(vpa)
                # A target that is gone may come back at any time, and its pods with it.
                found.append((vpa.metadata.namespace, EVERYTHING if candidate is None else candidate.selector))
        return found

    async def context(self, pod: Pod, namespace: str) -> PodContext | None:
        """Return what decides about a pod, or None when no VPA controls it."""
        if not self.targets.has_vpas(namespace):
            return None
        vpa = await self.targets.controlling(pod.metadata, namespace, counts=self._counts)
        if vpa is None:
            return None
        if self._scopes and (scope := scope_of(vpa)):
            vpa = self._of_group(vpa, scope, pod.spec.node_name)
        ranges = self.targets.limits_in(namespace)
        if self._settings.upstream_behavior:
            fitted = fit_pod(pod, vpa, ranges, self._gated)
            return PodContext(vpa=vpa, fitted=fitted, boosted=self._boost(pod, vpa, fitted, ranges))
        headroom = self._settings.memory_headroom
        scoped = self._scopes and scope_of(vpa)
        limits = replace(self._gated, nodes=self._nodes(pod.spec.node_name if scoped else ""))
        fitted = fit_pod(pod, vpa, ranges, limits)
        if headroom >= 0 and shrinks_memory(pod, fitted):
            usage = await self._usage_of(vpa, namespace)
            fitted = fit_pod(pod, vpa, ranges, replace(limits, usage=usage, headroom=headroom))
        return PodContext(vpa=vpa, fitted=fitted, boosted=self._boost(pod, vpa, fitted, ranges))

    def _of_group(self, vpa: VerticalPodAutoscaler, scope: str, node: str) -> VerticalPodAutoscaler:
        """Return the VPA with the recommendation for the group of a node; an unknown node is of no group."""
        found = self.nodes.store.get(ObjectKey("", node)) if self.nodes is not None else None
        if found is None:
            log.info("node of a pod is unknown, its group cannot be told", vpa=vpa.metadata.name, node=node)
            return for_group(vpa, None)
        return for_group(vpa, scope_value(found.metadata.labels, scope))

    def _boost(self, pod: Pod, vpa: VerticalPodAutoscaler, fitted: Fitted, ranges: NamespaceLimits) -> Boosted | None:
        if not self._boosts or not has_boost(vpa):
            return None
        if fitted.pod is not None and CPU in fitted.pod.new.requests:
            # What the pod as a whole requests is set for its life: boosted containers would not fit into it.
            return None
        return boost(vpa, amounts_of(pod), fitted.containers, ranges, maximum=self._largest_boost)

    def _counts(self, vpa: VerticalPodAutoscaler) -> bool:
        """Return whether a VPA has a say about new pods."""
        return update_mode(vpa) != OFF or (self._boosts and has_boost(vpa))

    async def _usage_of(self, vpa: VerticalPodAutoscaler, namespace: str) -> Usage | None:
        """Return the memory in use by the workload. Nothing running: no rule (None). Unreadable: all unknown."""
        candidate = await self.targets.candidate(vpa)
        key = (namespace, str(candidate.selector) if candidate is not None else "")
        now = self._clock.monotonic()
        known = self._usage.get(key)
        if known is not None and now - known[0] < USAGE_FRESH:
            return known[1]
        try:
            async with asyncio.timeout(USAGE_TIMEOUT):
                listed: tuple[PodMetrics, ...] = await self._metrics.pods(namespace, key[1])
        except (KubetideError, TimeoutError) as error:
            log.warning("usage cannot be read, memory is not shrunk", namespace=namespace, error=str(error))
            return {}
        usage = largest_usage(memory_usage(pod) for pod in listed) if listed else None
        if len(self._usage) > 10_000:
            self._usage.clear()
        self._usage[key] = (now, usage)
        return usage

    def _nodes(self, bound: str = "") -> tuple[dict[str, Quantity], ...]:
        """Return what the nodes offer: all of them, or the one that a pod is bound to."""
        if self.nodes is None or not self._fits:
            return ()
        if bound:
            node = self.nodes.store.get(ObjectKey("", bound))
            return () if node is None else (parse_list(node.status.allocatable),)
        if self._offers is None:
            self._offers = largest(parse_list(node.status.allocatable) for node in self.nodes.store.values())
        return self._offers

    def _node_changed(self) -> None:
        self._offers = None
