"""Columns of pods, nodes and workloads, as `kubectl get` shows them."""

from datetime import datetime
from typing import Any

from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import LabelSelector, selector_from
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.tables.printers import (
    AGE,
    NAME,
    Cell,
    Column,
    age,
    duration_text,
    name_of,
    part_of,
    register,
    since,
    text_columns,
)
from kubetide.errors import InvalidInput

# The pod selector of a workload, as text.


def selector_of(obj: Raw) -> str:
    """Return the selector in canonical form; empty if there is none or it cannot be read."""
    raw = (obj.get("spec") or {}).get("selector")
    if not isinstance(raw, dict):
        return ""
    if obj.get("kind") == "ReplicationController":
        return ",".join(f"{key}={value}" for key, value in sorted(raw.items()))
    try:
        return str(selector_from(label_selector(raw)))
    except InvalidInput:
        return ""


def label_selector(raw: Any) -> LabelSelector:
    """Return a raw label selector as a value."""
    return convert(raw, LabelSelector)


def _images(obj: Raw) -> tuple[str, str]:
    """Return the names and the images of a template's containers."""
    template = part_of(part_of(obj, "spec"), "template")
    containers = part_of(template, "spec").get("containers") or ()
    return ",".join(str(c.get("name")) for c in containers), ",".join(str(c.get("image")) for c in containers)


def _none(text: Any) -> str:
    return str(text) if text else "<none>"


# -- pods

_POD_COLUMNS = (
    NAME,
    Column("Ready"),
    Column("Status"),
    Column("Restarts"),
    AGE,
    Column("IP", priority=1),
    Column("Node", priority=1),
    Column("Nominated Node", priority=1),
    Column("Readiness Gates", priority=1),
)


def _pod(obj: Raw, now: datetime | None) -> list[Cell]:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    statuses = status.get("containerStatuses") or ()
    ready = sum(1 for s in statuses if s.get("ready"))
    restarts = sum(int(s.get("restartCount") or 0) for s in statuses)
    last = max((_finished(s) for s in statuses), default="")
    shown = f"{restarts} ({since(last, now)} ago)" if restarts and last else str(restarts)
    return [
        name_of(obj),
        f"{ready}/{len(spec.get('containers') or ())}",
        pod_status(obj),
        shown,
        age(obj, now),
        _none(status.get("podIP")),
        _none(spec.get("nodeName")),
        _none(status.get("nominatedNodeName")),
        "<none>",
    ]


def _finished(status: Raw) -> str:
    return str(((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or "")


def pod_status(obj: Raw) -> str:
    """Return the word in the status column: the phase, or what keeps the pod from it."""
    status = part_of(obj, "status")
    word = str(status.get("reason") or status.get("phase") or "Unknown")
    for container in status.get("initContainerStatuses") or ():
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if terminated and not terminated.get("exitCode"):
            continue
        if terminated:
            return f"Init:{terminated.get('reason') or 'Error'}"
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
        if waiting.get("reason"):
            word = str(waiting["reason"])
        elif terminated.get("reason"):
            word = str(terminated["reason"])
        elif terminated:
            word = f"ExitCode:{terminated.get('exitCode', 0)}"
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return word


# -- nodes

_NODE_COLUMNS = text_columns(
    "Status",
    "Roles",
    wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
)
_NODE_ORDER = (*_NODE_COLUMNS[:4], Column("Version"), *_NODE_COLUMNS[4:])


def _node(obj: Raw, now: datetime | None) -> list[Cell]:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    info = part_of(status, "nodeInfo")
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    word = {"True": "Ready", "False": "NotReady"}.get(str(conditions.get("Ready")), "Unknown")
    if conditions.get("Ready") == "Unknown":
        word = "NotReady"
    if spec.get("unschedulable"):
        word += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or ()}
    return [
        name_of(obj),
        word,
        _none(",".join(roles)),
        age(obj, now),
        _none(info.get("kubeletVersion")),
        _none(addresses.get("InternalIP")),
        _none(addresses.get("ExternalIP")),
        _none(info.get("osImage")),
        _none(info.get("kernelVersion")),
        _none(info.get("containerRuntimeVersion")),
    ]


# -- workloads

_TEMPLATE = ("Containers", "Images", "Selector")


def _deployment(obj: Raw, now: datetime | None) -> list[Cell]:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    names, images = _images(obj)
    return [
        name_of(obj),
        f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}",
        int(status.get("updatedReplicas") or 0),
        int(status.get("availableReplicas") or 0),
        age(obj, now),
        names,
        images,
        _none(selector_of(obj)),
    ]


