"""What is kept of one autoscaler's learned headroom between reconciles."""

from dataclasses import dataclass

from kubetide.hpa.core.headroom.learner import HeadroomLearner
from kubetide.hpa.core.headroom.past_load import PastMetric


@dataclass(slots=True)
class PastReading:
    """A past that is being read, as far as it got: what fails goes on from here."""

    learner: HeadroomLearner
    metrics: tuple[PastMetric, ...]
    tolerance: float
    at: int
    """The next step to ask for, in seconds."""
    give_up_at: float
    steps: int = 0
    failures: int = 0


@dataclass(slots=True, weakref_slot=True)
class KeptHeadroom:
    """What is kept of one autoscaler."""

    learner: HeadroomLearner | None = None
    save_at: float = 0.0
    past: PastReading | None = None
    """The past that another learner is taught, to take over when it has caught up."""
    silent: str = ""
    """Why headroom that is asked for has nothing to say."""
