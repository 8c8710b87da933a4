"""Usage from the metrics API, collected for a while: for clusters without Prometheus and without a recommender.

Where that API is not served, the reports of node agents (NodeMetric) stand in for it. They are about pods, so only pods
with one container are known from them.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from kubetide.api.objects.scheme import NODE_METRICS, POD_METRICS
from kubetide.clock import Clock
from kubetide.errors import Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError, NotFound, ServiceUnavailable
from kubetide.recommend.core.matching import PodMatcher
from kubetide.recommend.core.workloads import ContainerKey, Sizes, Usage, Workload, key_of, sizes

_Labels = tuple[str, str, str]
AGENTS = "node agents"


@dataclass(frozen=True, slots=True)
class Watch:
    """How long, and how often."""

    duration: timedelta
    step: timedelta = timedelta(seconds=15)


async def watch_usage(
    client: Client,
    clock: Clock,
    workloads: Sequence[Workload],
    watch: Watch,
    *,
    namespace: str = "",
    progress: Callable[[int, int], None],
) -> dict[ContainerKey, Usage]:
    """Collect samples for the whole duration; an interruption of the API leaves gaps."""
    step = max(1, int(watch.step.total_seconds()))
    points = max(1, int(watch.duration.total_seconds()) // step)
    start = int(clock.now().timestamp())
    seen: dict[_Labels, list[tuple[int, float, float]]] = {}
    agents = False
    for point in range(points):
        try:
            listed = await _from_agents(client, namespace, workloads) if agents else await _metrics(client, namespace)
        except (NotFound, ServiceUnavailable) as error:
            listed = await _from_agents(client, namespace, workloads)
            if not listed and point == 0:
                missing = "neither the metrics API nor NodeMetrics of node agents are here"
                raise Unavailable(f"{missing}: install metrics-server, or use Prometheus") from error
            agents = True
        except (ApiError, Unavailable):
            if point == 0:
                raise
            listed = []
        for labels, used in listed:
            sample = (point, (used.cpu_millis or 0) / 1000, float(used.memory_bytes or np.nan))
            seen.setdefault(labels, []).append(sample)
        progress((point + 1) * step, points * step)
        if point + 1 < points:
            await asyncio.sleep(step)
    matcher = PodMatcher(workloads)
    members: dict[ContainerKey, list[_Labels]] = {}
    for labels in sorted(seen):
        workload = matcher.match(labels[0], labels[1])
        if workload is not None and any(one.name == labels[2] for one in workload.containers):
            members.setdefault(key_of(workload, labels[2]), []).append(labels)
    result: dict[ContainerKey, Usage] = {}
    for key, mine in members.items():
        cpu, memory = np.full((points, len(mine)), np.nan), np.full((points, len(mine)), np.nan)
        for column, labels in enumerate(mine):
            for point, cores, held in seen[labels]:
                cpu[point, column], memory[point, column] = cores, held
        result[key] = Usage(
            start, step, tuple(pod for _, pod, _ in mine), cpu, memory, source=AGENTS if agents else "metrics API"
        )
    return result


async def _metrics(client: Client, namespace: str) -> list[tuple[_Labels, Sizes]]:
    """Return what containers use according to the metrics API."""
    return [
        ((pod.metadata.namespace, pod.metadata.name, one.name), sizes(one.usage))
        for pod in (await client.list(POD_METRICS, namespace=namespace or None)).items
        for one in pod.containers or ()
    ]


async def _from_agents(client: Client, namespace: str, workloads: Sequence[Workload]) -> list[tuple[_Labels, Sizes]]:
    """Return what the only containers of pods use according to node agents."""
    alone = {
        (workload.namespace, pod): workload.containers[0].name
        for workload in workloads
        if len(workload.containers) == 1
        for pod in workload.pods
    }
    try:
        nodes = (await client.list(NODE_METRICS)).items
    except NotFound:
        return []
    return [
        ((pod.namespace, pod.name, alone[pod.namespace, pod.name]), sizes(pod.pod_usage.resources))
        for node in nodes
        for pod in node.status.pods_metric or ()
        if namespace in ("", pod.namespace) and (pod.namespace, pod.name) in alone
    ]
