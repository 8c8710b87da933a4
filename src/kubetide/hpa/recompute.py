"""A decision from what the cluster shows now, without memory and without writing: `explain` where nobody answers."""

from typing import Any

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.scheme import HPAS, PODS
from kubetide.clock import Clock
from kubetide.hpa.core.annotations import overrides_of
from kubetide.hpa.core.claims import Claims
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.decide import decide
from kubetide.hpa.core.describe import MetricsRequest
from kubetide.hpa.core.observation import Memory
from kubetide.hpa.core.trace import trace_of
from kubetide.hpa.metrics_cache import MetricsReader
from kubetide.hpa.observer import LABEL_INDEX, Observer, PodCache, pod_labels
from kubetide.hpa.pod_owners import PodOwners
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.cache.store import Store
from kubetide.kube.client.client import Client
from kubetide.kube.scale import ScaleClient


async def recompute(client: Client, clock: Clock, settings: HpaSettings, key: ObjectKey) -> dict[str, Any]:
    """Decide once from what the cluster shows now, without memory and without writing; for `explain`."""
    hpa = await client.get(HPAS, key.name, namespace=key.namespace)
    listed = await client.list(PODS, namespace=key.namespace)
    store: Store[Pod] = Store({LABEL_INDEX: pod_labels})
    for pod in listed.items:
        store.put(key_of(pod), pod)
    owners = PodOwners(client, clock, client.rng)
    request = MetricsRequest(max_age=settings.sync_period, overrides=overrides_of(hpa.metadata.annotations))
    async with MetricsReader(client, clock, settings) as metrics:
        observer = Observer(ScaleClient(client), clock, settings, PodCache(store), Claims(), metrics, owners=owners)
        seen = await observer.observe(hpa, request, await observer.scale_of(hpa))
    decision = decide(seen.observation, Memory(), settings.options, now=clock.now())
    outcome = conclude(decision)
    return {**trace_of(decision, outcome, outcome.problem), "recomputed": True, "acts": False, "history": []}
