"""What the model is made of: label sets, pods and VPAs.

A label set is a namespace and the exact labels of some pods. It holds the aggregates of these pods by container name
and the VPAs whose selector matches, so that every question (which VPAs does a pod belong to, which aggregates feed a
VPA, how many pods does it have) is a lookup.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import RECREATE, CrossVersionObjectReference, PodResourcePolicy
from kubetide.api.values.conditions import Condition
from kubetide.api.values.selectors import Selector
from kubetide.vpa.core.policy import Recommended
from kubetide.vpa.recommender.core.aggregate import Tuning

GENERATED = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-name",
        "controller-uid",
        "job-name",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels that Kubernetes itself gives to the pods of one Job, or to a single pod."""


@dataclass(eq=False, slots=True)
class LabelSet:
    """Pods of one namespace with equal labels."""

    namespace: str
    labels: Mapping[str, str]
    text: str
    aggregates: dict[str, int] = field(default_factory=dict)
    pods: dict[ObjectKey, "PodState"] = field(default_factory=dict)
    vpas: dict[ObjectKey, "VpaState"] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class PodState:
    """A pod as far as the model knows it; `containers` maps names to rows of the container table."""

    key: ObjectKey
    labels: LabelSet
    phase: str
    uid: str = ""
    containers: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class VpaState:
    """A VPA as far as the model knows it."""

    key: ObjectKey
    selector: Selector
    created: datetime | None = None
    target: CrossVersionObjectReference | None = None
    policy: PodResourcePolicy | None = None
    mode: str = RECREATE
    annotations: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0
    conditions: tuple[Condition, ...] = ()
    recommendation: tuple[Recommended, ...] | None = None
    tunings: Mapping[str, Tuning] = field(default_factory=dict)
    label_sets: dict[int, LabelSet] = field(default_factory=dict)
    history: dict[str, int] = field(default_factory=dict)
    """Aggregates restored from checkpoints, by container name."""
    pod_count: int = 0
    checkpoint_written: datetime | None = None
    _fed: dict[str, list[int]] | None = None

    def fed(self) -> Mapping[str, Sequence[int]]:
        """Return the aggregates that feed this VPA by container name, sorted: live ones first, then what was restored.

        Asked for in every loop and changed seldom, so it is kept until `touch`.
        """
        if self._fed is None:
            found: dict[str, list[int]] = {}
            for listed in (*(labels.aggregates for labels in self.label_sets.values()), self.history):
                for name, slot in listed.items():
                    found.setdefault(name, []).append(slot)
            self._fed = dict(sorted(found.items()))
        return self._fed

    def touch(self) -> None:
        """Look again at what feeds this VPA: its label sets, their aggregates or its history changed."""
        self._fed = None

    def aggregates(self) -> Iterator[tuple[str, int]]:
        """Yield the aggregates that feed this VPA with the names of their containers."""
        for name, slots in self.fed().items():
            for slot in slots:
                yield name, slot

    def tuning(self, container: str, default: Tuning) -> Tuning:
        """Return how samples of a container are weighed."""
        return self.tunings.get(container, self.tunings.get("*", default))


class Dropped(NamedTuple):
    """An aggregate that was collected; its number may be given to another one from now on."""

    labels: LabelSet
    container: str
    slot: int


def label_text(labels: Mapping[str, str] | None) -> str:
    """Return labels as canonical text."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items()))


def oldest(vpas: Iterable[VpaState]) -> VpaState | None:
    """Return the oldest VPA; of equally old ones that with the smaller name."""
    return min(vpas, key=lambda v: (v.created.timestamp() if v.created is not None else 0.0, v.key), default=None)
