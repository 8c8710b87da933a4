"""What would be done to a pod now, and why or why not: the trace of a decision, and its text for people."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kubetide.api.objects.meta import key_of
from kubetide.api.values.quantity import readable
from kubetide.vpa.core.policy import texts
from kubetide.vpa.updater.core.breaker import BreakerState
from kubetide.vpa.updater.core.fitting import fitting_of
from kubetide.vpa.updater.core.plan import Judgement, VpaPlan
from kubetide.vpa.updater.core.priority import actual_requests
from kubetide.vpa.updater.core.resizing import Resize, resize_of
from kubetide.vpa.updater.core.step import Step


def trace(
    plan: VpaPlan,
    judgement: Judgement,
    step: Step,
    *,
    breaker: BreakerState,
    resize: Resize | None,
    run_at: datetime,
    problem: str = "",
) -> dict[str, Any]:
    """Return everything that led to a decision about a pod, ready for JSON."""
    pod, ranked, group = judgement.pod, judgement.ranked, judgement.group
    fitting = fitting_of(judgement.fitted)
    notes = judgement.fitted.adjusted.notes if judgement.fitted and judgement.fitted.adjusted else {}
    new = {one.name: one for one in judgement.fitted.containers} if judgement.fitted else {}
    containers = []
    for container in pod.spec.containers or ():
        one = fitting.get(container.name)
        containers.append(
            {
                "name": container.name,
                "requests": texts(actual_requests(pod, container)),
                "target": texts(one.target) if one is not None else None,
                "lowerBound": texts(one.lower or {}) if one is not None else None,
                "upperBound": texts(one.upper or {}) if one is not None else None,
                "notes": list(notes.get(container.name, ())),
                "limits": texts(new[container.name].limits) if container.name in new else {},
                "limitNotes": [
                    note
                    for note in (new[container.name].notes if container.name in new else ())
                    if note not in notes.get(container.name, ())
                ],
                "refused": new[container.name].refused if container.name in new else "",
            }
        )
    standing = resize or resize_of(pod)
    return {
        "pod": str(key_of(pod)),
        "vpa": str(plan.key),
        "mode": plan.mode,
        "action": "none" if problem else step.method.value,
        "reason": problem or step.reason,
        "at": run_at.isoformat(),
        "wanted": ranked.reason if ranked is not None else "",
        "priority": None
        if ranked is None
        else {
            "outside": ranked.priority.outside,
            "scaleUp": ranked.priority.scale_up,
            "diff": float(ranked.priority.diff),
        },
        "group": None
        if group is None
        else {
            "controller": f"{group.creator.kind} {group.creator.name}",
            "configured": group.configured,
            "running": group.running,
            "pending": group.pending,
            "tolerance": group.tolerance,
            "evicted": group.evicted,
            "resized": group.initiated,
        },
        "paused": breaker.detail if breaker.paused else "",
        "resize": None if standing is None else {"phase": standing.phase.value, "reason": standing.reason},
        "containers": containers,
    }


def render(trace: Mapping[str, Any]) -> str:
    """Return a trace as text."""
    lines = [
        f"pod {trace['pod']}, controlled by VPA {trace['vpa']} (mode {trace['mode']})",
        f"  now: {_ACTIONS.get(trace['action'], trace['action'])}, because {trace['reason']}",
    ]
    if trace.get("wanted") and trace["wanted"] != trace["reason"]:
        lines.append(f"  judged by itself: {trace['wanted']}")
    if priority := trace.get("priority"):
        lines.append(
            f"  priority: {'outside' if priority['outside'] else 'inside'} the range, "
            f"{'needs more' if priority['scaleUp'] else 'needs no more'}, differs by {priority['diff']:.0%}"
        )
    for container in trace.get("containers") or ():
        lines.append(f"  container {container['name']}: requests {_list(container['requests'])}")
        if container.get("target") is None:
            lines.append("    no recommendation")
            continue
        lines.append(
            f"    target {_list(container['target'])}, range {_list(container['lowerBound'])} "
            f"to {_list(container['upperBound'])}"
        )
        if container.get("limits"):
            # That there is no limit where there was none is no news to anybody.
            notes = [note for note in container["limitNotes"] if note.partition(":")[0] in container["limits"]]
            why = f" ({', '.join(notes)})" if notes else ""
            lines.append(f"    with limits {_list(container['limits'])}{why}")
        lines += [f"    {note}" for note in container.get("notes") or ()]
        if container.get("refused"):
            lines.append(f"    left alone: its {container['refused']} request would exceed its limit")
    if group := trace.get("group"):
        lines += [
            f"  {group['controller']}: {group['running']} of {group['configured']} running, {group['pending']} pending",
            f"    {group['tolerance']} may go at once; so far {group['evicted']} evicted, {group['resized']} resized",
        ]
    if resize := trace.get("resize"):
        lines.append(f"  resize: {_PHASES.get(resize['phase'], resize['phase'].lower())}, {resize['reason']}")
    for alarm in trace.get("memoryAlarms") or ():
        done = "given more in place" if alarm["grown"] else "not given more"
        lines.append(
            f"  memory of {alarm['container']} was running out at {alarm['at'][11:19]}: {done}, {alarm['text']}"
        )
    if trace.get("paused"):
        lines.append(f"  paused: {trace['paused']}")
    rules = f", by the rules of VPA {trace['compat']}" if trace.get("compat") else ""
    lines.append(f"  as of {trace['at'][:19]}Z{rules}")
    return "\n".join(lines)


_PHASES = {"InProgress": "in progress", "FellBack": "given up, evicted instead"}
_ACTIONS = {"none": "left alone", "evict": "evicted", "resize": "resized in place", "wait": "waits"}


def _list(resources: Mapping[str, str] | None) -> str:
    return ", ".join(f"{name} {readable(name, amount)}" for name, amount in (resources or {}).items()) or "nothing"
