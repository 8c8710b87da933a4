"""When and how running pods may be disturbed, as a VPA asks for it.

    kubetide.io/update-windows: "0 2 * * mon-fri 3h; 0 0 * * sat,sun 24h"
    kubetide.io/update-by: rollout

Outside its windows (`--update-windows` for VPAs that have none) no pod is evicted and none resized for which a
container restarts; a resize in place without a restart disturbs nobody. Windows that cannot be read are never open:
whoever sets some does not want pods disturbed at any time.

An eviction stops a pod before its replacement runs, which a workload with one replica feels; upstream leaves such a
workload alone for ever. A rollout (as `kubectl rollout restart`) starts the new pod first, within the Deployment's
own strategy. It is begun at most once an hour, and not while pods of the workload are younger than ten minutes or not
Ready: then one is under way, or the workload has other trouble. Where pods of the last one came without the mark of the
webhook, another would change as little: it is tried again after a day.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from kubetide.api.objects.core import Pod
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.conditions import is_true
from kubetide.api.values.schedule import ScheduleError, any_open, parse_windows
from kubetide.vpa.admission.core.mutate import OBSERVED

WINDOWS_ANNOTATION: Final = "kubetide.io/update-windows"
UPDATE_BY: Final = "kubetide.io/update-by"
RESTARTED_AT: Final = "kubetide.io/restartedAt"
"""Annotation of the pod template: another value of it is another template."""
EVERY: Final = timedelta(hours=1)
AGAIN: Final = timedelta(days=1)
_SETTLED: Final = timedelta(minutes=10)


def closed(vpa: VerticalPodAutoscaler, default: str, *, now: datetime) -> str:
    """Return why pods of a VPA must not be disturbed now; empty when they may."""
    given = (vpa.metadata.annotations or {}).get(WINDOWS_ANNOTATION)
    text = default if given is None else given
    where = "--update-windows" if given is None else f"annotation {WINDOWS_ANNOTATION}"
    try:
        windows = parse_windows(text)
    except ScheduleError as error:
        return f"{where}: {error}, so nothing is disturbed"
    if not windows or any_open(windows, now):
        return ""
    return f"it is outside the maintenance windows of {where}: {text}"


def by_rollout(vpa: VerticalPodAutoscaler) -> tuple[bool, str]:
    """Return whether pods of a VPA are replaced by rollouts, and what is wrong with what it asks for."""
    given = (vpa.metadata.annotations or {}).get(UPDATE_BY, "eviction")
    target = vpa.spec.target_ref
    if given == "eviction":
        return False, ""
    if given != "rollout":
        return True, f"annotation {UPDATE_BY}: {given!r} is neither eviction nor rollout"
    if target is None or target.kind != "Deployment":
        return True, f"annotation {UPDATE_BY}: only a Deployment rolls out with a surge"
    return True, ""


def problems_of(vpa: VerticalPodAutoscaler) -> tuple[str, ...]:
    """Return what is wrong with the annotations of a VPA that say when and how its pods may be disturbed."""
    found = [by_rollout(vpa)[1]]
    try:
        parse_windows((vpa.metadata.annotations or {}).get(WINDOWS_ANNOTATION, ""))
    except ScheduleError as error:
        found.append(f"annotation {WINDOWS_ANNOTATION}: {error}, so nothing is disturbed")
    return tuple(problem for problem in found if problem)


def why_not_now(pods: Iterable[Pod], last: datetime | None, *, now: datetime) -> str:
    """Return why a rollout must wait; empty when it may begin."""
    if last is not None and now - last < EVERY:
        return "its last rollout began less than an hour ago"
    for pod in pods:
        if pod.metadata.creation_timestamp is not None and now - pod.metadata.creation_timestamp < _SETTLED:
            return f"pod {pod.metadata.name} is younger than ten minutes"
        if not is_true(pod.status.conditions, "Ready"):
            return f"pod {pod.metadata.name} is not ready"
        if _came_unpatched(pod, now):
            return f"pod {pod.metadata.name} of the last rollout came without the recommendation; tried again in a day"
    return ""


def _came_unpatched(pod: Pod, now: datetime) -> bool:
    """Return whether a pod was made by a rollout of the last day and no webhook has looked at it."""
    marks, created = pod.metadata.annotations or {}, pod.metadata.creation_timestamp
    return RESTARTED_AT in marks and OBSERVED not in marks and created is not None and now - created < AGAIN
