"""Rows as changes for Git: patches, Helm values, VPAs in mode Off. Nothing but sizes is in them.

Built-in kinds take strategic merge patches, which find a container by its name; a limit that goes is null. Custom
resources have no strategic merge, and a merge patch would replace the list of containers: theirs are JSON patches
(RFC 6902), which go by position and first test that the container there has the name that was sized.

What kubectl is told to patch is the object in the cluster, so only what differs there is in it. Kustomize and Helm
change manifests that are not seen here, and what they wrote last time is what the cluster has today: their files hold
every recommendation, and all of `resources` where a JSON patch cannot know which parts a manifest has.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubetide.recommend.core.rows import Row
from kubetide.recommend.core.sizing import spelt
from kubetide.vpa.core.policy import CPU, MEMORY

Raw = dict[str, Any]
LAYOUTS = ("kubectl", "kustomize", "helm-values")
_BUILT_IN = ("apps", "batch")
_COMPONENT = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}


def by_workload(rows: Iterable[Row], *, whole: bool = False) -> dict[tuple[str, str, str, str], list[Row]]:
    """Return the rows that recommend something else than today, or anything (`whole`), by workload."""
    found: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        if row.recommended is not None and (whole or row.recommended != row.current):
            found.setdefault((row.cluster, row.namespace, row.kind, row.name), []).append(row)
    return {key: sorted(mine, key=lambda row: row.position) for key, mine in sorted(found.items())}


@dataclass(frozen=True, slots=True)
class PatchFile:
    """One file of a layout."""

    document: Any
    command: str = ""
    """What kubectl is told to apply it, but for the name of the file."""


def layout(name: str, rows: Sequence[Row], *, no_limits: bool = False) -> tuple[dict[str, PatchFile], list[str]]:
    """Return the files of a layout, and which workloads have none, with the reason.

    `no_limits` says that limits are to go, also those that the cluster has no more and a manifest may have.
    """
    files: dict[str, PatchFile] = {}
    parts: list[Raw] = []
    left_out: list[str] = []
    for (cluster, namespace, kind, workload), mine in by_workload(rows, whole=name != "kubectl").items():
        base = "/".join(filter(None, (cluster, namespace, f"{kind.lower()}-{workload}.yaml")))
        if name == "helm-values":
            files[base] = PatchFile(values(mine))
            continue
        if problem := why_no_patch(mine[0]):
            left_out.append(f"{kind} {namespace}/{workload}: no patch, {problem}")
            continue
        document, form = change(mine, unseen=name == "kustomize", no_limits=no_limits)
        place = mine[0].place
        target = f"{kind.lower() if place is None else place.resource}/{workload}"
        command = f"kubectl patch -n {namespace} {target} --type={form}" if name == "kubectl" else ""
        files[base] = PatchFile(document, command)
        # A JSON patch does not say what it is for.
        parts.append({"path": base} if place is None else {"path": base, "target": _target(mine[0])})
    if name == "kustomize" and parts:
        files["kustomization.yaml"] = PatchFile({**_COMPONENT, "patches": sorted(parts, key=lambda one: one["path"])})
    return files, left_out


def why_no_patch(row: Row) -> str:
    """Return why a workload cannot be patched; empty where it can."""
    if row.managed_by:
        return f"{row.managed_by} makes it: set sizes there"
    if row.api_version.partition("/")[0] in _BUILT_IN:
        return "the template of a Job cannot be changed" if row.kind == "Job" else ""
    return "" if row.place is not None else "it has no pod template that could be found"


def change(rows: Sequence[Row], *, unseen: bool, no_limits: bool = False) -> tuple[Any, str]:
    """Return the patch of one workload and its type for kubectl; `unseen` is for a manifest, not for the object."""
    if rows[0].place is not None:
        return json_patch(rows, whole=unseen), "json"
    return patch(rows, unseen=unseen, no_limits=unseen and no_limits), "strategic"


def json_patch(rows: Sequence[Row], *, whole: bool = False) -> list[Raw]:
    """Return the JSON patch of one custom resource; `whole` replaces all of `resources`."""
    steps: list[Raw] = []
    for row in rows:
        assert row.place is not None
        base, holds = f"{row.place.path}/resources", row.place.holds
        steps.append({"op": "test", "path": f"{row.place.path}/name", "value": row.container})
        wanted = resources(row, removing=not whole)
        if whole:
            parts = dict.fromkeys((*row.place.others, *wanted))
            value = {part: _both(row.place.others.get(part), wanted.get(part)) for part in parts}
            steps.append({"op": "add", "path": base, "value": value})
            continue
        if "resources" not in holds:
            steps.append({"op": "add", "path": base, "value": wanted})
            continue
        for part, amounts in wanted.items():
            if part not in holds:
                steps.append({"op": "add", "path": f"{base}/{part}", "value": amounts})
                continue
            for resource, amount in amounts.items():
                path = f"{base}/{part}/{resource}"
                # To add a member that is there replaces it.
                steps.append(
                    {"op": "remove", "path": path} if amount is None else {"op": "add", "path": path, "value": amount}
                )
    return steps


def _both(others: Any, wanted: Raw | None) -> Any:
    return {**(others or {}), **wanted} if wanted is not None else others


def _target(row: Row) -> Raw:
    group, _, version = row.api_version.rpartition("/")
    return {"group": group, "version": version, "kind": row.kind, "name": row.name, "namespace": row.namespace}


def patch(rows: Sequence[Row], *, unseen: bool = False, no_limits: bool = False) -> Raw:
    """Return the strategic merge patch of one workload.

    One for a manifest that is `unseen` also names the containers before those that change: kustomize moves what a patch
    names to the front, and init containers start in their order.
    """
    first = rows[0]
    pod: Raw = {}
    for row in rows:
        listed = pod.setdefault("initContainers" if row.sidecar else "containers", [])
        named = {each["name"] for each in listed}
        listed += [{"name": name} for name in row.after if unseen and name not in named]
        listed.append({"name": row.container, "resources": resources(row, removing=True, no_limits=no_limits)})
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


def resources(row: Row, *, removing: bool = False, no_limits: bool = False) -> Raw:
    """Return the resources that a row recommends; `removing` writes null for limits that go, `no_limits` for all."""
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
            elif removing and (had is not None or no_limits) and part == "limits":
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
                # A VPA finds pods by what makes them.
                "targetRef": {"apiVersion": row.api_version, "kind": row.kind, "name": row.name}
                if row.maker is None
                else {"apiVersion": row.maker.api_version, "kind": row.maker.kind, "name": row.maker.name},
                "updatePolicy": {"updateMode": "Off"},
            },
        }
        for (cluster, namespace, _, name), row in sorted(seen.items())
    ]
