"""Rows as changes for Git: strategic merge patches, Helm values, VPAs in mode Off. Nothing but sizes is in them.

A limit that goes is null in a patch, which removes it. Custom resources have no strategic merge, so patches exist for
built-in kinds only; the others are named.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubetide.recommend.core.rows import Row
from kubetide.recommend.core.sizing import spelt
from kubetide.vpa.core.policy import CPU, MEMORY

Raw = dict[str, Any]
LAYOUTS = ("kubectl", "kustomize", "helm-values")
_PATCHED = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "CronJob")
"""The template of a Job cannot be changed."""
_COMPONENT = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}


def by_workload(rows: Iterable[Row]) -> dict[tuple[str, str, str, str], list[Row]]:
    """Return the rows that recommend something else than today, by workload."""
    found: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        if row.recommended is not None and row.recommended != row.current:
            found.setdefault((row.cluster, row.namespace, row.kind, row.name), []).append(row)
    return {key: sorted(mine, key=lambda row: row.position) for key, mine in sorted(found.items())}


def layout(name: str, rows: Sequence[Row]) -> tuple[dict[str, list[Raw]], list[str]]:
    """Return the documents of each file of a layout, and which workloads have none."""
    files: dict[str, list[Raw]] = {}
    left_out: list[str] = []
    for (cluster, namespace, kind, workload), mine in by_workload(rows).items():
        base = "/".join(filter(None, (cluster, namespace, f"{kind.lower()}-{workload}.yaml")))
        if name == "helm-values":
            files[base] = [values(mine)]
        elif kind in _PATCHED:
            files[base] = [patch(mine)]
        else:
            left_out.append(f"{kind} {namespace}/{workload}")
    if name == "kustomize" and files:
        files["kustomization.yaml"] = [{**_COMPONENT, "patches": [{"path": path} for path in sorted(files)]}]
    return files, left_out


def patch(rows: Sequence[Row]) -> Raw:
    """Return the strategic merge patch of one workload."""
    first = rows[0]
    pod: Raw = {}
    for row in rows:
        where = "initContainers" if row.sidecar else "containers"
        pod.setdefault(where, []).append({"name": row.container, "resources": resources(row, removing=True)})
    spec: Raw = {"template": {"spec": pod}}
    if first.kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    return {
        "apiVersion": first.api_version,
        "kind": first.kind,
        "metadata": {"name": first.name, "namespace": first.namespace},
        "spec": spec,
    }


def values(rows: Sequence[Row]) -> Raw:
    """Return values as most charts have them: `resources` of the one container, else by container."""
    if len(rows) == 1:
        return {"resources": resources(rows[0])}
    return {row.container: {"resources": resources(row)} for row in rows}


def resources(row: Row, *, removing: bool = False) -> Raw:
    """Return the resources that a row recommends; `removing` writes null for limits that go."""
    new, old = row.recommended, row.current
    assert new is not None
    found: Raw = {}
    parts: Mapping[str, tuple[tuple[str, int | None, int | None], ...]] = {
        "requests": (
            (CPU, new.cpu_request_millis, old.cpu_request_millis),
            (MEMORY, new.memory_request_bytes, old.memory_request_bytes),
        ),
        "limits": (
            (CPU, new.cpu_limit_millis, old.cpu_limit_millis),
            (MEMORY, new.memory_limit_bytes, old.memory_limit_bytes),
        ),
    }
    for part, amounts in parts.items():
        for resource, wanted, had in amounts:
            if wanted is not None:
                found.setdefault(part, {})[resource] = spelt(resource, wanted)
            elif removing and had is not None and part == "limits":
                found.setdefault(part, {})[resource] = None
    return found


def vpas(rows: Iterable[Row]) -> list[Raw]:
    """Return a VPA in mode Off for every workload that there is a row of."""
    seen: dict[tuple[str, str, str, str], Row] = {}
    for row in rows:
        seen.setdefault((row.cluster, row.namespace, row.kind, row.name), row)
    called = Counter((cluster, namespace, name) for cluster, namespace, _, name in seen)
    return [
        {
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscaler",
            "metadata": {
                # Two kinds may have a workload of one name, and a namespace has one VPA of a name.
                "name": row.name if called[cluster, namespace, name] == 1 else f"{row.name}-{row.kind.lower()}",
                "namespace": row.namespace,
            },
            "spec": {
                "targetRef": {"apiVersion": row.api_version, "kind": row.kind, "name": row.name},
                "updatePolicy": {"updateMode": "Off"},
            },
        }
        for (cluster, namespace, _, name), row in sorted(seen.items())
    ]
