"""Answers to the API server's questions about pods and VPAs.

A pod is never refused: whatever is wrong with a recommendation, the pod itself is fine. A VPA with mistakes is
refused, with every mistake and its field.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubetide.api.objects.admission import AdmissionRequest, review_response
from kubetide.api.objects.core import Pod
from kubetide.api.objects.vpa import INITIAL, OFF, VerticalPodAutoscaler, update_mode
from kubetide.api.values.quantity import parse_quantity
from kubetide.vpa.admission.core.mutate import Fitted, annotation_path, pod_patch
from kubetide.vpa.admission.core.validate import FieldError, Gates, default_patch, validate, warnings
from kubetide.vpa.core.boost import ANNOTATION, Boosted
from kubetide.vpa.core.policy import MEMORY

PROBE = "kubetide.io/webhook-probe"
"""Label of a pod that is made as a dry run to see whether the webhook is called, and the annotation that says yes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext:
    """The VPA that controls a pod, and what its containers get."""

    vpa: VerticalPodAutoscaler
    fitted: Fitted
    boosted: Boosted | None = None
    """What the containers get instead while the pod starts."""


def is_probe(pod: Pod) -> bool:
    """Return whether a pod is our own question."""
    return PROBE in (pod.metadata.labels or {})


def answer_probe(request: AdmissionRequest, pod: Pod) -> dict[str, Any]:
    """Return the answer that shows that the webhook was called."""
    patch = [] if pod.metadata.annotations is not None else [_add("/metadata/annotations", {})]
    return review_response(request.uid, patch=[*patch, _add(annotation_path(PROBE), "patched")])


def answer_pod(request: AdmissionRequest, pod: Pod, context: PodContext) -> dict[str, Any]:
    """Return the answer that gives a new pod its recommendation."""
    mode = update_mode(context.vpa)
    boosted = context.boosted
    if boosted is None or not boosted.notes:
        patch = pod_patch(
            pod,
            context.fitted.containers,
            mode=mode,
            vpa_name=context.vpa.metadata.name,
            level=context.fitted.pod,
        )
        return review_response(request.uid, patch=patch.operations)
    # A VPA that is off still boosts; its containers hold nothing but the boost.
    patch = pod_patch(
        pod,
        boosted.containers,
        mode=INITIAL if mode == OFF else mode,
        vpa_name=context.vpa.metadata.name,
    )
    notes = [_add(annotation_path(f"{ANNOTATION}{container}"), note) for container, note in boosted.notes.items()]
    return review_response(request.uid, patch=[*patch.operations, *notes])


def describe_sizes(context: PodContext) -> str:
    """Say in one line what the containers of a pod get, and that some are boosted."""
    boosted = context.boosted if context.boosted is not None and context.boosted.notes else None
    new = context.fitted.containers if boosted is None else boosted.containers
    said = [
        f"{one.name}: {kind} {', '.join(f'{name} {amount}' for name, amount in listed.items())}"
        for one in new
        for kind, listed in (("requests", one.requests), ("limits", one.limits))
        if listed
    ]
    return ("boosted while it starts; " if boosted else "") + ("; ".join(said) or "nothing is recommended for it")


def shrinks_memory(pod: Pod, fitted: Fitted) -> bool:
    """Return whether some container would get less memory than it asks for: only then its usage matters."""
    for container, new in zip(pod.spec.containers or (), fitted.containers, strict=True):
        asked = (container.resources.requests if container.resources else None) or {}
        if MEMORY in new.requests and MEMORY in asked and new.requests[MEMORY] < parse_quantity(asked[MEMORY]):
            return True
    return False


def answer_vpa(
    request: AdmissionRequest, vpa: Mapping[str, Any], old: Mapping[str, Any] | None, gates: Gates
) -> dict[str, Any]:
    """Return the answer about a VPA object: its mistakes, or the default it lacks."""
    mistakes = validate(vpa, creating=request.operation == "CREATE", old=old, gates=gates)
    told = [warning.message for warning in warnings(vpa, old=old, gates=gates)]
    if mistakes:
        return _refusal(request, mistakes, told)
    return review_response(request.uid, patch=default_patch(vpa), warnings=told)


def _refusal(request: AdmissionRequest, mistakes: tuple[FieldError, ...], warned: list[str]) -> dict[str, Any]:
    told = ", ".join(f"{mistake.field}: {mistake.message}" for mistake in mistakes)
    message = f'VerticalPodAutoscaler.autoscaling.k8s.io "{request.name}" is invalid: {told}'
    answer = review_response(request.uid, allowed=False, message=message, code=422, warnings=warned)
    answer["response"]["status"] = {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": message,
        "details": {
            "group": "autoscaling.k8s.io",
            "kind": "VerticalPodAutoscaler",
            "name": request.name,
            "causes": [{"reason": m.reason, "field": m.field, "message": m.message} for m in mistakes],
        },
    }
    return answer


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}
