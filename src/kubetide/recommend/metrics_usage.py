"""Usage from the metrics API, collected for a while: for clusters without Prometheus and without a recommender."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from kubetide.api.objects.scheme import POD_METRICS
from kubetide.clock import Clock
from kubetide.errors import Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError, NotFound, ServiceUnavailable
from kubetide.recommend.cluster import sizes
from kubetide.recommend.core.matching import PodMatcher
from kubetide.recommend.core.workloads import ContainerKey, Usage, Workload, key_of

_Labels = tuple[str, str, str]


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
    for point in range(points):
        try:
            listed = (await client.list(POD_METRICS, namespace=namespace or None)).items
        except (NotFound, ServiceUnavailable) as error:
            raise Unavailable(
                "the metrics API is not served here: install metrics-server, or use Prometheus"
            ) from error
        except (ApiError, Unavailable):
            if point == 0:
                raise
            listed = ()
        for pod in listed:
            for one in pod.containers or ():
                used = sizes(one.usage)
                sample = (point, (used.cpu_millis or 0) / 1000, float(used.memory_bytes or np.nan))
                seen.setdefault((pod.metadata.namespace, pod.metadata.name, one.name), []).append(sample)
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
        result[key] = Usage(start, step, tuple(pod for _, pod, _ in mine), cpu, memory, source="metrics API")
    return result
