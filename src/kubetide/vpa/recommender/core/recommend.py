"""Aggregates and policies to recommendations, for all VPAs at once.

Every container of every VPA is a row: its aggregates are merged into one histogram per resource, estimated
(`estimator`), rounded, and post-processed: whole cores where an annotation asks for them, then the policy's minAllowed
and maxAllowed. Containers whose policy mode is `Off` get no row and do not share the pod minimum.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain

import numpy as np

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.stats.block import Block
from kubetide.stats.buckets import Floats, Ints
from kubetide.stats.instants import ZERO_TIME
from kubetide.vpa.core.capping import cap_to_policy
from kubetide.vpa.core.policy import (
    CPU,
    MEMORY,
    RESOURCES,
    Amounts,
    Recommended,
    container_policy,
    controlled_resources,
    is_off,
)
from kubetide.vpa.recommender.core.aggregate import Aggregates
from kubetide.vpa.recommender.core.entities import Memo, VpaState
from kubetide.vpa.recommender.core.estimator import BOUNDS, Estimation, estimate, round_up
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.ratchet import hold

INTEGER_CPU_PREFIX = "vpa-post-processor.kubernetes.io/"
INTEGER_CPU_SUFFIX = "_integerCPU"
# Rows estimated in one go: bounds the temporary matrices to a few megabytes.
CHUNK = 2048
COLUMNS = tuple((resource, bound) for resource in RESOURCES for bound in BOUNDS)
"""What the columns of a table of amounts mean."""
_FIRST = {resource: number * len(BOUNDS) for number, resource in enumerate(RESOURCES)}
_PLACES = range(len(BOUNDS))
MEMORY_COLUMNS = slice(_FIRST[MEMORY], _FIRST[MEMORY] + len(BOUNDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What shapes a recommendation besides the samples."""

    estimation: Estimation = field(default_factory=Estimation)
    round_cpu_millis: int = 1
    round_memory_bytes: int = 1
    humanize_memory: bool = False
    integer_cpu: bool = False
    largest: Mapping[str, Quantity] = field(default_factory=dict)
    """Stands in for a missing maxAllowed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One container of one VPA."""

    vpa: VpaState
    container: str
    shared_by: int
    """How many containers of the VPA get a recommendation."""


Overlay = Callable[[Sequence[Row], Ints], None]


@dataclass(slots=True)
class MergedRows:
    """The merged state of rows: metadata and one histogram per row and resource."""

    first: Ints
    last: Ints
    count: Ints
    blocks: dict[str, list[tuple[Ints, Block]]]

    def select(self, which: Sequence[int]) -> "MergedRows":
        """Return the state of some rows, in the order given."""
        at = np.array(which, dtype=np.int64)
        place = np.full(self.first.size, -1, dtype=np.int64)
        place[at] = np.arange(at.size)
        blocks: dict[str, list[tuple[Ints, Block]]] = {}
        for resource, parts in self.blocks.items():
            blocks[resource] = []
            for members, block in parts:
                kept = np.flatnonzero(place[members] >= 0)
                if kept.size:
                    blocks[resource].append((place[members[kept]], block.select(kept)))
        return MergedRows(self.first[at], self.last[at], self.count[at], blocks)


def rows_of(vpas: Iterable[VpaState], *, with_off: bool = False) -> list[Row]:
    """Return the rows of VPAs, containers sorted by name."""
    rows = []
    for vpa in vpas:
        names = [name for name in vpa.fed() if with_off or not is_off(container_policy(vpa.policy, name))]
        rows += [Row(vpa, name, len(names)) for name in names]
    return rows


def merge_rows(aggregates: Aggregates, rows: Sequence[Row]) -> MergedRows:
    """Merge the aggregates of each row; nothing that is merged is changed."""
    fed = [row.vpa.fed()[row.container] for row in rows]
    slot = np.fromiter(chain.from_iterable(fed), dtype=np.int64)
    group = np.repeat(np.arange(len(rows)), [len(slots) for slots in fed])
    far = np.iinfo(np.int64).max
    first = np.full(len(rows), far, dtype=np.int64)
    last = np.full(len(rows), ZERO_TIME, dtype=np.int64)
    count = np.zeros(len(rows), dtype=np.int64)
    given = aggregates.first[slot]
    np.minimum.at(first, group, np.where(given == ZERO_TIME, far, given))
    np.maximum.at(last, group, aggregates.last[slot])
    np.add.at(count, group, aggregates.count[slot])
    first[first == far] = ZERO_TIME
    default = aggregates.default
    tunings = [row.vpa.tuning(row.container, default) if row.vpa.tunings else default for row in rows]
    blocks = {
        CPU: aggregates.cpu.merged(slot, group, [tuning.cpu_half_life for tuning in tunings]),
        MEMORY: aggregates.memory.merged(slot, group, [tuning.memory_half_life for tuning in tunings]),
    }
    return MergedRows(first, last, count, blocks)


