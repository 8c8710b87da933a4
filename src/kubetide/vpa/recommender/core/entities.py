"""What the model is made of: label sets, pods, and one record for each VPA.

A label set is a namespace and the exact labels of some pods. It holds the aggregates of these pods by container name
and the VPAs whose selector matches, so that every question (which VPAs does a pod belong to, which aggregates feed a
VPA, how many pods does it have) is a lookup.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from kubetide.api.objects.meta import CrossVersionObjectReference, ObjectKey
from kubetide.api.objects.vpa import RECREATE, PodRecommendation, PodResourcePolicy, VerticalPodAutoscaler
from kubetide.api.values.conditions import Condition
from kubetide.api.values.selectors import Selector
from kubetide.vpa.core.ceilings import Caps
from kubetide.vpa.core.learned import PLAIN, Choice
from kubetide.vpa.core.policy import Recommended
from kubetide.vpa.recommender.core.aggregate import Tuning
from kubetide.vpa.recommender.core.coordination.goals import NOT_ASKED, Coordination
from kubetide.vpa.recommender.core.estimator import Estimation
from kubetide.vpa.recommender.core.oom import Floor, Oom

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


Requests = Mapping[tuple[str, str], Sequence[int]]
"""The distinct requests of containers by name and resource, sorted, in billionths."""


@dataclass(eq=False, slots=True)
class LabelSet:
    """Pods of one namespace with equal labels."""

    namespace: str
    labels: Mapping[str, str]
    text: str
    aggregates: dict[str, int] = field(default_factory=dict)
    pods: dict[ObjectKey, "PodRecord"] = field(default_factory=dict)
    vpas: dict[ObjectKey, "VpaState"] = field(default_factory=dict)
    requests: Requests | None = None
    """What its pods request; None when one of them changed since it was looked up."""


@dataclass(eq=False, slots=True)
class PodRecord:
    """A pod as far as the model knows it; `containers` maps names to rows of the container table."""

    key: ObjectKey
    labels: LabelSet
    phase: str
    uid: str = ""
    containers: dict[str, int] = field(default_factory=dict)


class Window(NamedTuple):
    """The open memory window of one container."""

    pod: str
    uid: str
    end: int
    peak: float
    oom_peak: float
    last: int
    last_cpu: int


class Mark(NamedTuple):
    """A few numbers of a histogram pair that change with every sample: equal marks mean equal content."""

    first: int
    last: int
    samples: int
    cpu_total: float
    cpu_reference: int
    memory_total: float
    memory_reference: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The checkpoint that a container started from."""

    written: datetime | None
    with_windows: bool

    def knows(self, oom: datetime, interval: timedelta) -> bool:
        """Return whether an OOM kill is in it.

        Upstream takes what belongs to a window that is still open out of its checkpoints, and nothing says when the
        window ended: such an OOM kill counts, and at worst it counts on two days.
        """
        if self.written is None:
            return False
        return oom <= (self.written if self.with_windows else self.written - interval)


@dataclass(slots=True)
class StoredCheckpoint:
    """What is known of the checkpoint of one container."""

    count: int
    since: datetime
    updated: datetime | None
    annotated: bool
    mark: Mark | None = None
    floor: Floor | None = None
    complained: bool = False
    restored: Restored | None = None
    """The checkpoint as it was when the container started from it, which knows of older OOM kills."""


@dataclass(frozen=True, slots=True)
class Memo:
    """A recommendation and everything it came from: while that stays the same, nothing is built again."""

    amounts: bytes
    containers: tuple[str, ...]
    policy: PodResourcePolicy | None
    annotations: Mapping[str, str]
    left_alone: Collection[str]
    found: tuple[Recommended, ...]


@dataclass(frozen=True, slots=True)
class Basis:
    """What the status of a VPA was decided on."""

    current: VerticalPodAutoscaler
    found: tuple[Recommended, ...]
    pods: int
    problem: str | None
    contested: Mapping[str, str]
    groups: Mapping[str, tuple[Recommended, ...]] = field(default_factory=dict)
    choice: Choice = PLAIN
    heaps: str | None = None
    limits: str = ""
    """The annotation with memory limits apart from requests."""
    coordination: tuple[str, ...] = ()
    """What is said and written about an HPA that it is sized for."""
    capped: tuple[str, ...] = ()

    def same_as(self, other: "Basis") -> bool:
        """Return whether nothing is different; object and recommendation are the same ones, not just equal."""
        if self.current is not other.current or self.found is not other.found:
            return False
        if self.groups.keys() != other.groups.keys() or any(self.groups[g] is not other.groups[g] for g in self.groups):
            return False
        return (
            self.pods,
            self.problem,
            self.contested,
            self.choice,
            self.heaps,
            self.limits,
            self.coordination,
            self.capped,
        ) == (
            other.pods,
            other.problem,
            other.contested,
            other.choice,
            other.heaps,
            other.limits,
            other.coordination,
            other.capped,
        )


