"""Out-of-memory kills from eviction events and from pod updates."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from conformance.registry import suite
from kubetide.api.objects.core import Pod
from kubetide.api.objects.events import RecordedEvent
from kubetide.api.values.codec import convert
from kubetide.vpa.recommender.core.oom import from_event, from_update

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Case = dict[str, Any]


def time(millis: int | None) -> str | None:
    return None if millis is None else (EPOCH + timedelta(milliseconds=millis)).isoformat()


def state(given: Case | None) -> Case | None:
    if not given:
        return None
    body: Case = {}
    if given["kind"] == "terminated":
        body = {"reason": given.get("reason", ""), "finishedAt": time(given.get("finishedMs"))}
    return {given["kind"]: body}


def pod(given: Case) -> Pod:
    statuses = [
        {
            "name": s["name"],
            "restartCount": s["restartCount"],
            "state": state(s.get("state")),
            "lastState": state(s.get("lastTermination")),
            "resources": {"requests": s["statusRequests"]} if s.get("statusRequests") is not None else None,
        }
        for s in given.get("containerStatuses") or ()
    ]
    containers = [
        {"name": c["name"], "resources": {"requests": c.get("requests")}} for c in given.get("specContainers") or ()
    ]
    raw = {
        "metadata": {"namespace": "ns1", "name": "pod1"},
        "spec": {"containers": containers},
        "status": {"containerStatuses": statuses},
    }
    return convert(raw, Pod)


def _content(record: Case) -> list[tuple[str, Any]]:
    return sorted(record.items())


@suite("vpa/oom_observer")
def oom_observer(case: Case) -> Iterable[str]:
    if case["kind"] == "event":
        raw = {
            "metadata": {"annotations": case.get("annotations"), "creationTimestamp": time(case["createdMs"])},
            "reason": case["reason"],
            "involvedObject": {"kind": case["involvedKind"], "namespace": "ns1", "name": "pod1"},
        }
        found = from_event(convert(raw, RecordedEvent))
    else:
        found = from_update(pod(case["oldPod"]), pod(case["newPod"]))
    got = [
        {
            "tMs": (oom.at - EPOCH) // timedelta(milliseconds=1),
            "memoryBytes": oom.memory_bytes,
            "namespace": oom.namespace,
            "pod": oom.pod,
            "container": oom.container,
        }
        for oom in found
    ]
    want = case["expectedV171"] if "expectedV171" in case else case["expected"]
    if sorted(got, key=_content) != sorted(want, key=_content):
        yield f"got {got}, expected {want}"