def recommend(
    model: Model,
    vpas: Sequence[VpaState],
    options: Options,
    *,
    memory_floors: Mapping[tuple[ObjectKey, str], int] | None = None,
    excluded: Mapping[ObjectKey, Collection[str]] | None = None,
    remember: bool = False,
    learned: Overlay | None = None,
) -> dict[ObjectKey, tuple[Recommended, ...]]:
    """Return the recommendation of every VPA given.

    `memory_floors` are containers that must not shrink below, `excluded` resources that a VPA leaves alone. With
    `remember`, a VPA whose amounts did not change gets the very tuple it got before. `learned` replaces amounts of
    rows in place, before floors and policies.
    """
    rows = rows_of(vpas)
    amounts: Ints = np.zeros((len(rows), len(COLUMNS)), dtype=np.int64)
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK]
        amounts[start : start + CHUNK] = _estimate(merge_rows(model.aggregates, part), part, options)
    if learned is not None:
        learned(rows, amounts)
    if any(vpa.only_up for vpa in vpas):
        hold(rows, amounts)
    if memory_floors:
        for i, row in enumerate(rows):
            floor = memory_floors.get((row.vpa.key, row.container), 0)
            amounts[i, MEMORY_COLUMNS] = np.maximum(amounts[i, MEMORY_COLUMNS], floor)
    found: dict[ObjectKey, tuple[Recommended, ...]] = {}
    at = 0
    for vpa in vpas:
        start = at
        while at < len(rows) and rows[at].vpa is vpa:
            at += 1
        found[vpa.key] = _found(
            vpa, rows[start:at], amounts[start:at], options, (excluded or {}).get(vpa.key, ()), remember
        )
    return found


def _found(
    vpa: VpaState,
    part: Sequence[Row],
    amounts: Ints,
    options: Options,
    left_alone: Collection[str],
    remember: bool,
) -> tuple[Recommended, ...]:
    names = tuple(row.container for row in part)
    numbers, memo = amounts.tobytes(), vpa.memo
    if (
        remember
        and memo is not None
        and (memo.amounts, memo.containers) == (numbers, names)
        and (memo.policy, memo.annotations, memo.left_alone) == (vpa.policy, vpa.annotations, left_alone)
    ):
        return memo.found
    listed = [_recommended(row, line, options, left_alone) for row, line in zip(part, amounts.tolist(), strict=True)]
    found = post_process(vpa, listed, options)
    if remember:
        vpa.memo = Memo(numbers, names, vpa.policy, vpa.annotations, left_alone, found)
    return found


def _estimate(merged: MergedRows, rows: Sequence[Row], options: Options) -> Ints:
    """Return one line of amounts per row, in the order of `COLUMNS`."""
    shared = np.array([row.shared_by for row in rows], dtype=np.int64)
    default = options.estimation
    # Hardly any VPA has numbers of its own, and then all rows are estimated at once.
    own = any(row.vpa.estimations for row in rows)
    chosen = [row.vpa.estimation(row.container, default) for row in rows] if own else []
    result: Ints = np.zeros((len(rows), len(COLUMNS)), dtype=np.int64)
    for number, resource in enumerate(RESOURCES):
        first = number * len(BOUNDS)
        for members, block in merged.blocks[resource]:
            for estimation in dict.fromkeys(chosen[i] for i in members) if chosen else (default,):
                at, narrowed = members, block
                if chosen:
                    which = np.flatnonzero([chosen[i] == estimation for i in members])
                    at, narrowed = members[which], block if which.size == members.size else block.select(which)
                amounts = estimate(
                    resource,
                    narrowed.percentiles(estimation.percentiles(resource)),
                    first=merged.first[at],
                    last=merged.last[at],
                    count=merged.count[at],
                    margin=_full(at.size, estimation.margin),
                    containers=shared[at],
                    estimation=estimation,
                )
                for place, bound in enumerate(BOUNDS):
                    result[at, first + place] = amounts[bound]
        multiple = options.round_cpu_millis if resource == CPU else options.round_memory_bytes
        columns = slice(first, first + len(BOUNDS))
        result[:, columns] = round_up(result[:, columns], multiple)
    return result


def _full(size: int, value: float) -> Floats:
    return np.full(size, value)


def _recommended(row: Row, line: Sequence[int], options: Options, left_alone: Collection[str]) -> Recommended:
    controlled = controlled_resources(container_policy(row.vpa.policy, row.container))
    kept = [resource for resource in controlled if resource not in left_alone] if left_alone else controlled
    humanize = options.humanize_memory
    target, lower, upper = [
        {resource: quantity(resource, line[place + _FIRST[resource]], humanize) for resource in kept}
        for place in _PLACES
    ]
    return Recommended(container=row.container, target=target, lower=lower, upper=upper, uncapped=target)


# Targets are bucket edges, so a cluster's recommendations share few values.
@lru_cache(maxsize=65536)
def quantity(resource: str, amount: int, humanize: bool) -> Quantity:
    """Return an amount as a quantity: millicores in decimal, bytes in binary notation, or rounded for people."""
    if resource == CPU:
        return Quantity.of_milli(amount)
    if humanize:
        return parse_quantity(humanized(amount))
    return Quantity.of(amount, binary=True)


def humanized(amount: int) -> str:
    """Return bytes with two decimals of the largest binary unit that fits, which may change the value a little."""
    for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if amount >= 1024**power:
            return f"{amount / 1024**power:.2f}{suffix}"
    return str(amount)


def post_process(vpa: VpaState, given: Sequence[Recommended], options: Options) -> tuple[Recommended, ...]:
    """Return the recommendation in whole cores where asked for, then within policy."""
    done = tuple(given)
    if options.integer_cpu:
        whole = {
            key[len(INTEGER_CPU_PREFIX) : -len(INTEGER_CPU_SUFFIX)]
            for key, value in vpa.annotations.items()
            if key.startswith(INTEGER_CPU_PREFIX) and key.endswith(INTEGER_CPU_SUFFIX) and value == "true"
        }
        done = tuple(_whole_cores(one) if one.container in whole else one for one in done)
    return cap_to_policy(done, vpa.policy, options.largest)


def _whole_cores(one: Recommended) -> Recommended:
    def up(bound: Amounts | None) -> Amounts | None:
        if bound is None or CPU not in bound:
            return bound
        return {**bound, CPU: Quantity.of(bound[CPU].value)}

    return replace(
        one, target=up(one.target) or {}, lower=up(one.lower), upper=up(one.upper), uncapped=up(one.uncapped)
    )
