"""What of an object may be in a recording: a list of fields, and nothing that is not on it.

Kept are the fields that autoscaling looks at: names, labels, owners, requests and limits, readiness, the specs and
statuses of autoscalers. Left out are environment, volumes, images, commands, managed fields, and every annotation but
kubetide's own. Secrets and ConfigMaps are never recorded.
"""

from collections.abc import Callable, Mapping
from typing import Any

Raw = dict[str, Any]
OWN_ANNOTATIONS = ("kubetide.io/", "vpaObservedContainers", "vpaUpdates", "vpa-post-processor.kubernetes.io/")
"""Prefixes of the annotations that are kept: kubetide's, and those that say what a VPA did."""
_METADATA = ("name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp", "generation")
_STATE = ("running", "terminated", "waiting")
_TERMINATED = ("reason", "exitCode", "finishedAt", "startedAt")


def sanitized(kind: str, raw: Mapping[str, Any]) -> Raw | None:
    """Return what of an object is recorded; None for kinds that are not."""
    keep = _KINDS.get(kind)
    if keep is None:
        return None
    return {"kind": kind, "metadata": _metadata(raw.get("metadata") or {}), **keep(raw)}


def _metadata(meta: Mapping[str, Any]) -> Raw:
    kept = _only(meta, _METADATA)
    own = {name: text for name, text in (meta.get("annotations") or {}).items() if name.startswith(OWN_ANNOTATIONS)}
    if own:
        kept["annotations"] = own
    if meta.get("ownerReferences"):
        kept["ownerReferences"] = [
            _only(each, ("apiVersion", "kind", "name", "uid", "controller")) for each in meta["ownerReferences"]
        ]
    return kept


def _pod(raw: Mapping[str, Any]) -> Raw:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    kept: Raw = {
        "nodeName": spec.get("nodeName", ""),
        "containers": [_container(each) for each in spec.get("containers") or ()],
    }
    if spec.get("initContainers"):
        kept["initContainers"] = [_container(each) for each in spec["initContainers"]]
    kept.update(_only(spec, ("resources", "overhead")))
    shown = _only(status, ("phase", "startTime"))
    shown["conditions"] = [
        _only(each, ("type", "status", "lastTransitionTime"))
        for each in status.get("conditions") or ()
        if each.get("type") == "Ready"
    ]
    if status.get("containerStatuses"):
        shown["containerStatuses"] = [_container_status(each) for each in status["containerStatuses"]]
    return {"spec": kept, "status": shown}


def _container(raw: Mapping[str, Any]) -> Raw:
    return _only(raw, ("name", "resources", "restartPolicy"))


def _container_status(raw: Mapping[str, Any]) -> Raw:
    kept = _only(raw, ("name", "ready", "started", "restartCount", "resources"))
    for field in ("state", "lastState"):
        if raw.get(field):
            kept[field] = {
                name: _only(raw[field][name], _TERMINATED) for name in _STATE if raw[field].get(name) is not None
            }
    return kept


def _autoscaler(raw: Mapping[str, Any]) -> Raw:
    status = _only(
        raw.get("status") or {}, ("currentReplicas", "desiredReplicas", "lastScaleTime", "currentMetrics", "conditions")
    )
    return {"spec": dict(raw.get("spec") or {}), "status": status}


def _vpa(raw: Mapping[str, Any]) -> Raw:
    return {
        "spec": dict(raw.get("spec") or {}),
        "status": _only(raw.get("status") or {}, ("recommendation", "conditions")),
    }


def _workload(raw: Mapping[str, Any]) -> Raw:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    return {
        "spec": _only(spec, ("replicas", "selector")),
        "status": _only(status, ("replicas", "readyReplicas", "availableReplicas")),
    }


def _node(raw: Mapping[str, Any]) -> Raw:
    return {"status": _only(raw.get("status") or {}, ("capacity", "allocatable"))}


def _only(raw: Mapping[str, Any], names: tuple[str, ...]) -> Raw:
    return {name: raw[name] for name in names if name in raw}


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], Raw]] = {
    "Pod": _pod,
    "HorizontalPodAutoscaler": _autoscaler,
    "VerticalPodAutoscaler": _vpa,
    "Deployment": _workload,
    "ReplicaSet": _workload,
    "StatefulSet": _workload,
    "DaemonSet": _workload,
    "Node": _node,
}
