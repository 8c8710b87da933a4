"""Coordinated sizes beside the plain ones: what is known of workloads that an HPA counts, and what they are to request.

In every loop: `begin_loop` takes in which VPAs take part, `add` what their pods use, `decide` moves sizes
(`sizing`), `apply` puts them in the place of plain CPU targets. Requests that pods have when a VPA begins to take part
are the first sizes, so that switching it on moves nothing. What is kept over a restart is an annotation of the VPA,
written when a size moves and when an hour ends.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np

from kubetide.api.objects.capacity import Capacity
from kubetide.api.objects.coordination import CoordinationNote, note_text, read_note
from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import INITIAL, OFF
from kubetide.api.values.conditions import find_condition
from kubetide.api.values.quantity import milli_value
from kubetide.errors import InvalidInput, QuantityError
from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.core.policy import CPU, amounts, container_policy, controlled_resources, is_off
from kubetide.vpa.recommender.core.coordination.demand import HOURS, Demand
from kubetide.vpa.recommender.core.coordination.goals import Goal
from kubetide.vpa.recommender.core.coordination.sizing import MOVES, WORDS, Horizontal, SizeReason, Sizes
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import COLUMNS, Options, Row

PodLookup = Callable[[ObjectKey], Pod | None]
StartLookup = Callable[[ObjectKey], float | None]

USUAL_START_SECONDS: Final = 60.0
NODE_SHARE: Final = 0.5
"""Which part of the largest node one pod may take."""
BAND: Final = 50
"""Bounds are a fiftieth away from a target: pods that have another size are out of them."""
_TARGET, _LOWER, _UPPER = [COLUMNS.index((CPU, bound)) for bound in ("target", "lower", "upper")]


@dataclass(slots=True)
class Workload:
    """What is known of one workload."""

    goal: Goal
    demand: Demand
    containers: dict[str, int] = field(default_factory=dict)
    """What containers that this VPA sizes are to request, in millicores; empty while it is not known."""
    planned: dict[str, int] = field(default_factory=dict)
    others: int = 0
    """What containers request that the HPA counts and this VPA does not size."""
    sizes: Sizes | None = None
    ready: int = 0
    resized: bool = False
    """Whether no pod requests more than it is to request."""
    text: str = ""
    hour: int = 0
    restored: CoordinationNote | None = None
    problem: str = ""
    view: Horizontal | None = None

    @property
    def known(self) -> bool:
        """Whether sizes are known."""
        return self.sizes is not None and bool(self.containers)


@dataclass(frozen=True, slots=True)
class Moved:
    """A size that changed, or is about to."""

    vpa: ObjectKey
    message: str


class CoordinatedSizes:
    """The workloads of all VPAs that are sized for an HPA."""

    def __init__(self, model: Model, options: Options, pods: PodLookup, starts: StartLookup) -> None:
        self._model = model
        self._options = options
        self._pods = pods
        self._starts = starts
        self._workloads: dict[ObjectKey, Workload] = {}

    # ------------------------------------------------------------------ a loop

    def begin_loop(self, now: datetime) -> list[Moved]:
        """Take in which VPAs take part; return those whose stored state could not be read."""
        at, unread = int(now.timestamp()), []
        taking_part = {key: vpa for key, vpa in self._model.vpas.items() if vpa.loaded and vpa.coordination.goal}
        for key in self._workloads.keys() - taking_part.keys():
            del self._workloads[key]
        for key, vpa in taking_part.items():
            goal = vpa.coordination.goal
            assert goal is not None
            known = self._workloads.get(key)
            if known is None or known.goal.container != goal.container:
                known = self._workloads[key] = Workload(goal, Demand(1))
                try:
                    _restore(known, vpa, at)
                except InvalidInput as error:
                    unread.append(Moved(key, str(error)))
            known.goal = goal
            self._look_at_pods(known, vpa, at)
            vpa.unsized = "" if known.known else (known.problem or "its pods have not been seen yet")
        return unread

    def add(self, slots: Ints, cpu_millis: Ints, now: datetime) -> None:
        """Add what containers use, by the aggregates that they feed."""
        if not self._workloads:
            return
        used = slots >= 0
        highest = int(slots[used].max(initial=-1)) + 1
        total, samples = np.zeros(highest), np.zeros(highest, dtype=np.int64)
        np.add.at(total, slots[used], cpu_millis[used])
        np.add.at(samples, slots[used], 1)
        for key, workload in self._workloads.items():
            only = workload.goal.container
            fed = self._model.vpas[key].fed()
            mine = [slot for name in fed if not only or name == only for slot in fed[name] if slot < highest]
            # What pods use of which none is ready is their start and not what the load takes.
            if workload.ready and samples[mine].sum():
                workload.demand.add(np.array([total[mine].sum()]), int(now.timestamp()))

    def decide(self, now: datetime, capacity: Capacity) -> list[Moved]:
        """Move sizes; return what moved."""
        moved, at = [], int(now.timestamp())
        for key, workload in self._workloads.items():
            vpa, sizes = self._model.vpas[key], workload.sizes
            if sizes is None or not workload.known:
                continue
            before = _state(sizes)
            workload.view = self._horizontal(workload, vpa, capacity, now)
            sizes.decide(workload.demand, workload.view, at)
            after = _state(sizes)
            if after[:2] != before[:2]:
                reason = SizeReason(int(sizes.reason[0]))
                if after[0] != before[0]:
                    workload.containers = self._divided(workload, after[0])
                smaller = after[1] < after[0]
                workload.planned = self._divided(workload, after[1]) if smaller else {}
                moved.append(Moved(key, _told(workload.goal, before[0], after[:2], reason)))
            hour = at // 3600
            if after != before or hour != workload.hour or not workload.text:
                workload.hour, workload.text = hour, note_text(_note(workload, sizes))
        return moved

    def apply(self, rows: Sequence[Row], numbers: Ints) -> None:
        """Put coordinated sizes in the place of CPU targets."""
        if not self._workloads:
            return
        for i, row in enumerate(rows):
            workload = self._workloads.get(row.vpa.key)
            size = workload.containers.get(row.container) if workload is not None else None
            if size is not None:
                numbers[i, _TARGET], numbers[i, _LOWER] = size, size - size // BAND
                numbers[i, _UPPER] = size + -(-size // BAND)

    def text(self, vpa: VpaState) -> str:
        """Return the annotation of a VPA; empty: it has none."""
        workload = self._workloads.get(vpa.key)
        return workload.text if workload is not None else ""

    # ------------------------------------------------------------------ looking

    def _look_at_pods(self, workload: Workload, vpa: VpaState, at: int) -> None:
        """Note how many pods are ready; where sizes are not known yet, begin with what pods request."""
        only, requests = workload.goal.container, Counter[tuple[tuple[str, int], ...]]()
        workload.ready, workload.resized = 0, True
        for pod in self._running(vpa):
            statuses = pod.status.container_statuses or ()
            workload.ready += bool(statuses) and all(status.ready for status in statuses)
            try:
                requested = _requests(pod, only)
                requests[requested] += 1
                sizes = workload.containers
                workload.resized &= all(amount <= sizes.get(name, amount) for name, amount in requested)
            except InvalidInput as error:
                workload.problem = str(error)
        if not requests:
            return
        # During a rollout pods differ: most of them have what counts.
        usual = dict(requests.most_common(1)[0][0])
        sized = [name for name in usual if _sizes_cpu(vpa, name)]
        if not sized:
            workload.problem = "its policy leaves CPU alone"
            workload.containers, workload.sizes = {}, None
            return
        workload.problem = ""
        workload.others = sum(amount for name, amount in usual.items() if name not in sized)
        if workload.containers.keys() != set(sized):
            workload.containers, workload.planned = {name: usual[name] for name in sized}, {}
            workload.sizes = None
        if workload.sizes is None:
            whole = sum(workload.containers.values()) + workload.others
            workload.sizes = Sizes(np.array([float(whole)]), at)
            if (note := workload.restored) is not None and note.sizes == workload.containers:
                workload.sizes.moved[0], workload.sizes.announced[0] = note.moved, note.announced
                workload.sizes.count[0] = float(note.count)
                if note.planned:
                    workload.sizes.planned[0] = float(sum(note.planned.values()) + workload.others)

    def _running(self, vpa: VpaState) -> Iterator[Pod]:
        for labels in vpa.label_sets.values():
            for key, record in labels.pods.items():
                if record.phase == "Running" and (pod := self._pods(key)) is not None:
                    yield pod

    def _horizontal(self, workload: Workload, vpa: VpaState, capacity: Capacity, now: datetime) -> Horizontal:
        hpa, percent = workload.goal.hpa, workload.goal.percent
        status = hpa.status
        active = find_condition(status.conditions, "ScalingActive")
        since = status.last_scale_time or hpa.metadata.creation_timestamp
        still = status.current_replicas == status.desired_replicas and active is not None and active.is_true
        rested = (now - since).total_seconds() if still and since is not None else 0.0
        started = [seconds for pod in self._running(vpa) if (seconds := self._starts(_key(pod))) is not None]
        smallest, largest = self._bounds(workload, vpa, capacity)
        # Pods that are not ready serve nothing, and pods on their way out are not counted by the HPA. Where nobody
        # applies what is recommended there is nothing to announce, and so nothing to wait for.
        applied = vpa.mode not in (OFF, INITIAL)
        replicas = min(workload.ready, status.current_replicas) if applied else hpa.spec.max_replicas
        return Horizontal(
            target=_one(percent / 100.0),
            minimum=_one(hpa.spec.min_replicas if hpa.spec.min_replicas is not None else 1),
            maximum=_one(hpa.spec.max_replicas),
            replicas=_one(replicas),
            rested_seconds=_one(rested),
            start_seconds=_one(sorted(started)[len(started) // 2] if started else USUAL_START_SECONDS),
            largest=_one(largest),
            smallest=_one(smallest),
            resized=np.array([workload.resized]),
        )

    def _bounds(self, workload: Workload, vpa: VpaState, capacity: Capacity) -> tuple[float, float]:
        """Return what one pod may request at least and at most, by policy, pod minimum and nodes."""
        own = sum(workload.containers.values())
        smallest = self._options.estimation.min_cpu_millis
        node = capacity.largest.get(CPU)
        largest = float("inf") if node is None else NODE_SHARE * node - workload.others
        for name, size in workload.containers.items():
            entry = container_policy(vpa.policy, name)
            share = max(size, 1) / max(own, 1)
            least = amounts(entry.min_allowed if entry is not None else None).get(CPU)
            most = amounts(entry.max_allowed if entry is not None else None).get(CPU) or self._options.largest.get(CPU)
            if least is not None:
                smallest = max(smallest, least.milli / share)
            if most is not None:
                largest = min(largest, most.milli / share)
        return smallest + workload.others, max(largest, smallest) + workload.others

    def _divided(self, workload: Workload, whole: float) -> dict[str, int]:
        """Divide what a pod requests among its containers, in the proportion of what they have."""
        left = max(1, round(whole) - workload.others)
        own = sum(workload.containers.values())
        names = sorted(workload.containers)
        found = {name: max(1, round(left * workload.containers[name] / max(own, 1))) for name in names}
        # Rounding must not change the sum, which is what the HPA divides by.
        found[names[-1]] = max(1, found[names[-1]] + left - sum(found.values()))
        return found

    # ------------------------------------------------------------------ explaining

    def explain(self, vpa: VpaState) -> dict[str, Any] | None:
        """Return how the CPU of a coordinated VPA came about; None for others."""
        workload = self._workloads.get(vpa.key)
        if workload is None:
            return None
        sizes, demand, view = workload.sizes, workload.demand, workload.view
        peak = float(demand.peak()[0])
        found: dict[str, Any] = {
            "hpa": workload.goal.hpa.metadata.name,
            "percent": workload.goal.percent,
            "container": workload.goal.container,
            "sizes": dict(workload.containers),
            "planned": dict(workload.planned),
            "count": 0 if sizes is None else int(sizes.count[0]),
            "demandMillis": None if np.isnan(demand.smoothed[0]) else round(float(demand.smoothed[0])),
            "peakMillis": None if np.isnan(peak) else round(peak),
            "hours": int((~np.isnan(demand.peaks[0])).sum()),
            "problem": workload.problem,
        }
        if sizes is not None:
            reason = SizeReason(int(sizes.reason[0]))
            found |= {"reason": reason.name, "why": WORDS[reason], "podMillis": round(float(sizes.size[0]))}
        if view is not None:
            found |= {
                "ready": int(view.replicas[0]),
                "restedSeconds": round(float(view.rested_seconds[0])),
                "startSeconds": round(float(view.start_seconds[0])),
            }
        return found


def condition_text(vpa: VpaState) -> str:
    """Return what the condition reports about a VPA that is sized for an HPA."""
    goal = vpa.coordination.goal
    assert goal is not None
    text = f"cpu is sized for HorizontalPodAutoscaler {goal.hpa.metadata.name} at {goal.percent} %"
    return f"{text}; it is left alone while {vpa.unsized}" if vpa.unsized else text


def _told(goal: Goal, before: float, after: tuple[float, float], reason: SizeReason) -> str:
    size, planned = after
    of = f"for HorizontalPodAutoscaler {goal.hpa.metadata.name} at {goal.percent} %"
    if reason in MOVES:
        return f"cpu of a pod from {before:.0f}m to {size:.0f}m {of}: {WORDS[reason]}"
    if planned < size:
        return f"cpu of a pod is to fall from {size:.0f}m to {planned:.0f}m {of}: {WORDS[reason]}"
    return f"cpu of a pod stays at {size:.0f}m {of}: {WORDS[reason]}"


def _state(sizes: Sizes) -> tuple[float, float, float]:
    return float(sizes.size[0]), float(sizes.planned[0]), float(sizes.count[0])


def _note(workload: Workload, sizes: Sizes) -> CoordinationNote:
    demand = workload.demand
    return CoordinationNote(
        sizes=dict(workload.containers),
        planned=dict(workload.planned),
        moved=int(sizes.moved[0]),
        count=int(sizes.count[0]),
        announced=int(sizes.announced[0]) if sizes.count[0] else 0,
        since=int(demand.since[0]),
        seen=int(demand.seen[0]),
        peaks=tuple(None if np.isnan(peak) else round(float(peak)) for peak in demand.peaks[0]),
    )


def _restore(workload: Workload, vpa: VpaState, at: int) -> None:
    """Begin where the last recommender ended; raises InvalidInput."""
    if not vpa.coordination_text:
        return
    note = read_note(vpa.coordination_text)
    workload.containers, workload.planned, workload.restored = dict(note.sizes), dict(note.planned), note
    workload.text, workload.hour = vpa.coordination_text, note.seen // 3600
    if note.peaks and note.seen <= at:
        demand = workload.demand
        demand.since[0], demand.seen[0] = note.since, note.seen
        demand.peaks[0] = [np.nan if peak is None else float(peak) for peak in note.peaks]
        if len(note.peaks) == HOURS:
            demand.smoothed[0] = demand.lasting[0] = demand.peaks[0, note.seen // 3600 % HOURS]


def _requests(pod: Pod, only: str) -> tuple[tuple[str, int], ...]:
    """Return the CPU that the containers of a pod request; raises InvalidInput where one requests none."""
    found = []
    for own in pod.spec.containers or ():
        if only and own.name != only:
            continue
        text = ((own.resources.requests if own.resources is not None else None) or {}).get(CPU)
        try:
            amount = milli_value(text) if text is not None else 0
        except QuantityError:
            amount = 0
        if amount <= 0:
            raise InvalidInput(f"container {own.name} requests no cpu")
        found.append((own.name, amount))
    if not found:
        raise InvalidInput(f"its pods have no container {only}")
    return tuple(found)


def _sizes_cpu(vpa: VpaState, container: str) -> bool:
    entry = container_policy(vpa.policy, container)
    return not is_off(entry) and CPU in controlled_resources(entry)


def _key(pod: Pod) -> ObjectKey:
    return ObjectKey(pod.metadata.namespace, pod.metadata.name)


def _one(value: float) -> Floats:
    return np.array([float(value)])
