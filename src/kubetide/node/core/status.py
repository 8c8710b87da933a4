"""What `kubetide node status` shows: pods by QoS class with usage, limits, throttling, pressure and predictions.

Values are averages over the last minute, except pressure, which is the kernel's own 10 s average. None means that
there is no data, which is not zero.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from kubetide.api.qos import qos
from kubetide.node.core.prediction.peak import PeakModels
from kubetide.node.core.series import kinds
from kubetide.node.core.series.query import AVG, LAST
from kubetide.node.core.series.ring import Ring
from kubetide.node.core.snapshot import PodState

WINDOW_SECONDS = 60
_ORDER = {name: position for position, name in enumerate(("SYSTEM", "LSE", "LSR", "LS", "BE", ""))}
_PRESSURE_WINDOW = 30


def node_status(
    node_name: str, ring: Ring, models: PeakModels, pods: Iterable[PodState], *, now: datetime
) -> dict[str, Any]:
    """Return the table as JSON values."""
    end = int(now.timestamp() * 1000)
    start = end - WINDOW_SECONDS * 1000

    def node(kind: str) -> float | None:
        return ring.query(kind, None, start, end).aggregate(AVG)

    rows = [_row(pod, ring, models, start, end) for pod in pods]
    rows.sort(key=lambda row: (_ORDER.get(row["qos"], 9), row["namespace"], row["name"]))
    peaks = models.predict("__node__") or {}
    return {
        "node": node_name,
        "at": now.isoformat(),
        "cpuCores": node(kinds.NODE_CPU),
        "memoryBytes": node(kinds.NODE_MEMORY),
        "systemCpuCores": node(kinds.SYS_CPU),
        "systemMemoryBytes": node(kinds.SYS_MEMORY),
        "predicted": _peak(peaks),
        "pods": rows,
    }


def _peak(peaks: dict[str, Any]) -> dict[str, int] | None:
    if not peaks:
        return None
    return {"cpuMillis": peaks["p95"].cpu_millis, "memoryBytes": peaks["p98"].memory_bytes}


def _row(pod: PodState, ring: Ring, models: PeakModels, start: int, end: int) -> dict[str, Any]:
    uid = {kinds.POD_UID: pod.uid}

    def average(kind: str) -> float | None:
        return ring.query(kind, uid, start, end).aggregate(AVG)

    def pressure(resource: str) -> float | None:
        properties = {**uid, "psi_resource": resource, "psi_precision": "10", "psi_degree": "some"}
        return ring.query(kinds.POD_PSI, properties, end - _PRESSURE_WINDOW * 1000, end).aggregate(LAST)

    limit = qos.pod_cpu_limit_millis(pod.pod)
    if limit < 0:
        limit = qos.extended_limit(pod.pod, qos.BATCH_CPU)
    memory_limit = qos.pod_memory_limit(pod.pod)
    if memory_limit < 0:
        memory_limit = qos.extended_limit(pod.pod, qos.BATCH_MEMORY)
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "qos": pod.qos,
        "priority": pod.priority,
        "phase": pod.pod.status.phase,
        "cpuCores": average(kinds.POD_CPU),
        "cpuLimitMillis": limit if limit > 0 else None,
        "memoryBytes": average(kinds.POD_MEMORY),
        "memoryLimitBytes": memory_limit if memory_limit > 0 else None,
        "throttled": average(kinds.POD_THROTTLED),
        "pressure": {name: pressure(name) for name in ("cpu", "mem", "io")},
        "predicted": _peak(models.predict(pod.uid) or {}),
    }