@dataclass(eq=False, slots=True)
class VpaState:
    """Everything the recommender knows of one VPA. The model owns it; each step of the loop keeps its own part."""

    key: ObjectKey
    selector: Selector

    # load.py: what the object says, and whether its target and its history could be read.
    created: datetime | None = None
    target: CrossVersionObjectReference | None = None
    policy: PodResourcePolicy | None = None
    mode: str = RECREATE
    annotations: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0
    tunings: Mapping[str, Tuning] = field(default_factory=dict)
    estimations: Mapping[str, Estimation] = field(default_factory=dict)
    """Numbers of its own by container name, `*` for the others."""
    tuning_problems: tuple[str, ...] = ()
    contested: Mapping[str, str] = field(default_factory=dict)
    """Resources that an HPA scales on, with the HPA."""
    coordination: Coordination = NOT_ASKED
    """What is done about that HPA."""
    coordination_text: str = ""
    """What was written about it last."""
    unsized: str = ""
    """Why its cpu cannot be sized for the HPA yet."""
    only_up: frozenset[str] = frozenset()
    """Resources whose recommendation only rises."""
    heaps: str | None = None
    """Which containers never give memory back, in words; None while nothing is known."""
    choice: Choice = PLAIN
    """Which rule sizes its pods, and who chose it."""
    problem: str | None = None
    """What ConfigUnsupported reports; None while selector, target and policy are fine."""
    resolves: bool = True
    """Whether its target is there; unknown counts as there."""
    loaded: bool = False
    """Whether everything stored for it has been read; until then it is neither recommended for nor saved."""
    scope: str = ""
    """The node label that groups its pods; empty: all are sized alike."""
    group: str | None = None
    """The value of that label, in the record of one group."""
    group_keys: tuple[ObjectKey, ...] = ()
    """The records of its groups."""
    source: tuple[object, ...] | None = None
    """What this record was last made from; None when it has to be made again."""

    # learn.py: what feeds it.
    label_sets: dict[int, LabelSet] = field(default_factory=dict)
    pod_count: int = 0
    history: dict[str, int] = field(default_factory=dict)
    """Aggregates restored from checkpoints, by container name."""
    windows: dict[str, tuple[Window, ...]] = field(default_factory=dict)
    """Memory windows that were open in the checkpoints, until their containers show up."""
    floors: dict[str, Floor] = field(default_factory=dict)
    """Memory that OOM-killed containers keep, by name."""
    near_ooms: dict[str, Oom] = field(default_factory=dict)
    """The newest time at which a container was given more memory before it was OOM killed, by name."""

    # core/recommend.py: what was found last.
    memo: Memo | None = None
    allowed: tuple[Recommended, ...] = ()
    """What ceilings left of it."""
    capped: tuple[str, ...] = ()
    """Which targets a ceiling holds, and which one, in words."""
    quota_caps: Caps = field(default_factory=dict)
    """What quotas left its containers when all pods of the namespace were last there."""

    # publish.py: what is in the API already.
    conditions: tuple[Condition, ...] = ()
    recommendation: tuple[Recommended, ...] | None = None
    basis: Basis | None = None
    """What the published status rests on; None while something is left to write."""
    said_missing: datetime | None = None
    checkpoints: dict[str, StoredCheckpoint] = field(default_factory=dict)
    checkpoint_written: datetime | None = None
    published: tuple[PodRecommendation, tuple[Recommended, ...]] | None = None
    """The recommendation as it is written, and read."""
    waits_since: datetime | None = None
    """When the recommendation first differed from what is written, by so little that it can wait."""
    saved: bytes | None = None
    """The amounts that its checkpoints lead to; None while they are not known."""

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

    @property
    def is_scoped(self) -> bool:
        """Whether its groups are recommended for in its place."""
        return bool(self.scope) and self.group is None

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

    def estimation(self, container: str, default: Estimation) -> Estimation:
        """Return the percentiles and margins of a container."""
        return self.estimations.get(container, self.estimations.get("*", default))


class Dropped(NamedTuple):
    """An aggregate that was collected; its number may be given to another one from now on."""

    labels: LabelSet
    container: str
    slot: int


def label_text(labels: Mapping[str, str] | None) -> str:
    """Return labels as canonical text."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items()))


def oldest(vpas: Iterable[VpaState]) -> VpaState | None:
    """Return the oldest VPA, a group rather than its VPA; of equally old ones that with the smaller name."""

    def age(vpa: VpaState) -> tuple[float, bool, ObjectKey]:
        return (vpa.created.timestamp() if vpa.created is not None else 0.0, vpa.is_scoped, vpa.key)

    return min(vpas, key=age, default=None)
