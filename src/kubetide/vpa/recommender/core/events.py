"""What the recommender reports, as events."""

from kubetide.api.objects.events import Event, reference_to, warning
from kubetide.api.objects.meta import ObjectReference
from kubetide.api.objects.vpa import VerticalPodAutoscaler

UNREADABLE_CHECKPOINT = "UnreadableCheckpoint"
HEALED_CHECKPOINT = "HealedCheckpoint"
INVALID_TUNING = "InvalidTuning"


def unreadable_checkpoint(vpa: VerticalPodAutoscaler, checkpoint: str, problem: str) -> Event:
    """Return the event about a checkpoint that is kept but cannot be used."""
    message = f"Checkpoint {checkpoint} cannot be read and is left as it is: {problem}"
    return warning(_reference(vpa), UNREADABLE_CHECKPOINT, message)


def healed_checkpoint(vpa: VerticalPodAutoscaler, checkpoint: str, problem: str) -> Event:
    """Return the event about a checkpoint that lay in the future."""
    message = f"Checkpoint {checkpoint} lies in the future ({problem}): its amounts are kept and count as of now"
    return warning(_reference(vpa), HEALED_CHECKPOINT, message)


def invalid_tuning(vpa: VerticalPodAutoscaler, problem: str) -> Event:
    """Return the event about an annotation that cannot be used; the general setting applies instead."""
    return warning(_reference(vpa), INVALID_TUNING, problem)


def _reference(vpa: VerticalPodAutoscaler) -> ObjectReference:
    return reference_to(vpa, kind="VerticalPodAutoscaler", api_version="autoscaling.k8s.io/v1")
