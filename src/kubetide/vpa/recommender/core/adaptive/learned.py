"""Learned sizes beside the plain ones: which VPAs take part, what they learn from, and what they make of it.

The plain recommender goes on as ever: its histograms are fed, its checkpoints written, its bounds computed. For VPAs
that ask for it (`vpa.core.learned`) the targets are replaced by what `adaptive` has learned, weighted by how far the
VPA is on its way from one rule to the other. Bounds are widened to hold the target, so that an updater that restarts
pods does so as seldom as before.

Memory is sized by two numbers only where a pod can have two: not where its limit is its request, since the pod may be
Guaranteed, and not for groups of a scoped VPA, whose status has no room for limits.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.resources import parse_list
from kubetide.api.objects.vpa import IN_PLACE, IN_PLACE_OR_RECREATE
from kubetide.api.values.conditions import find_condition
from kubetide.errors import KubetideError
from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.core.learned import ADAPTIVE_ESTIMATOR, Choice, Estimator, learned_share, limits_text
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.core.adaptive.cpu import PERCENTILES
from kubetide.vpa.recommender.core.adaptive.explained import explained
from kubetide.vpa.recommender.core.adaptive.live import Key, LiveFleet, Seed, Way
from kubetide.vpa.recommender.core.adaptive.saved import State
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.estimator import BOUNDS, floors, measured, round_up
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import CHUNK, COLUMNS, Options, Row, merge_rows, rows_of

Arrangement = list[tuple[Mapping[str, Sequence[int]], str, Choice]]
"""What feeds each VPA that takes part, its mode, and what it asks for."""
PodLookup = Callable[[ObjectKey], Pod | None]

_HOUR: Final = 3600
_DAY_MICROS: Final = 86_400_000_000
_MEMORY_SHARES: Final = (0.5, 0.9, 0.98)
_WAYS: Final = tuple(Way(apart, daily) for apart in (True, False) for daily in (False, True))


class LearnedSizes:
    """What was learned about the containers of all VPAs that ask for it."""

    def __init__(self, model: Model, options: Options, pods: PodLookup) -> None:
        self._model = model
        self._options = options
        self._pods = pods
        self._fleets: dict[Way, LiveFleet] = {}
        self._found: dict[Key, State] = {}
        self._fleet_numbers: dict[str, Floats] = {}
        self._one_number: dict[Key, bool] = {}
        self._arrangement: Arrangement = []
        self._capacity = 0
        self._limits: dict[ObjectKey, str] = {}
        self.shares: dict[ObjectKey, float] = {}
        """How much of the recommendation of a VPA is learned."""

    # ------------------------------------------------------------------ before a loop's samples

    def restore(self, vpa: ObjectKey, container: str, state: State) -> None:
        """Begin with this state when the container shows up."""
        self._found[Key(vpa, container)] = state

    def forget(self, vpas: Collection[ObjectKey]) -> None:
        """Forget VPAs that are gone, or another replica's: who comes back begins with what is stored."""
        self._found = {key: state for key, state in self._found.items() if key.vpa not in vpas}

    def restore_fleets(self, numbers: Mapping[str, Floats]) -> None:
        """Begin with what fleets have learned before, by the name of their way."""
        self._fleet_numbers = dict(numbers)
        for way, fleet in self._fleets.items():
            if way.name in numbers:
                fleet.adaptive.load_fleet(numbers[way.name])

    def begin_loop(self, now: datetime) -> bool:
        """Take in which VPAs take part now, and decide where an hour has ended; return whether one has."""
        hour = int(now.timestamp()) // _HOUR
        self._limits.clear()
        taking_part = self._participants(now)
        if not taking_part and not self._fleets:
            return False
        ended = self._end_hours(hour)
        if ended:
            self._one_number.clear()
        # Asked for in every loop and changed seldom.
        arrangement = [(vpa.fed(), vpa.mode, vpa.choice) for vpa in taking_part]
        capacity = self._model.aggregates.first.size
        same = capacity == self._capacity and _same(arrangement, self._arrangement)
        if not same or (ended and self._another_way(taking_part)):
            self._arrange(rows_of(taking_part, with_off=True), hour)
            self._arrangement, self._capacity = arrangement, capacity
        if ended:
            self._found = {key: state for key, state in self._found.items() if self._way_of(key) is None}
        # After a restart the hour that was running may have ended meanwhile.
        return self._end_hours(hour) or ended

    def _another_way(self, taking_part: Sequence[VpaState]) -> bool:
        """Return whether a container is sized in another way than so far: pods may have another limit."""
        keys = ((Key(vpa.key, container), vpa) for vpa in taking_part for container in vpa.fed())
        return any(self._way(key, vpa) != self._way_of(key) for key, vpa in keys)

    def _way_of(self, key: Key) -> Way | None:
        """Return how a container is sized; None where it takes no part."""
        return next((way for way, fleet in self._fleets.items() if key in fleet.places), None)

    def _participants(self, now: datetime) -> list[VpaState]:
        self.shares = {}
        taking_part = []
        for key, vpa in self._model.vpas.items():
            if not vpa.loaded or vpa.is_scoped:
                continue
            condition = find_condition(vpa.conditions, ADAPTIVE_ESTIMATOR)
            if condition is None and not vpa.choice.learned:
                continue
            share = learned_share(vpa.choice, condition, created=vpa.created, now=now)
            if share > 0.0 or vpa.choice.learned:
                self.shares[key] = share
                taking_part.append(vpa)
        return taking_part

    def _arrange(self, rows: Sequence[Row], hour: int) -> None:
        wanted: dict[Way, dict[Key, Row]] = {way: {} for way in _WAYS}
        for row in rows:
            key = Key(row.vpa.key, row.container)
            wanted[self._way(key, row.vpa)][key] = row
        new = []
        for way, listed in wanted.items():
            for key, row in listed.items():
                before = self._way_of(key)
                if before is None:
                    if key not in self._found:
                        new.append(row)
                elif before != way:
                    self._found[key] = self._fleets[before].state(key)
        self._keep_those_who_left(key for listed in wanted.values() for key in listed)
        seeds = self._seeds(new)
        capacity = self._model.aggregates.first.size
        for way, listed in wanted.items():
            if not listed and way not in self._fleets:
                continue
            fleet = self._fleets.get(way) or self._new_fleet(way, listed, hour)
            fleet.arrange(listed, self._found, seeds)
            fleet.link({key: row.vpa.fed()[row.container] for key, row in listed.items()}, capacity)
        self._found = {key: state for key, state in self._found.items() if self._way_of(key) is None}

    def _keep_those_who_left(self, wanted: Iterable[Key]) -> None:
        """Remember what was learned of VPAs that no longer take part, as their checkpoints do."""
        staying = set(wanted)
        for fleet in self._fleets.values():
            left = (key for key in fleet.places if key not in staying and key.vpa not in self.shares)
            self._found.update((key, fleet.state(key)) for key in left if key.vpa in self._model.vpas)

    def _new_fleet(self, way: Way, listed: Collection[Key], hour: int) -> LiveFleet:
        saved = [self._found[key].hour for key in listed if key in self._found]
        fleet = self._fleets[way] = LiveFleet(way, min(hour, max(saved, default=hour)))
        if way.name in self._fleet_numbers:
            fleet.adaptive.load_fleet(self._fleet_numbers[way.name])
        return fleet

    def _way(self, key: Key, vpa: VpaState) -> Way:
        daily = vpa.mode not in (IN_PLACE, IN_PLACE_OR_RECREATE)
        before = self._way_of(key)
        estimator = vpa.choice.estimator
        if estimator is Estimator.VPA:
            # On its way back: what was learned goes on until it has no say any more.
            apart = before.limit_apart if before is not None else self._restored_apart(key)
        else:
            apart = estimator is Estimator.ADAPTIVE and vpa.group is None and not self._limit_is_request(key, vpa)
        return Way(apart, daily)

    def _restored_apart(self, key: Key) -> bool:
        found = self._found.get(key)
        return found is not None and found.limit_apart

    def _limit_is_request(self, key: Key, vpa: VpaState) -> bool:
        """Return whether pods have one number for the memory of a container; without pods, as it was before."""
        known = self._one_number.get(key)
        if known is None:
            pods = (self._pods(pod) for labels in vpa.label_sets.values() for pod in labels.pods)
            each = (_has_one_number(pod, key.container) for pod in pods if pod is not None)
            found = [one for one in each if one is not None]
            if not found:
                before = self._way_of(key)
                return not (before.limit_apart if before is not None else self._restored_apart(key))
            known = self._one_number[key] = any(found)
        return known

    def _seeds(self, rows: Sequence[Row]) -> dict[Key, Seed]:
        """Return what the plain histograms know of containers that have a day of history."""
        seeds: dict[Key, Seed] = {}
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            merged = merge_rows(self._model.aggregates, part)
            cpu, memory = np.zeros(len(part)), np.zeros((len(_MEMORY_SHARES), len(part)))
            for members, block in merged.blocks[CPU]:
                cpu[members] = block.percentiles((PERCENTILES[-1],))[0]
            for members, block in merged.blocks[MEMORY]:
                memory[:, members] = block.percentiles(_MEMORY_SHARES)
            for i, row in enumerate(part):
                if merged.count[i] and merged.last[i] - merged.first[i] >= _DAY_MICROS:
                    low, usual, high = memory[:, i].tolist()
                    seeds[Key(row.vpa.key, row.container)] = Seed(float(cpu[i]), (low, usual, high))
        return seeds

    def _end_hours(self, hour: int) -> bool:
        """End the hours before this one, and decide; return whether there was any."""
        ended = [fleet for fleet in self._fleets.values() if fleet.hour < hour]
        for fleet in ended:
            if not fleet.close(hour):
                fleet.decide(None)
                continue
            percentiles = np.zeros((len(PERCENTILES), len(fleet.keys)))
            for start in range(0, len(fleet.keys), CHUNK):
                keys = enumerate(fleet.keys[start : start + CHUNK], start)
                fed = [(place, key) for place, key in keys if self._feeds(key)]
                places = np.array([place for place, _ in fed], dtype=np.int64)
                rows = [Row(self._model.vpas[key.vpa], key.container, 1) for _, key in fed]
                for members, block in merge_rows(self._model.aggregates, rows).blocks[CPU]:
                    percentiles[:, places[members]] = block.percentiles(PERCENTILES)
            fleet.decide(percentiles)
        return bool(ended)

    def _feeds(self, key: Key) -> bool:
        vpa = self._model.vpas.get(key.vpa)
        return vpa is not None and key.container in vpa.fed()

    # ------------------------------------------------------------------ a loop's samples

    def add(self, slots: Ints, cores: Floats, memory_slots: Ints, amounts: Floats) -> None:
        """Add the samples of a loop, by aggregate."""
        for fleet in self._fleets.values():
            fleet.add_cpu(slots, cores)
            fleet.add_memory(memory_slots, amounts)

    def add_oom(self, slot: int, needed: float) -> None:
        """Take in an OOM kill."""
        for fleet in self._fleets.values():
            if slot >= 0:
                fleet.add_oom(slot, needed)

    # ------------------------------------------------------------------ what follows

    def apply(self, rows: Sequence[Row], amounts: Ints) -> None:
        """Replace the targets of rows that take part, and widen their bounds."""
        if not self.shares:
            return
        taking_part: dict[Way, list[tuple[int, int, float]]] = {}
        for i, row in enumerate(rows):
            share = self.shares.get(row.vpa.key, 0.0)
            if share > 0.0:
                key = Key(row.vpa.key, row.container)
                for way, fleet in self._fleets.items():
                    if (place := fleet.places.get(key)) is not None:
                        taking_part.setdefault(way, []).append((i, place, share))
        for way, listed in taking_part.items():
            lines, places = [np.array(part, dtype=np.int64) for part in list(zip(*listed, strict=True))[:2]]
            shares = np.array([share for _, _, share in listed])
            containers = np.array([rows[i].shared_by for i in lines.tolist()], dtype=np.int64)
            sizes = self._fleets[way].adaptive.in_force()
            for resource, learned in ((CPU, sizes.cpu[places]), (MEMORY, sizes.memory[places])):
                decided = learned > 0.0
                wanted = self._allowed(resource, learned[decided], containers[decided])
                _mix(amounts, lines[decided], resource, wanted, shares[decided])

    def _allowed(self, resource: str, learned: Floats, containers: Ints) -> Ints:
        """Return learned sizes as amounts, not below the pod minimum, rounded as asked for."""
        options = self._options
        least = floors(resource, options.estimation, containers)
        multiple = options.round_cpu_millis if resource == CPU else options.round_memory_bytes
        return round_up(np.maximum(measured(resource, learned), least), multiple)

    def limits_text(self, vpa: VpaState) -> str:
        """Return the annotation with the memory limits of a VPA that are apart from requests; empty without any."""
        text = self._limits.get(vpa.key)
        if text is None:
            text = self._limits[vpa.key] = limits_text(self._memory_limits(vpa))
        return text

    def _memory_limits(self, vpa: VpaState) -> dict[str, int]:
        found: dict[str, int] = {}
        if vpa.key not in self.shares:
            return found
        for container in vpa.fed():
            way = self._way_of(Key(vpa.key, container))
            if way is not None and way.limit_apart:
                fleet = self._fleets[way]
                limits = fleet.adaptive.in_force().memory_limit
                if limits is not None and (limit := float(limits[fleet.places[Key(vpa.key, container)]])) > 0.0:
                    found[container] = int(limit)
        return found

    def is_leaving(self, vpa: VpaState) -> bool:
        """Return whether a VPA is on its way back to the plain rule, which ends by the time alone."""
        return not vpa.choice.learned and find_condition(vpa.conditions, ADAPTIVE_ESTIMATOR) is not None

    def state(self, vpa: ObjectKey, container: str) -> State | None:
        """Return what is remembered of a container, to be saved; None when it takes no part."""
        key = Key(vpa, container)
        way = self._way_of(key)
        return None if way is None else self._fleets[way].state(key)

    def fleet_numbers(self) -> dict[str, Floats]:
        """Return what all fleets have learned, by the name of their way; those not in use keep what was read."""
        return {**self._fleet_numbers, **{way.name: f.adaptive.save_fleet() for way, f in self._fleets.items()}}

    def explain(self, vpa: VpaState) -> dict[str, Any] | None:
        """Return who switched learned sizes on, and per container what each rule would have cost."""
        share = self.shares.get(vpa.key)
        if share is None:
            return None if not vpa.choice.words.startswith(("annotation", "--learned")) else _told(vpa, 0.0, {})
        containers = {}
        for container in vpa.fed():
            key = Key(vpa.key, container)
            way = self._way_of(key)
            if way is not None:
                containers[container] = explained(self._fleets[way], key)
        return _told(vpa, share, containers)


