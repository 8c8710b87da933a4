"""Why a pod does not run, is ended again and again, or keeps a size that it should not have."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.objects.core import ContainerStatus, Pod
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.values.conditions import find_condition, is_true
from kubetide.api.values.quantity import readable
from kubetide.verdicts.core.commands import raised, workload_argument
from kubetide.verdicts.core.finding import found
from kubetide.verdicts.core.room import flag_list, room_for, shown_list
from kubetide.verdicts.core.verdict import Finding, Severity
from kubetide.verdicts.core.view import ClusterView, is_live, owner_of, requests_of

KIND = "pod"
OFTEN = 3
"""Restarts from which on a container is in a loop."""

RECENT = timedelta(minutes=10)
"""A container that has been ready for longer since it last ended has recovered."""

_OOM = "OOMKilled"
_BACK_OFF = "CrashLoopBackOff"
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
Record = Mapping[str, Any]


def judge_pod(view: ClusterView, pod: Pod, record: Record | None = None) -> list[Finding]:
    """Return what there is to say about a pod; `record` is what the updater explains."""
    key = key_of(pod)
    if not is_live(pod):
        message = "being deleted" if pod.metadata.deletion_timestamp is not None else pod.status.phase
        return [found("pod-finished", KIND, key, message=message)]
    return troubles_of(view, pod) or [found("pod-ok", KIND, key, detail=_detail(pod, record or {}))]


def troubles_of(view: ClusterView, pod: Pod) -> list[Finding]:
    """Return what keeps a pod from being fine; nothing for one that has finished."""
    if not is_live(pod):
        return []
    findings = [
        *(found for one in pod.status.container_statuses or () for found in _about_container(pod, one, view.now)),
        *_about_scheduling(view, pod),
        *_about_resize(pod),
    ]
    if not any(finding.severity is Severity.ERROR for finding in findings):
        findings += _about_readiness(pod)
    return findings


def workload_of(pod: Pod) -> str:
    """Return the workload of a pod as kubectl takes it; the pod itself where it has none."""
    owner = owner_of(pod)
    return f"pod/{pod.metadata.name}" if owner is None else workload_argument(owner[0], owner[1].name)


def _about_container(pod: Pod, status: ContainerStatus, now: datetime) -> Iterator[Finding]:
    key, state, last = key_of(pod), status.state, status.last_state
    waiting = state.waiting if state is not None else None
    if waiting is not None and waiting.reason in _NO_IMAGE:
        yield found("pod-image", KIND, key, container=status.name, reason=waiting.reason)
        return
    ended = (state.terminated if state is not None else None) or (last.terminated if last is not None else None)
    if ended is None or (status.ready and ended.finished_at is not None and now - ended.finished_at > RECENT):
        return  # it has run well since
    looping = status.restart_count >= OFTEN or (waiting is not None and waiting.reason == _BACK_OFF)
    values = {"container": status.name, "restarts": status.restart_count}
    if ended.reason == _OOM and (looping or not status.ready):
        limit = _memory_limit(pod, status.name)
        yield found(
            "pod-oom",
            KIND,
            key,
            **values,
            limit=readable("memory", limit) if limit else "that of its node",
            workload=workload_of(pod),
            amount=raised(limit, "memory") if limit else "512Mi",
        )
    elif looping and not status.ready:
        yield found("pod-crashing", KIND, key, **values, code=ended.exit_code)


def _memory_limit(pod: Pod, container: str) -> str | int | float:
    for one in pod.spec.containers or ():
        if one.name == container and one.resources is not None:
            return (one.resources.limits or {}).get("memory", "")
    return ""


def _about_scheduling(view: ClusterView, pod: Pod) -> Iterator[Finding]:
    scheduled = find_condition(pod.status.conditions, "PodScheduled")
    if pod.spec.node_name or scheduled is None or scheduled.is_true:
        return
    key = key_of(pod)
    room = room_for(view, pod) if view.whole and "nodes" not in view.unreadable else None
    if room is None or not room.shortage or room.fitting is None:
        yield found("pod-unschedulable", KIND, key, message=scheduled.message or "no node was found yet")
        return
    yield found(
        "pod-no-room",
        KIND,
        key,
        needs=shown_list(room.needs),
        shortage=room.shortage,
        workload=workload_of(pod),
        fitting=flag_list(room.fitting),
    )


def _about_resize(pod: Pod) -> Iterator[Finding]:
    pending = find_condition(pod.status.conditions, "PodResizePending")
    reason = pending.reason if pending is not None and pending.is_true else pod.status.resize
    if reason == "Infeasible":
        yield found("pod-resize-infeasible", KIND, key_of(pod))
    elif reason == "Deferred":
        yield found("pod-resize-deferred", KIND, key_of(pod))


def _about_readiness(pod: Pod) -> Iterator[Finding]:
    if is_true(pod.status.conditions, "Ready"):
        return
    key = key_of(pod)
    waiting = [
        one.state.waiting.reason
        for one in pod.status.container_statuses or ()
        if one.state is not None and one.state.waiting is not None
    ]
    if pod.status.phase == "Running" and not waiting:
        condition = find_condition(pod.status.conditions, "Ready")
        text = condition.message if condition is not None and condition.message else "its containers are not all ready"
        yield found("pod-not-ready", KIND, key, message=text)
    else:
        yield found("pod-starting", KIND, key, message=", ".join(filter(None, waiting)) or "its node prepares it")


def _detail(pod: Pod, record: Record) -> str:
    text = f"runs on {pod.spec.node_name or 'no node yet'}, requests {shown_list(requests_of(pod))}"
    if record.get("vpa"):
        action = {"none": "left alone", "wait": "waits", "evict": "to be evicted", "resize": "to be resized"}
        done = action.get(str(record.get("action")), "")
        text += f"; {done} by VPA {ObjectKey.parse(str(record['vpa'])).name}: {record.get('reason')}" if done else ""
    return text
