"""The recommender's model of the cluster: pods, label sets, VPAs and what links them.

Matching is by labels alone and several VPAs may share an aggregate; the oldest one decides how its samples are
weighed.

Both directions of matching go through an index of `key=value` pairs, because comparing every VPA with every label set
would dominate the loop of a large cluster.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TypeVar

import numpy as np

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.compat import Compat
from kubetide.api.values.selectors import NOTHING, Operator, Selector
from kubetide.stats.instants import microseconds
from kubetide.stats.saved import Saved
from kubetide.vpa.core.compat import FOLLOWED, OOM_AGE_FROM_LAST_SAMPLE
from kubetide.vpa.recommender.core.aggregate import Aggregates, Tuning
from kubetide.vpa.recommender.core.entities import (
    GENERATED,
    Dropped,
    LabelSet,
    PodRecord,
    VpaState,
    label_text,
    oldest,
)
from kubetide.vpa.recommender.core.samples import DETACHED, NO_AGGREGATE, Containers

FINISHED_PHASES = ("Succeeded", "Failed")

K = TypeVar("K")
M = TypeVar("M")
V = TypeVar("V")


class Model:
    """Everything the recommender remembers. Times are aware; nothing here waits or asks for anything."""

    def __init__(self, tuning: Tuning | None = None, compat: Compat = FOLLOWED) -> None:
        self.aggregates = Aggregates(tuning or Tuning())
        self.containers = Containers(self.aggregates, oom_age_from_window=not compat.has(OOM_AGE_FROM_LAST_SAMPLE))
        self.pods: dict[ObjectKey, PodRecord] = {}
        self.vpas: dict[ObjectKey, VpaState] = {}
        self._sets: dict[tuple[str, str], LabelSet] = {}
        self._sets_by_pair: dict[tuple[str, str, str], dict[int, LabelSet]] = {}
        self._sets_by_namespace: dict[str, dict[int, LabelSet]] = {}
        self._vpas_by_pair: dict[tuple[str, str, str], dict[ObjectKey, VpaState]] = {}
        self._departed: dict[int, LabelSet] = {}
        self._last_gc: datetime | None = None

    # ------------------------------------------------------------------ pods

    def set_pod(
        self, key: ObjectKey, labels: Mapping[str, str] | None, phase: str, *, now: datetime, uid: str = ""
    ) -> None:
        """Add a pod or update its labels and phase."""
        pod = self.pods.get(key)
        if pod is None:
            found = self._label_set(key.namespace, labels)
            pod = PodRecord(key, found, phase, uid)
            self.pods[key] = pod
            self._join(pod, found)
            return
        pod.phase, pod.uid, pod.labels.requests = phase, uid, None
        if pod.labels.text == label_text(labels):
            return
        old, new = pod.labels, self._label_set(key.namespace, labels)
        self._leave(pod)
        pod.labels = new
        for name, row in pod.containers.items():
            self.containers.aggregate[row] = self._aggregate(new, name, now)
            self.containers.relinked[row] = True
        self._join(pod, new)
        self._drop_if_unused(old)

    def delete_pod(self, key: ObjectKey) -> None:
        """Forget a pod; its aggregates stay."""
        pod = self.pods.pop(key, None)
        if pod is None:
            return
        self._leave(pod)
        for row in pod.containers.values():
            self.containers.free(row)
        self._drop_if_unused(pod.labels)

    def set_container(self, pod_key: ObjectKey, name: str, *, now: datetime) -> int:
        """Return the row of a container, adding it if it is new; KeyError when the pod is unknown."""
        pod = self.pods[pod_key]
        row = pod.containers.get(name)
        if row is None:
            row = self.containers.allocate(self._aggregate(pod.labels, name, now))
            pod.containers[name] = row
        return row

    def row(self, pod_key: ObjectKey, name: str, *, now: datetime) -> int:
        """Return the row of a known container, ready for samples; KeyError when pod or container is unknown."""
        pod = self.pods[pod_key]
        row = pod.containers[name]
        if self.containers.aggregate[row] == NO_AGGREGATE:
            self.containers.aggregate[row] = self._aggregate(pod.labels, name, now)
        return row

    def _join(self, pod: PodRecord, labels: LabelSet) -> None:
        labels.pods[pod.key], labels.requests = pod, None
        for vpa in labels.vpas.values():
            vpa.pod_count += 1

    def _leave(self, pod: PodRecord) -> None:
        del pod.labels.pods[pod.key]
        pod.labels.requests = None
        for vpa in pod.labels.vpas.values():
            vpa.pod_count -= 1
        if not pod.labels.pods and not GENERATED.isdisjoint(pod.labels.labels):
            self._departed[id(pod.labels)] = pod.labels

    # ------------------------------------------------------------------ label sets and aggregates

    def _label_set(self, namespace: str, labels: Mapping[str, str] | None) -> LabelSet:
        text = label_text(labels)
        found = self._sets.get((namespace, text))
        if found is None:
            found = LabelSet(namespace, dict(labels or {}), text)
            self._sets[namespace, text] = found
            self._sets_by_namespace.setdefault(namespace, {})[id(found)] = found
            for key, value in found.labels.items():
                self._sets_by_pair.setdefault((namespace, key, value), {})[id(found)] = found
            for vpa in self._candidates(found):
                if vpa.selector.matches(found.labels):
                    self._link(vpa, found)
        return found

    def _candidates(self, labels: LabelSet) -> Iterator[VpaState]:
        for key, value in (*labels.labels.items(), ("", "")):
            yield from self._vpas_by_pair.get((labels.namespace, key, value), {}).values()

    def _drop_if_unused(self, labels: LabelSet) -> None:
        if labels.pods or labels.aggregates:
            return
        del self._sets[labels.namespace, labels.text]
        self._departed.pop(id(labels), None)
        _discard(self._sets_by_namespace, labels.namespace, id(labels))
        for key, value in labels.labels.items():
            _discard(self._sets_by_pair, (labels.namespace, key, value), id(labels))
        for vpa in labels.vpas.values():
            vpa.label_sets.pop(id(labels), None)
            vpa.touch()

    def _aggregate(self, labels: LabelSet, container: str, now: datetime) -> int:
        slot = labels.aggregates.get(container)
        if slot is None:
            slot = self.aggregates.allocate(microseconds(now), self._tuning(labels, container))
            labels.aggregates[container] = slot
            _touch(labels)
        return slot

    def _tuning(self, labels: LabelSet, container: str) -> Tuning:
        vpa = oldest(labels.vpas.values())
        return self.aggregates.default if vpa is None else vpa.tuning(container, self.aggregates.default)

    def aggregate_count(self) -> int:
        """Return how many aggregates of pods are held (those restored from checkpoints not counted)."""
        return sum(len(labels.aggregates) for labels in self._sets.values())

    def matches_any(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Return whether some VPA selects pods with these labels."""
        found = self._sets.get((namespace, label_text(labels)))
        probe = found or LabelSet(namespace, labels or {}, "")
        return any(vpa.selector.matches(probe.labels) for vpa in self._candidates(probe))

    # ------------------------------------------------------------------ VPAs

    def set_vpa(self, vpa: VpaState, *, keep_history: bool) -> VpaState:
        """Add a VPA, or bring its record up to date with what its object says; return the record.

        With another selector it is linked anew; `keep_history` then keeps what was restored for it.
        """
        known = self.vpas.get(vpa.key)
        if known is None:
            self.vpas[vpa.key] = vpa
            self._link_all(vpa)
            return vpa
        for name in ("created", "target", "policy", "mode", "annotations", "generation", "conditions"):
            setattr(known, name, getattr(vpa, name))
        if _same_selector(known.selector, vpa.selector):
            if vpa.recommendation is not None:
                known.recommendation = vpa.recommendation
            self._retune(known, vpa.tunings)
            return known
        self._unlink(known)
        if not keep_history:
            self._free_history(known)
        self._retune(known, vpa.tunings)
        known.selector, known.recommendation, known.basis = vpa.selector, vpa.recommendation, None
        known.saved = None
        self._link_all(known)
        return known

    def delete_vpa(self, key: ObjectKey) -> None:
        """Forget a VPA and what was restored for it; aggregates of pods stay."""
        vpa = self.vpas.pop(key, None)
        if vpa is None:
            return
        self._unlink(vpa)
        self._free_history(vpa)

    def forget_namespaces(self, leaves: Callable[[str], bool]) -> list[int]:
        """Forget all there is in namespaces that leave, aggregates of pods included; return the numbers free now.

        Whoever learns about them meanwhile saves it. Were they to come back, what is saved would be restored beside
        what was kept, and the same samples would count twice.
        """
        for key in [key for key in self.vpas if leaves(key.namespace)]:
            self.delete_vpa(key)
        for key in [key for key in self.pods if leaves(key.namespace)]:
            self.delete_pod(key)
        freed: list[int] = []
        for labels in [labels for labels in self._sets.values() if leaves(labels.namespace)]:
            for container, slot in list(labels.aggregates.items()):
                self._drop_aggregate(labels, container, slot)
                freed.append(slot)
            self._drop_if_unused(labels)
        return freed

    def _free_history(self, vpa: VpaState) -> None:
        for slot in vpa.history.values():
            self.aggregates.free(slot)
        vpa.history, vpa.checkpoint_written, vpa.saved = {}, None, None

    def _unlink(self, vpa: VpaState) -> None:
        for pair in _index_pairs(vpa):
            _discard(self._vpas_by_pair, pair, vpa.key)
        for labels in vpa.label_sets.values():
            labels.vpas.pop(vpa.key, None)
            if vpa.tunings:
                self._retune_set(labels)
        vpa.label_sets, vpa.pod_count = {}, 0
        vpa.touch()

    def _link_all(self, vpa: VpaState) -> None:
        vpa.touch()
        for pair in _index_pairs(vpa):
            self._vpas_by_pair.setdefault(pair, {})[vpa.key] = vpa
        for labels in list(self._matching_sets(vpa)):
            self._link(vpa, labels)

    def _link(self, vpa: VpaState, labels: LabelSet) -> None:
        labels.vpas[vpa.key] = vpa
        vpa.label_sets[id(labels)] = labels
        vpa.touch()
        vpa.pod_count += len(labels.pods)
        if any(one.tunings for one in labels.vpas.values()):
            self._retune_set(labels)

    def _matching_sets(self, vpa: VpaState) -> Iterator[LabelSet]:
        namespace = vpa.key.namespace
        for _, key, value in _index_pairs(vpa):
            pool = self._sets_by_pair.get((namespace, key, value)) if key else self._sets_by_namespace.get(namespace)
            yield from (labels for labels in (pool or {}).values() if vpa.selector.matches(labels.labels))

    def _retune(self, vpa: VpaState, tunings: Mapping[str, Tuning]) -> None:
        if tunings == vpa.tunings:
            return
        vpa.tunings = tunings
        for labels in vpa.label_sets.values():
            self._retune_set(labels)
        for name, slot in vpa.history.items():
            self.aggregates.retune(slot, vpa.tuning(name, self.aggregates.default))

    def _retune_set(self, labels: LabelSet) -> None:
        for name, slot in labels.aggregates.items():
            self.aggregates.retune(slot, self._tuning(labels, name))

    def restore(
        self,
        vpa: VpaState,
        container: str,
        *,
        cpu: Saved,
        memory: Saved,
        first: int,
        last: int,
        count: int,
        now: datetime,
    ) -> None:
        """Attach a checkpoint to a VPA; ValueError, and nothing changed, when a histogram cannot be read."""
        slot = self.aggregates.allocate(microseconds(now), vpa.tuning(container, self.aggregates.default))
        try:
            self.aggregates.cpu.load(slot, cpu)
            self.aggregates.memory.load(slot, memory)
        except ValueError:
            self.aggregates.free(slot)
            raise
        self.aggregates.first[slot], self.aggregates.last[slot] = first, last
        self.aggregates.count[slot] = count
        old = vpa.history.pop(container, None)
        if old is not None:
            self.aggregates.free(old)
        vpa.history[container] = slot
        vpa.touch()

    # ------------------------------------------------------------------ garbage

    def fold_departed(self, *, now: datetime) -> list[int]:
        """Fold what is known of pods that left under labels of their own into what they have in common.

        Jobs and StatefulSets give every pod labels that no other pod has or will have. Once such pods are gone, their
        aggregates are merged into that of the remaining labels, provided that the same VPAs select both: every merge
        for a VPA then has the same result, and what is held does not grow with the number of pods that ever ran.
        Returns the numbers that are free now.
        """
        into: list[int] = []
        slots: list[int] = []
        for labels in [labels for labels in self._departed.values() if not labels.pods]:
            common = {key: value for key, value in labels.labels.items() if key not in GENERATED}
            target = self._label_set(labels.namespace, common)
            if target.vpas.keys() == labels.vpas.keys():
                for container, slot in labels.aggregates.items():
                    into.append(self._aggregate(target, container, now))
                    slots.append(slot)
                labels.aggregates = {}
                _touch(labels)
                self._drop_if_unused(labels)
            self._drop_if_unused(target)
        self._departed.clear()
        if slots:
            self.aggregates.absorb(np.array(into, dtype=np.int64), np.array(slots, dtype=np.int64))
        for slot in slots:
            self.aggregates.free(slot)
        return slots

    def collect_garbage(self, *, now: datetime, has_controller: Mapping[ObjectKey, bool]) -> list[Dropped] | None:
        """Drop aggregates that say nothing any more, at most once an hour; return which, or None when not due.

        `has_controller` has for each VPA whether its target still resolves; an unknown one counts as resolving.
        """
        if self._last_gc is not None and (now - self._last_gc).total_seconds() < 3600:
            return None
        self._last_gc = now
        at = microseconds(now)
        dropped = []
        for labels in list(self._sets.values()):
            for container, slot in list(labels.aggregates.items()):
                silent = self.aggregates.count[slot] == 0
                if self.aggregates.expired(slot, at) or (
                    silent and not self._contributive(labels, container, has_controller)
                ):
                    self._drop_aggregate(labels, container, slot)
                    dropped.append(Dropped(labels, container, slot))
            self._drop_if_unused(labels)
        return dropped

    def _contributive(self, labels: LabelSet, container: str, has_controller: Mapping[ObjectKey, bool]) -> bool:
        pods = [pod for pod in labels.pods.values() if container in pod.containers]
        if any(pod.phase not in FINISHED_PHASES for pod in pods):
            return True
        return bool(pods) and any(has_controller.get(key, True) for key in labels.vpas)

    def _drop_aggregate(self, labels: LabelSet, container: str, slot: int) -> None:
        del labels.aggregates[container]
        _touch(labels)
        for pod in labels.pods.values():
            row = pod.containers.get(container)
            if row is not None:
                self.containers.aggregate[row] = DETACHED if self.containers.relinked[row] else NO_AGGREGATE
        self.aggregates.free(slot)


def _touch(labels: LabelSet) -> None:
    for vpa in labels.vpas.values():
        vpa.touch()


def _same_selector(one: Selector, other: Selector) -> bool:
    return one.nothing == other.nothing and str(one) == str(other)


def _index_pairs(vpa: VpaState) -> list[tuple[str, str, str]]:
    """Return the pairs under which a VPA is found: all values of one requirement, or the catch-all pair."""
    if vpa.selector == NOTHING or vpa.selector.nothing:
        return []
    for requirement in vpa.selector.requirements:
        if requirement.operator in (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN):
            return [(vpa.key.namespace, requirement.key, value) for value in requirement.values]
    return [(vpa.key.namespace, "", "")]


def _discard(index: dict[K, dict[M, V]], key: K, member: M) -> None:
    members = index.get(key)
    if members is not None:
        members.pop(member, None)
        if not members:
            del index[key]
