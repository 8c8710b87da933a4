"""What the recommender tells people, as events."""

from kubetide.api.events import Event, normal, reference_to, warning
from kubetide.api.meta import ObjectReference
from kubetide.api.vpa import VerticalPodAutoscaler

UNREADABLE_CHECKPOINT = "UnreadableCheckpoint"
INVALID_TUNING = "InvalidTuning"
HISTORY_UNAVAILABLE = "HistoryUnavailable"
OOM_RECORDED = "OOMRecorded"


def unreadable_checkpoint(vpa: VerticalPodAutoscaler, checkpoint: str, problem: str) -> Event:
    """Return the event about a checkpoint that is kept but cannot be used."""
    message = f"Checkpoint {checkpoint} cannot be read and is left as it is: {problem}"
    return warning(_reference(vpa), UNREADABLE_CHECKPOINT, message)


def history_unavailable(vpa: VerticalPodAutoscaler, problem: str) -> Event:
    """Return the event about history that could not be read; the last recommendation stays in force."""
    return warning(_reference(vpa), HISTORY_UNAVAILABLE, f"The last recommendation stays in force: {problem}")


def invalid_tuning(vpa: VerticalPodAutoscaler, problem: str) -> Event:
    """Return the event about an annotation that cannot be used; the general setting applies instead."""
    return warning(_reference(vpa), INVALID_TUNING, problem)


def oom_recorded(vpa: VerticalPodAutoscaler, pod: str, container: str) -> Event:
    """Return the event about an out-of-memory kill that raised the memory estimate."""
    return normal(_reference(vpa), OOM_RECORDED, f"Container {container} of Pod {pod} ran out of memory.")


def _reference(vpa: VerticalPodAutoscaler) -> ObjectReference:
    return reference_to(vpa, kind="VerticalPodAutoscaler", api_version="autoscaling.k8s.io/v1")
