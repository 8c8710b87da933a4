"""Whether a workload runs, could run one more pod, and has its pods to itself."""

from collections.abc import Iterator

from kubetide.api.objects.apps import DaemonSet
from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import key_of
from kubetide.api.objects.resources import Amounts
from kubetide.api.values.quantity import ZERO, Quantity
from kubetide.verdicts.core.commands import rounded, workload_argument
from kubetide.verdicts.core.finding import found
from kubetide.verdicts.core.room import Room, flag_list, room_for, shown, shown_list
from kubetide.verdicts.core.verdict import Finding, Severity
from kubetide.verdicts.core.view import (
    KIND_WORDS,
    KINDS,
    ClusterView,
    Workload,
    amount_of,
    template_of,
)


def kind_of(workload: Workload) -> str:
    """Return the kind; items of a list do not know it."""
    return KINDS[type(workload)]


def judge_workload(view: ClusterView, workload: Workload) -> list[Finding]:
    """Return what there is to say about a workload itself; its autoscalers, budgets and pods have verdicts too."""
    kind, key = kind_of(workload), key_of(workload)
    word, argument = KIND_WORDS[kind], workload_argument(kind, key.name)
    findings = list(_about_selectors(view, workload))
    if isinstance(workload, DaemonSet):
        count, ready = workload.status.desired_number_scheduled, workload.status.number_ready
        room = None
    else:
        count = 1 if workload.spec.replicas is None else workload.spec.replicas
        ready = workload.status.ready_replicas
        if count == 0:
            return [*findings, found("workload-stopped", word, key, workload=argument)]
        room = next_pod(view, workload)
        findings += _about_quotas(view, workload, room)
    if ready < count:
        findings.append(found("workload-unready", word, key, ready=ready, count=count, workload=argument))
    # A pod of its own that waits already says so itself.
    waits = any(not one.spec.node_name for one in view.pods_of(kind, key))
    if room is not None and room.shortage and room.fitting is not None and not waits:
        findings.append(
            found(
                "workload-no-room",
                word,
                key,
                needs=shown_list(room.needs),
                shortage=room.shortage,
                workload=argument,
                fitting=flag_list(room.fitting),
            )
        )
    if not any(finding.severity is not Severity.NOTE for finding in findings):
        findings.append(found("workload-ok", word, key, ready=ready, count=count, detail=_room_text(room)))
    return findings


def next_pod(view: ClusterView, workload: Workload) -> Room | None:
    """Return what one more pod would find; None where that cannot be told."""
    if not view.whole or not view.nodes or "nodes" in view.unreadable or "pods" in view.unreadable:
        return None
    return room_for(view, _like(view, workload))


def _like(view: ClusterView, workload: Workload) -> Pod:
    """Return a pod as the workload's next one would be: as its newest is, for a webhook may have sized it."""
    pods = view.pods_of(kind_of(workload), key_of(workload))
    newest = max(pods, key=lambda pod: (str(pod.metadata.creation_timestamp), pod.metadata.name), default=None)
    return newest if newest is not None else Pod(spec=template_of(workload).spec)


def _room_text(room: Room | None) -> str:
    if room is None:
        return "room on nodes is not known"
    if not room.needs:
        return "it requests nothing, so any node takes more"
    return f"nodes have room for {room.copies} more" if room.copies else "nodes have no room for more"


def _about_selectors(view: ClusterView, workload: Workload) -> Iterator[Finding]:
    key = key_of(workload)
    selecting = view.near(key.namespace).selecting_workloads.those(template_of(workload).metadata.labels)
    if not any(other is workload for other in selecting):
        return  # its own selector does not match its pods, which is another trouble
    for other in selecting:
        if other is not workload:
            yield found(
                "workload-overlap",
                KIND_WORDS[kind_of(workload)],
                key,
                other_kind=kind_of(other),
                other=other.metadata.name,
                own_kind=kind_of(workload),
                selector=view.selectors[kind_of(other), key_of(other)],
            )


def _about_quotas(view: ClusterView, workload: Workload, room: Room | None) -> Iterator[Finding]:
    key = key_of(workload)
    needs = room.needs if room is not None else view.facts(_like(view, workload)).requests
    for quota in view.near(key.namespace).quotas:
        for hard, resource, wanted in _asked(needs):
            limit, used = (quota.status.hard or {}).get(hard), (quota.status.used or {}).get(hard, "0")
            if limit is None:
                continue
            left = (amount_of(limit) or ZERO) - (amount_of(used) or ZERO)
            if wanted > left:
                yield found(
                    "workload-quota",
                    KIND_WORDS[kind_of(workload)],
                    key,
                    resource=resource,
                    wanted=shown(resource, wanted),
                    quota=quota.metadata.name,
                    free=shown(resource, max(left, ZERO)),
                    hard=hard,
                    amount=rounded(resource, (amount_of(used) or ZERO) + wanted),
                )


def _asked(needs: Amounts) -> Iterator[tuple[str, str, Quantity]]:
    """Return the members of a quota that one more pod uses up."""
    yield "pods", "pods", Quantity.of(1)
    for resource, amount in needs.items():
        yield f"requests.{resource}", resource, amount
        if resource in ("cpu", "memory"):
            yield resource, resource, amount
