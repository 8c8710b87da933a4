"""What the updater reports, as events."""

from kubetide.api.objects.core import Pod
from kubetide.api.objects.events import Event, normal, reference_to, warning
from kubetide.api.objects.meta import ObjectReference
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.vpa.updater.core.growth import Growth, readable_growth

EVICTED_BY_VPA = "EvictedByVPA"
ROLLED_OUT = "RolledOut"
EVICTED_POD = "EvictedPod"
RESIZED_BY_VPA = "InPlaceResizedByVPA"
RESIZE_SKIPPED = "InPlaceResizeSkipped"
UPDATES_PAUSED = "UpdatesPaused"
UPDATES_RESUMED = "UpdatesResumed"
INVALID_RECOMMENDATION = "InvalidRecommendation"
INVALID_ANNOTATION = "InvalidAnnotation"
MEMORY_GROWN = "MemoryGrownBeforeOOM"
MEMORY_NOT_GROWN = "MemoryNotGrownBeforeOOM"


def evicted(pod: Pod, vpa: VerticalPodAutoscaler) -> tuple[Event, Event]:
    """Return the events on the pod and on the VPA."""
    name = pod.metadata.name
    return (
        normal(_pod(pod), EVICTED_BY_VPA, "Pod was evicted by VPA Updater to apply resource recommendation."),
        normal(_vpa(vpa), EVICTED_POD, f"VPA Updater evicted Pod {name} to apply resource recommendation."),
    )


def rolled_out(vpa: VerticalPodAutoscaler, target: str) -> Event:
    """Return the event on a VPA whose target is rolled out."""
    message = f"VPA Updater began a rollout of Deployment {target} to apply resource recommendation."
    return normal(_vpa(vpa), ROLLED_OUT, message)


def resized(pod: Pod) -> Event:
    """Return the event on a pod that was resized."""
    return normal(_pod(pod), RESIZED_BY_VPA, "Pod was resized in place by VPA Updater.")


def grown(pod: Pod, growth: Growth) -> Event:
    """Return the event on a pod whose container was given more memory before it could be OOM killed."""
    text = f"Container {growth.container}: {readable_growth(growth)}."
    return normal(_pod(pod), MEMORY_GROWN, text)


def not_grown(pod: Pod, growth: Growth) -> Event:
    """Return the event on a pod whose container is about to be OOM killed, and cannot be given more."""
    text = f"Memory of container {growth.container} is running out and is not raised: {growth.reason}."
    return warning(_pod(pod), MEMORY_NOT_GROWN, text)


def skipped(pod: Pod) -> Event:
    """Return the event on a pod that is not resized because its node could not give the same before."""
    message = "In-place resize skipped: an earlier one was infeasible, and the recommendation has not become smaller."
    return normal(_pod(pod), RESIZE_SKIPPED, message)


def paused(vpa: VerticalPodAutoscaler, detail: str) -> Event:
    """Return the event on a VPA whose workload is left alone from now on."""
    return warning(_vpa(vpa), UPDATES_PAUSED, detail)


def resumed(vpa: VerticalPodAutoscaler, detail: str) -> Event:
    """Return the event on a VPA whose workload is updated again."""
    return normal(_vpa(vpa), UPDATES_RESUMED, detail)


def invalid(vpa: VerticalPodAutoscaler, pod: Pod, container: str, resource: str) -> Event:
    """Return the event on a VPA whose recommendation would make a pod that the API server refuses."""
    message = (
        f"Container {container} of Pod {pod.metadata.name} is left alone: "
        f"its {resource} request would exceed its limit."
    )
    return warning(_vpa(vpa), INVALID_RECOMMENDATION, message)


def invalid_annotation(vpa: VerticalPodAutoscaler, problem: str) -> Event:
    """Return the event on a VPA that asks for something nobody can make sense of."""
    return warning(_vpa(vpa), INVALID_ANNOTATION, problem)


def _pod(pod: Pod) -> ObjectReference:
    return reference_to(pod, kind="Pod", api_version="v1")


def _vpa(vpa: VerticalPodAutoscaler) -> ObjectReference:
    return reference_to(vpa, kind="VerticalPodAutoscaler", api_version="autoscaling.k8s.io/v1")
