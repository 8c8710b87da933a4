"""A scenario from a recording: the workloads with the load they had, their autoscalers, the nodes.

Load is the recorded demand in cores, as requests that cost 10 millicores each. Every pod holds the most memory that a
pod of its workload was seen with. What a recording does not say is not guessed: workloads without CPU usage or load
are left out, and batch jobs, whose work is not recorded, too.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from kubetide.embedded.sim.load.scenario import LoadSpec, MemorySpec, Raw, Scenario, ScenarioNodes, ScenarioWorkload
from kubetide.recording.reader import Recording
from kubetide.replay.core.services import STEP_SECONDS, Services
from kubetide.replay.demand import services_of
from kubetide.stats.buckets import Floats

CORES_PER_REQUEST = 0.01
API_VERSIONS = {"HorizontalPodAutoscaler": "autoscaling/v2", "VerticalPodAutoscaler": "autoscaling.k8s.io/v1"}
_KINDS = ("Deployment", "StatefulSet", "DaemonSet")
_BATCH = ("Job", "CronJob")
_FILLED = 0.6
"""Where replicas were not recorded, pods begin at about this share of their request."""


def scenario_of(recording: Recording) -> Scenario:
    """Return a recording as a scenario."""
    services, manifest = services_of(recording), recording.manifest
    pods = _pods(recording)
    replicas = _first_replicas(recording)
    workloads = []
    for place, name in enumerate(services.names):
        pod = pods.get(name, {})
        if pod.get("kind") not in _BATCH:
            workloads.append(_workload(services, place, pod, replicas.get(name), manifest.interval_seconds))
    return Scenario(
        name=recording.path.stem,
        start=datetime.fromtimestamp(services.start_seconds, UTC),
        duration=f"{services.demand.shape[0] * STEP_SECONDS}s",
        nodes=_nodes(recording, workloads),
        workloads=workloads,
        objects=_autoscalers(recording, {f"{each.namespace}/{each.name}" for each in workloads}),
    )


def _workload(
    services: Services, place: int, pod: Mapping[str, Any], replicas: int | None, interval: int
) -> ScenarioWorkload:
    namespace, _, name = services.names[place].partition("/")
    demand, cores = services.demand[:, place], float(services.pod_cores[place])
    if replicas is None:
        first = demand[~np.isnan(demand)][:1]
        replicas = max(1, int(np.ceil(first / _FILLED).sum()))
    requests: dict[str, str | int | float] = {"cpu": f"{round(cores * 1000)}m"}
    if pod.get("memory_request"):
        requests["memory"] = int(pod["memory_request"])
    return ScenarioWorkload(
        name=dns_name(name),
        namespace=dns_name(namespace),
        kind=pod["kind"] if pod.get("kind") in _KINDS else "Deployment",
        replicas=replicas,
        requests=requests,
        limits={"memory": int(pod["memory_limit"])} if pod.get("memory_limit") else {},
        load=LoadSpec(curve="trace", file=trace(demand * cores / CORES_PER_REQUEST, max(1, interval // STEP_SECONDS))),
        cpu_per_request=f"{round(CORES_PER_REQUEST * 1000)}m",
        memory=MemorySpec(base=int(pod.get("memory") or 64 * 2**20)),
    )


def trace(levels: Floats, every: int) -> str:
    """Return levels in steps of 15 s as the text of a trace, one point per sample; gaps become straight lines."""
    known = np.flatnonzero(~np.isnan(levels[::every])) * every
    return "".join(f"{at * STEP_SECONDS},{levels[at]:.6g}\n" for at in known.tolist())


def dns_name(text: str) -> str:
    """Return a text as a name that the API server takes."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:50].strip("-") or "x"


