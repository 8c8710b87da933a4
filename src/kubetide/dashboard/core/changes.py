"""What changed between two looks at a cluster, and why, as far as the objects themselves say it.

A controller keeps only its last decisions and events are forgotten after an hour; what a dashboard saw itself stays.
"""

from collections.abc import Iterator

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.values.conditions import find_condition
from kubetide.dashboard.core.bars import cores, memory
from kubetide.dashboard.core.model import Entry, Workload
from kubetide.verdicts.core.view import ClusterView

MATTERS = 0.05
"""A recommendation that moved by less is the same."""


def changes(before: ClusterView, after: ClusterView, was: list[Workload], now: list[Workload]) -> list[Entry]:
    """Return what is different, in the order of namespaces and names."""
    old_hpas = {key_of(hpa): hpa for hpa in before.hpas}
    old = {(row.kind, row.namespace, row.name): row for row in was}
    by_hpa = {ObjectKey(row.namespace, row.hpa): row for row in now if row.hpa}
    found: list[Entry] = []
    for hpa in after.hpas:
        earlier = old_hpas.get(key_of(hpa))
        if earlier is not None and (entry := _scaled(earlier, hpa, after, by_hpa.get(key_of(hpa)))) is not None:
            found.append(entry)
    for row in now:
        if (known := old.get((row.kind, row.namespace, row.name))) is not None:
            found += _about(known, row, after)
    return sorted(found, key=lambda entry: (entry.workload, entry.subject))


def _scaled(
    was: HorizontalPodAutoscaler, now: HorizontalPodAutoscaler, view: ClusterView, row: Workload | None
) -> Entry | None:
    old, new = was.status.desired_replicas, now.status.desired_replicas
    if old == new or not old or not now.status.current_replicas:  # it had not been looked after before
        return None
    limited = find_condition(now.status.conditions, "ScalingLimited")
    able = find_condition(now.status.conditions, "AbleToScale")
    why = limited if limited is not None and limited.is_true else able
    return Entry(
        at=now.status.last_scale_time or view.now,
        subject=f"hpa/{now.metadata.name}",
        text=f"{old} → {new} replicas: {why.message if why is not None else 'no reason given'}",
        tone="warn" if limited is not None and limited.is_true and new > old else "plain",
        workload=row.key if row is not None else "",
    )


def _about(was: Workload, now: Workload, view: ClusterView) -> Iterator[Entry]:
    subject = f"{now.kind.lower()}/{now.name}"
    if now.oom_kills > was.oom_kills:
        killed = now.oom_kills - was.oom_kills
        text = "a pod was OOM-killed" if killed == 1 else f"{killed} pods were OOM-killed"
        yield Entry(at=view.now, subject=subject, text=text, tone="bad", workload=now.key)
    if not now.hpa and now.pods != was.pods:
        yield Entry(at=view.now, subject=subject, text=f"{was.pods} → {now.pods} replicas", workload=now.key)
    parts = []
    for name, old, new, shown in (
        ("cpu", was.cpu.recommended, now.cpu.recommended, cores),
        ("memory", was.memory.recommended, now.memory.recommended, memory),
    ):
        # Per pod: that there are more of them is no new recommendation.
        if new is not None and now.ready and was.ready:
            one, other = new / max(now.pods, 1), None if old is None else old / max(was.pods, 1)
            if other is None or abs(one - other) > MATTERS * max(one, other):
                parts.append(f"{name} {'' if other is None else f'{shown(other)} → '}{shown(one)}")
    if parts and now.pods == was.pods:
        yield Entry(at=view.now, subject=f"vpa/{now.vpa}", text=f"recommends {', '.join(parts)}", workload=now.key)
    if was.verdict.tone == "good" and now.verdict.tone in ("warn", "bad"):
        yield Entry(at=view.now, subject=subject, text=now.verdict.text, tone=now.verdict.tone, workload=now.key)
