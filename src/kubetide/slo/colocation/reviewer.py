"""Answers admission reviews about pods: what a pod becomes, and whether it is refused.

Whatever goes wrong on the way refuses the pod with code 500, as upstream does: a batch pod that is let through as
a prod pod takes resources that nobody planned for.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kubetide import tracing
from kubetide.api.objects.admission import (
    AdmissionRequest,
    AdmissionReview,
    json_patch,
    local_review,
    review_response,
)
from kubetide.api.objects.core import ConfigMap, Pod
from kubetide.api.objects.events import reference_to, warning
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import COLOCATION_PROFILES
from kubetide.api.values.codec import convert, decode_raw
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.control.recorder import Recorder
from kubetide.log import get_logger
from kubetide.slo.colocation.cluster_view import ColocationView
from kubetide.slo.colocation.core import gpu
from kubetide.slo.colocation.core.match import ProfileProblem
from kubetide.slo.colocation.core.mutate import Surroundings, mutate, recorded
from kubetide.slo.colocation.core.pending import mutate_reservation
from kubetide.slo.colocation.core.profile import Draws
from kubetide.slo.colocation.core.required_labels import RequiredLabels
from kubetide.slo.colocation.core.validate import RESERVE_POD, violations
from kubetide.slo.colocation.settings import ColocationSettings
from kubetide.slo.core import compat as since
from kubetide.telemetry import Telemetry

log = get_logger("colocation")

Raw = dict[str, Any]
_FAILED = 500


class PodReviewer:
    """Answers reviews from what the caches hold."""

    def __init__(
        self,
        view: ColocationView,
        settings: ColocationSettings,
        telemetry: Telemetry,
        recorder: Recorder,
        rng: Draws,
        *,
        clock: Clock,
    ) -> None:
        self._view = view
        self._settings = settings
        self._compat = settings.version
        self._recorder = recorder
        self._rng = rng
        self._clock = clock
        self._told: set[ProfileProblem] = set()
        self._rules = RequiredLabels()
        view.required_labels.add_handler(self._rules_changed)
        self._duration = telemetry.histogram(
            "kubetide_colocation_review_duration_seconds",
            "How long answers take.",
            ("webhook", "object", "operation", "status"),
        )
        self._applied = telemetry.counter(
            "kubetide_colocation_applied_total", "Pods that a profile was applied to.", ("profile",)
        )

    async def mutate(self, review: AdmissionReview) -> Raw:
        """Answer what becomes of a pod that is created."""
        return await self._measured("mutating", review, self._mutate)

    async def validate(self, review: AdmissionReview) -> Raw:
        """Answer whether a pod is refused."""
        return await self._measured("validating", review, self._validate)

    async def mutate_reservation(self, review: AdmissionReview) -> Raw:
        """Answer what becomes of a Reservation that is created."""
        return await self._measured("mutating", review, self._mutate_reservation, about="reservations")

    async def mutate_reservation_local(self, raw: Raw) -> Raw:
        """Answer an API server in the same process."""
        return await self.mutate_reservation(local_review(raw))

    async def mutate_local(self, raw: Raw) -> Raw:
        """Answer an API server in the same process."""
        return await self.mutate(local_review(raw))

    async def validate_local(self, raw: Raw) -> Raw:
        """Answer an API server in the same process."""
        return await self.validate(local_review(raw))

    async def _measured(
        self,
        webhook: str,
        review: AdmissionReview,
        answer: Callable[[AdmissionRequest], Awaitable[Raw]],
        about: str = "pods",
    ) -> Raw:
        request = review.request or AdmissionRequest()
        began = self._clock.monotonic()
        status = "error"
        with tracing.span(f"colocation/{webhook}", namespace=request.namespace, name=request.name, resource=about):
            try:
                if request.resource.resource not in (about, "") or request.sub_resource:
                    found = review_response(request.uid)
                else:
                    found = await answer(request)
                status = "allowed" if found["response"]["allowed"] else "refused"
                return found
            except KubetideError as error:
                tracing.failed(error)
                log.warning("refused", resource=about, namespace=request.namespace, name=request.name, error=str(error))
                return review_response(request.uid, allowed=False, code=_FAILED, message=str(error))
            finally:
                tracing.annotate(result=status)
                took = self._clock.monotonic() - began
                self._duration.labels(webhook, about, request.operation, status).observe(took)

    async def _mutate(self, request: AdmissionRequest) -> Raw:
        if request.operation != "CREATE":
            return review_response(request.uid)
        pod = _raw_pod(request.object)
        namespace = (pod.get("metadata") or {}).get("namespace") or request.namespace
        profiles = self._view.profiles.store.values()
        around = Surroundings(
            profiles=profiles,
            namespace_labels=await self._view.namespace_labels(namespace),
            priority_classes=await self._view.classes_of(profiles),
            skip_resources=self._settings.gate("ColocationProfileSkipMutatingResources"),
            skip_resource_spec=self._settings.gate("DisableExtendedResourceSpec"),
            skip_devices=self._settings.gate("DisableDeviceResourceSpec"),
            compat=self._compat,
        )
        mutation = mutate(pod, around, self._rng)
        self._report(mutation.problems)
        for name in mutation.applied:
            self._applied.labels(name).inc()
        tracing.annotate(reason=_applied_text(mutation.applied))
        after = recorded(mutation) if self._settings.record_profiles else mutation.pod
        return review_response(request.uid, patch=json_patch(pod, after))

    async def _mutate_reservation(self, request: AdmissionRequest) -> Raw:
        if request.operation != "CREATE":
            return review_response(request.uid)
        reservation = _raw(request.object, "Reservation")
        profiles = self._view.profiles.store.values()
        classes = await self._view.classes_of(profiles)
        changed, applied = mutate_reservation(reservation, profiles, classes, self._rng, self._compat)
        for name in applied:
            self._applied.labels(name).inc()
        tracing.annotate(reason=_applied_text(applied))
        return review_response(request.uid, patch=json_patch(reservation, changed))

    async def _validate(self, request: AdmissionRequest) -> Raw:
        if request.operation not in ("CREATE", "UPDATE"):
            return review_response(request.uid)
        pod = _raw_pod(request.object)
        new = convert(pod, Pod)
        old = convert(_raw_pod(request.old_object), Pod) if request.operation == "UPDATE" else None
        check = not self._settings.gate("ColocationProfileSkipValidatingPriority")
        late = self._settings.gate("ColocationProfileController")
        problems = [found.message for found in violations(new, old, check_sub_priority=check, catches_up=late)]
        if RESERVE_POD in (new.metadata.annotations or {}) and old is None:
            problems.append(f"the annotation {RESERVE_POD} is for pods that the scheduler makes up")
        if self._settings.gate("ValidatePodDeviceResource"):
            problems += gpu.problems(pod)
        if self._settings.gate("EnablePodEnhancedValidator"):
            namespace = new.metadata.namespace or request.namespace
            problems += self._rules.problems(namespace, new.metadata.labels or {}, self._compat)
        if not problems:
            return review_response(request.uid)
        code = 400 if self._compat.has(since.REFUSED_AS_INVALID) else 403
        reason = "; ".join(problems)
        tracing.annotate(reason=reason)
        log.info("pod refused", namespace=request.namespace, pod=request.name, reason=reason)
        return review_response(request.uid, allowed=False, code=code, message=reason)

    def _report(self, problems: tuple[ProfileProblem, ...]) -> None:
        """Publish each problem of a profile once, as an event on the profile."""
        for problem in problems:
            if problem in self._told:
                continue
            self._told.add(problem)
            log.warning("profile not applied", profile=problem.profile, error=problem.message)
            profile = self._view.profiles.store.get(ObjectKey("", problem.profile))
            if profile is not None:
                resource = COLOCATION_PROFILES
                about = reference_to(profile, kind=resource.kind, api_version=resource.api_version)
                self._recorder.publish(warning(about, "ProfileNotApplied", problem.message))

    def _rules_changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        self._rules, error = self._rules.updated(None if new is None else new.data or {})
        if error is not None:
            log.warning("rules of required labels cannot be used, the previous ones stay", error=error)


def _applied_text(profiles: Sequence[str]) -> str:
    return f"profiles applied: {', '.join(profiles)}" if profiles else "no profile applies"


def _raw_pod(given: Any) -> Raw:
    return _raw(given, "pod")


def _raw(given: Any, what: str) -> Raw:
    found = decode_raw(bytes(given), what=what)
    return found if isinstance(found, dict) else {}