def _same(one: Arrangement, other: Arrangement) -> bool:
    """Return whether nothing has changed; what feeds a VPA is another object once it has."""
    if len(one) != len(other):
        return False
    return all(a[0] is b[0] and a[1:] == b[1:] for a, b in zip(one, other, strict=True))


def _mix(amounts: Ints, lines: Ints, resource: str, wanted: Ints, shares: Floats) -> None:
    """Move targets their share of the way to what is wanted, and let the bounds hold them."""
    target, lower, upper = [COLUMNS.index((resource, bound)) for bound in BOUNDS]
    plain = amounts[lines, target]
    mixed = plain + ((wanted - plain) * shares).astype(np.int64)
    amounts[lines, target] = mixed
    amounts[lines, lower] = np.minimum(amounts[lines, lower], mixed)
    amounts[lines, upper] = np.maximum(amounts[lines, upper], mixed)


def _told(vpa: VpaState, share: float, containers: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "estimator": vpa.choice.estimator.value,
        "by": vpa.choice.words,
        "share": share,
        "containers": dict(containers),
    }


def _has_one_number(pod: Pod, container: str) -> bool | None:
    """Return whether the memory limit of a container is its request; None where it has no such container."""
    for own in pod.spec.containers or ():
        if own.name == container:
            resources = own.resources
            try:
                limit = parse_list(resources.limits if resources is not None else None).get(MEMORY)
                request = parse_list(resources.requests if resources is not None else None).get(MEMORY)
            except KubetideError:
                return None
            return limit is not None and (request is None or request >= limit)
    return None
