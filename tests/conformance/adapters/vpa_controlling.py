"""Which VPA controls a pod."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from conformance.registry import suite
from kubetide.api.objects.meta import CrossVersionObjectReference, ObjectMeta
from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import LabelSelector, selector_from
from kubetide.vpa.core.matching import Candidate, controlling, pod_owner

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@suite("vpa/controlling_vpa")
def controlling_vpa(case: dict[str, Any]) -> Iterable[str]:
    meta = convert({"ownerReferences": case.get("ownerReferences")}, ObjectMeta)
    candidates = [
        Candidate(
            namespace=vpa["namespace"],
            name=vpa["name"],
            created=None if vpa.get("createdMs") is None else EPOCH + timedelta(milliseconds=vpa["createdMs"]),
            target=convert(vpa["targetRef"], CrossVersionObjectReference) if vpa.get("targetRef") else None,
            selector=selector_from(LabelSelector(match_labels=vpa.get("selectorMatchLabels") or {})),
        )
        for vpa in case["vpas"]
    ]
    topmost, found = case.get("topmostController"), None
    if pod_owner(meta) is not None and topmost is not None and not case.get("controllerLookupFails"):
        found = controlling(
            candidates,
            namespace=case["podNamespace"],
            labels=case.get("podLabels"),
            kind=topmost["kind"],
            name=topmost["name"],
        )
    got = None if found is None else f"{found.namespace}/{found.name}"
    if got != case["expected"]:
        yield f"got {got}, expected {case['expected']}"
