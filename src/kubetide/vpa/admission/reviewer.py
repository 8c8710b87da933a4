"""What the webhook answers: one review at a time, measured step by step.

A pod is let pass whatever happens; a VPA that cannot be right is refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kubetide import tracing
from kubetide.api.objects.admission import AdmissionRequest, AdmissionReview, local_review, review_response
from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import decode, decode_raw
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.webhook import TOTAL
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry
from kubetide.vpa.admission.core.review import answer_pod, answer_probe, answer_vpa, describe_sizes, is_probe
from kubetide.vpa.admission.core.validate import Gates
from kubetide.vpa.admission.observer import AdmissionView
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.core.scope import placed
from kubetide.vpa.core.sidecars import with_sidecars

log = get_logger("admission")

LATENCY_BUCKETS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(60.0, 120.0, 300.0),
)


class Reviewer:
    """Answers AdmissionReviews."""

    def __init__(self, view: AdmissionView, settings: AdmissionSettings, telemetry: Telemetry, *, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._gates = Gates(
            in_place=settings.gate("InPlace"),
            per_vpa_config=settings.gate("PerVPAConfig"),
            cpu_startup_boost=settings.gate("CPUStartupBoost"),
            request_to_limit_ratio=settings.gate("RequestToLimitRatio"),
            pod_level=settings.gate("VPAPodLevelResources"),
            scope=settings.gate("DaemonSetScope"),
            compat=settings.followed,
        )
        self._sidecars = settings.gate("NativeSidecar")
        self._scopes = settings.gate("DaemonSetScope")
        prefix = "vpa_admission_controller"
        self._pods = telemetry.counter(f"{prefix}_admission_pods_total", "Pods reviewed.", ("applied",))
        self._latency = telemetry.histogram(
            f"{prefix}_admission_latency_seconds", "Time of a review.", ("status", "resource"), LATENCY_BUCKETS
        )
        self._steps = telemetry.histogram(
            f"{prefix}_execution_latency_seconds", "Time of the steps of a review.", ("step",), LATENCY_BUCKETS
        )
        self.patched = 0

    async def review(self, review: AdmissionReview) -> dict[str, Any]:
        """Answer one review. A pod is let pass whatever happens."""
        assert review.request is not None
        with tracing.span("admission", namespace=review.request.namespace, name=review.request.name):
            return await self._answer(review.request)

    async def _answer(self, request: AdmissionRequest) -> dict[str, Any]:
        began = self._clock.monotonic()
        resource, status = "unknown", "error"
        try:
            asked = (request.resource.group, request.resource.resource)
            if asked == ("", "pods"):
                resource = "Pod"
                answer = await self._pod(request)
            elif asked == ("autoscaling.k8s.io", "verticalpodautoscalers"):
                resource = "VPA"
                answer = self._vpa(request)
            else:
                return review_response(request.uid)
            status = "applied" if answer["response"].get("patch") else "skipped"
            return answer
        except KubetideError as error:
            tracing.failed(error)
            log.warning("review failed", resource=resource, namespace=request.namespace, error=str(error))
            if resource == "VPA":
                return review_response(request.uid, allowed=False, message=str(error), code=400)
            return review_response(request.uid)
        except Exception:
            if resource != "Pod":
                raise
            # Whatever is wrong with us, the pod is fine, also where the failurePolicy is Fail.
            log.exception("review failed", resource=resource, namespace=request.namespace)
            return review_response(request.uid)
        finally:
            tracing.annotate(resource=resource, result=status)
            self._latency.labels(status, resource).observe(self._clock.monotonic() - began)

    def too_large(self) -> None:
        """Count a review that was refused before it was read, because of its size."""
        self._latency.labels("error", "unknown").observe(0.0)

    async def review_raw(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Answer a review that comes as dicts, from an API server in the same process."""
        with self.step(TOTAL):
            return await self.review(local_review(raw))

    async def _pod(self, request: AdmissionRequest) -> dict[str, Any]:
        with self.step("read_request"):
            pod = decode(bytes(request.object), Pod, what=f"pod in {request.namespace}")
        if is_probe(pod):
            return answer_probe(request, pod)
        if self._scopes:
            pod = placed(pod, bytes(request.object))
        if self._sidecars:
            pod = with_sidecars(pod)
        context = None
        with self.step("admit"):
            if request.operation == "CREATE" and request.resource.version in ("v1", ""):
                context = await self._view.context(pod, request.namespace or pod.metadata.namespace)
        if context is None:
            self._pods.labels("false").inc()
            tracing.annotate(reason="no VPA sizes this pod")
            return review_response(request.uid)
        with self.step("build_response"):
            answer = answer_pod(request, pod, context)
        if tracing.is_on():
            tracing.annotate(vpa=context.vpa.metadata.name, reason=describe_sizes(context))
        self._pods.labels("true").inc()
        self.patched += 1
        return answer

    def _vpa(self, request: AdmissionRequest) -> dict[str, Any]:
        with self.step("read_request"):
            vpa = decode_raw(bytes(request.object), what="VerticalPodAutoscaler") or {}
            old = decode_raw(bytes(request.old_object), what="VerticalPodAutoscaler")
        with self.step("admit"):
            return answer_vpa(request, vpa, old, self._gates)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step; the server measures writing and the whole, which are outside of a review."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._steps.labels(name).observe(self._clock.monotonic() - began)
