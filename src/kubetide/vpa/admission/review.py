"""Answers to the API server's questions about pods and VPAs.

A pod is never refused: whatever is wrong with a recommendation, the pod itself is fine. A VPA with mistakes is
refused, with every mistake and its field.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubetide.api.admission import AdmissionRequest, review_response
from kubetide.api.core import Pod
from kubetide.api.vpa import VerticalPodAutoscaler, update_mode
from kubetide.vpa.admission.mutate import UNLIMITED, Fitted, Limits, fit_pod, pod_patch
from kubetide.vpa.admission.validate import FieldError, Gates, default_patch, validate, warnings
from kubetide.vpa.limits import NamespaceLimits
from kubetide.vpa.policy import MEMORY

PROBE = "kubetide.io/webhook-probe"
"""Label of a pod that is made as a dry run to see whether the webhook is called, and the annotation that says yes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext:
    """The VPA that controls a pod, and what else decides about its resources."""

    vpa: VerticalPodAutoscaler
    ranges: NamespaceLimits
    limits: Limits = UNLIMITED


def is_probe(pod: Pod) -> bool:
    """Tell whether a pod is our own question."""
    return PROBE in (pod.metadata.labels or {})


def answer_probe(request: AdmissionRequest, pod: Pod) -> dict[str, Any]:
    """Return the answer that shows that the webhook was called."""
    patch = [] if pod.metadata.annotations is not None else [_add("/metadata/annotations", {})]
    path = f"/metadata/annotations/{PROBE.replace('/', '~1')}"
    return review_response(request.uid, patch=[*patch, _add(path, "patched")])


def answer_pod(request: AdmissionRequest, pod: Pod, context: PodContext) -> dict[str, Any]:
    """Return the answer that gives a new pod its recommendation."""
    fitted = fit_pod(pod, context.vpa, context.ranges, context.limits)
    patch = pod_patch(
        pod.spec.containers or (),
        fitted.containers,
        mode=update_mode(context.vpa),
        vpa_name=context.vpa.metadata.name,
        annotated=pod.metadata.annotations is not None,
    )
    return review_response(request.uid, patch=patch.operations)


def shrinks_memory(pod: Pod, context: PodContext) -> bool:
    """Tell whether some container would get less memory than it asks for: only then its usage matters."""
    fitted: Fitted = fit_pod(pod, context.vpa, context.ranges, context.limits)
    asked = {c.name: (c.resources.requests if c.resources else None) or {} for c in pod.spec.containers or ()}
    for new in fitted.containers:
        if MEMORY in new.requests and MEMORY in asked.get(new.name, {}):
            own = asked[new.name][MEMORY]
            if new.requests[MEMORY] < type(new.requests[MEMORY]).parse(own):
                return True
    return False


def answer_vpa(
    request: AdmissionRequest, vpa: Mapping[str, Any], old: Mapping[str, Any] | None, gates: Gates
) -> dict[str, Any]:
    """Return the answer about a VPA object: its mistakes, or the default it lacks."""
    mistakes = validate(vpa, creating=request.operation == "CREATE", old=old, gates=gates)
    if mistakes:
        return _refusal(request, mistakes)
    return review_response(request.uid, patch=default_patch(vpa), warnings=warnings(vpa))


def _refusal(request: AdmissionRequest, mistakes: tuple[FieldError, ...]) -> dict[str, Any]:
    told = ", ".join(f"{mistake.field}: {mistake.message}" for mistake in mistakes)
    message = f'VerticalPodAutoscaler.autoscaling.k8s.io "{request.name}" is invalid: {told}'
    answer = review_response(request.uid, allowed=False, message=message, code=422)
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