def _pods(recording: Recording) -> dict[str, dict[str, Any]]:
    """Return by NAMESPACE/WORKLOAD: its kind, and of one pod the peak of memory, its request and its limit."""
    who = recording.containers
    peaks = np.zeros(len(who))
    for block in recording.blocks:
        for grid in recording.grids(block):
            seen = np.fmax.reduce(grid.memory, axis=0, initial=0.0)
            peaks[grid.containers] = np.fmax(peaks[grid.containers], seen)
    rows = recording.rows("sizes")
    names = ("container_id", "memory_request_bytes", "memory_limit_bytes")
    sizes = {at: (request, limit) for at, request, limit in zip(*(rows[name] for name in names), strict=True)}
    found: dict[str, dict[str, Any]] = {}
    by_container: dict[str, dict[str, tuple[float, int, int]]] = {}
    for at in range(len(who)):
        key = f"{who.namespace[at]}/{who.workload[at]}"
        found.setdefault(key, {"kind": who.kind[at]})
        request, limit = sizes.get(at, (None, None))
        mine = by_container.setdefault(key, {})
        peak, most, top = mine.get(who.container[at], (0.0, 0, 0))
        mine[who.container[at]] = (max(peak, float(peaks[at])), max(most, request or 0), max(top, limit or 0))
    for key, containers in by_container.items():
        found[key]["memory"] = sum(peak for peak, _, _ in containers.values())
        found[key]["memory_request"] = sum(request for _, request, _ in containers.values())
        limits = [limit for _, _, limit in containers.values()]
        found[key]["memory_limit"] = sum(limits) if all(limits) else 0
    return found


def _first_replicas(recording: Recording) -> dict[str, int]:
    rows = recording.rows("replicas")
    found: dict[str, tuple[int, int]] = {}
    for namespace, workload, time, wanted in zip(
        *(rows[name] for name in ("namespace", "workload", "time", "wanted")), strict=True
    ):
        key = f"{namespace}/{workload}"
        if wanted is not None and (key not in found or time < found[key][0]):
            found[key] = (time, wanted)
    return {key: wanted for key, (_, wanted) in found.items()}


def _nodes(recording: Recording, workloads: list[ScenarioWorkload]) -> list[ScenarioNodes]:
    rows = recording.rows("nodes")
    latest = {
        node: (cpu, memory)
        for node, cpu, memory in zip(*(rows[name] for name in ("node", "cpu_millis", "memory_bytes")), strict=True)
        if cpu and memory
    }
    if latest:
        return [
            ScenarioNodes(name=dns_name(node), cpu=f"{cpu}m", memory=memory) for node, (cpu, memory) in latest.items()
        ]
    # Without nodes in the recording there is room for all: a policy is not to be judged by a guess.
    return [ScenarioNodes(name="node", count=max(3, 2 * len(workloads)), cpu="64", memory="256Gi")]


def _autoscalers(recording: Recording, known: set[str]) -> list[Raw]:
    """Return the autoscalers of the workloads as they were first."""
    rows = recording.rows("objects")
    found: dict[tuple[str, str, str], Raw] = {}
    columns = ("kind", "namespace", "name", "object")
    for kind, namespace, name, text in zip(*(rows[column] for column in columns), strict=True):
        if kind in API_VERSIONS and text and (kind, namespace, name) not in found:
            content = msgspec.json.decode(text)
            found[kind, namespace, name] = autoscaler(kind, dns_name(namespace), dns_name(name), content)
    return [obj for obj in found.values() if f"{obj['metadata']['namespace']}/{_target(obj)}" in known]


def autoscaler(kind: str, namespace: str, name: str, content: Mapping[str, Any]) -> Raw:
    """Return an HPA or VPA to apply: what its user declared, with kubetide's own annotations."""
    metadata = {"name": name, "namespace": namespace}
    annotations = (content.get("metadata") or {}).get("annotations") or {}
    own = {key: value for key, value in annotations.items() if key.partition("/")[0].endswith("kubetide.io")}
    return {
        "apiVersion": API_VERSIONS[kind],
        "kind": kind,
        "metadata": {**metadata, "annotations": own} if own else metadata,
        "spec": dict(content.get("spec") or {}),
    }


def _target(obj: Raw) -> str:
    spec = obj["spec"]
    return str((spec.get("scaleTargetRef") or spec.get("targetRef") or {}).get("name", ""))
