"""Usage from two scrapes of a kubelet: CPU is the difference of a counter over the time between its two readings.

    cores = (cpu now - cpu before) / (time now - time before)          window = that time

A container that is seen for the first time, or again after a restart, has no earlier reading. One that started within
the last resolution is measured from its start, where its counter was zero, if that is at least `FRESH` ago; others
wait for the next scrape. A pod is reported only when all its containers are: a part of a pod would look like a drop.
"""

from datetime import UTC, datetime, timedelta

from kubetide.metrics.core.exposition import Counters, KubeletAnswer
from kubetide.metrics.core.readings import NodeReading, PodReading, Usage

FRESH = timedelta(seconds=10)
"""The shortest time from the start of a container over which its CPU time means anything."""


def node_reading(
    node: str, before: KubeletAnswer | None, now: KubeletAnswer, *, resolution: timedelta
) -> NodeReading | None:
    """Return what two scrapes of a node say; None while they say nothing about it at all."""
    earlier = before or KubeletAnswer()
    whole = _measured(earlier.node, now.node, resolution)
    pods: dict[tuple[str, str], PodReading] = {}
    for key, containers in now.pods.items():
        previous = earlier.pods.get(key, {})
        measured = {name: _measured(previous.get(name), one, resolution) for name, one in containers.items()}
        usages = {name: found[0] for name, found in measured.items() if found is not None}
        if len(usages) < len(containers):
            continue
        # The oldest reading is what the pod's sum is as new as.
        _, oldest, covered = min((found for found in measured.values() if found is not None), key=lambda each: each[1])
        pods[key] = PodReading(at=_date(oldest), window=covered, containers=usages)
    if whole is not None:
        usage, at, window = whole
        return NodeReading(node=node, source="kubelet", at=_date(at), window=window, usage=usage, pods=pods)
    if not pods:
        return None
    newest = max(pod.at for pod in pods.values())
    return NodeReading(node=node, source="kubelet", at=newest, window=resolution, usage=None, pods=pods)


def _measured(before: Counters | None, now: Counters, resolution: timedelta) -> tuple[Usage, float, timedelta] | None:
    if now.cpu_seconds is None or now.at is None or now.memory_bytes is None:
        return None
    since = _since(before, now, resolution)
    if since is None:
        return None
    start, used = since
    seconds = now.at - start
    cores = (now.cpu_seconds - used) / seconds
    usage = Usage(cpu_nanos=round(cores * 1e9), memory_bytes=now.memory_bytes)
    return usage, now.at, timedelta(seconds=seconds)


def _since(before: Counters | None, now: Counters, resolution: timedelta) -> tuple[float, float] | None:
    """Return the moment from which CPU time is counted, and the counter at that moment."""
    assert now.at is not None
    assert now.cpu_seconds is not None
    if before is not None and before.at is not None and before.cpu_seconds is not None:
        restarted = now.started is not None and now.started > before.at
        if not restarted and now.at > before.at and now.cpu_seconds >= before.cpu_seconds:
            return before.at, before.cpu_seconds
    if now.started is None:
        return None
    age = timedelta(seconds=max(0.0, now.at - now.started))
    return (now.started, 0.0) if FRESH <= age < resolution else None


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