def _replica_set(obj: Raw, now: datetime | None) -> list[Cell]:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    names, images = _images(obj)
    return [
        name_of(obj),
        int(spec.get("replicas") or 0),
        int(status.get("replicas") or 0),
        int(status.get("readyReplicas") or 0),
        age(obj, now),
        names,
        images,
        _none(selector_of(obj)),
    ]


def _stateful_set(obj: Raw, now: datetime | None) -> list[Cell]:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    names, images = _images(obj)
    ready = f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}"
    return [name_of(obj), ready, age(obj, now), names, images]


def _daemon_set(obj: Raw, now: datetime | None) -> list[Cell]:
    status = part_of(obj, "status")
    names, images = _images(obj)
    selector = part_of(part_of(part_of(part_of(obj, "spec"), "template"), "spec"), "nodeSelector")
    counts = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled")
    return [
        name_of(obj),
        *(int(status.get(count) or 0) for count in counts),
        int(status.get("numberAvailable") or 0),
        _none(",".join(f"{key}={value}" for key, value in sorted(selector.items()))),
        age(obj, now),
        names,
        images,
        _none(selector_of(obj)),
    ]


def _job(obj: Raw, now: datetime | None) -> list[Cell]:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    names, images = _images(obj)
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    word = next((kind for kind in ("Complete", "Failed", "Suspended") if conditions.get(kind) == "True"), "Running")
    started, ended = status.get("startTime"), status.get("completionTime")
    duration = ""
    if started:
        end = datetime.fromisoformat(ended) if ended else now
        if end is not None:
            duration = duration_text((end - datetime.fromisoformat(started)).total_seconds())
    completions = spec.get("completions") or spec.get("parallelism") or 1
    return [
        name_of(obj),
        word,
        f"{status.get('succeeded') or 0}/{completions}",
        duration,
        age(obj, now),
        names,
        images,
        _none(selector_of(obj)),
    ]


def _cron_job(obj: Raw, now: datetime | None) -> list[Cell]:
    spec, status = part_of(obj, "spec"), part_of(obj, "status")
    last = status.get("lastScheduleTime")
    names, images = _images(part_of(spec, "jobTemplate"))
    return [
        name_of(obj),
        str(spec.get("schedule") or ""),
        _none(spec.get("timeZone")),
        "True" if spec.get("suspend") else "False",
        len(status.get("active") or ()),
        since(last, now) if last else "<none>",
        age(obj, now),
        names,
        images,
    ]


def register_all() -> None:
    """Register the printers of this module."""
    wide = tuple(Column(name, priority=1) for name in _TEMPLATE)
    register("", "pods", _POD_COLUMNS, _pod)
    register("", "nodes", _NODE_ORDER, _node)
    register(
        "apps",
        "deployments",
        (NAME, Column("Ready"), Column("Up-to-date", "integer"), Column("Available", "integer"), AGE, *wide),
        _deployment,
    )
    replicas = tuple(Column(name, "integer") for name in ("Desired", "Current", "Ready"))
    register("apps", "replicasets", (NAME, *replicas, AGE, *wide), _replica_set)
    register("", "replicationcontrollers", (NAME, *replicas, AGE, *wide), _replica_set)
    register("apps", "statefulsets", (NAME, Column("Ready"), AGE, *wide[:2]), _stateful_set)
    daemons = ("Desired", "Current", "Ready", "Up-to-date", "Available")
    register(
        "apps",
        "daemonsets",
        (NAME, *(Column(name, "integer") for name in daemons), Column("Node Selector"), AGE, *wide),
        _daemon_set,
    )
    register("batch", "jobs", (NAME, Column("Status"), Column("Completions"), Column("Duration"), AGE, *wide), _job)
    cron = ("Schedule", "Timezone", "Suspend", "Active", "Last Schedule")
    register("batch", "cronjobs", (NAME, *(Column(name) for name in cron), AGE, *wide[:2]), _cron_job)
