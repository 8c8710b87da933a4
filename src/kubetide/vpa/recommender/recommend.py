"""Aggregates and policies to recommendations, for all VPAs at once.

Every container of every VPA is a row: its aggregates are merged into one histogram per resource, estimated
(`estimator`), rounded, and post-processed: whole cores where an annotation asks for them, then the policy's minAllowed
and maxAllowed. Containers whose policy mode is `Off` get no row and do not share the pod minimum.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kubetide.api.meta import ObjectKey
from kubetide.api.quantity import Quantity, parse_quantity
from kubetide.stats.block import Block
from kubetide.stats.buckets import Floats, Ints
from kubetide.stats.instants import ZERO_TIME
from kubetide.vpa.capping import cap_to_policy
from kubetide.vpa.policy import (
    CPU,
    MEMORY,
    RESOURCES,
    Amounts,
    Recommended,
    container_policy,
    controlled_resources,
    is_off,
)
from kubetide.vpa.recommender.aggregate import Aggregates
from kubetide.vpa.recommender.estimator import BOUNDS, Estimation, estimate, round_up
from kubetide.vpa.recommender.model import Model, VpaState

INTEGER_CPU_PREFIX = "vpa-post-processor.kubernetes.io/"
INTEGER_CPU_SUFFIX = "_integerCPU"
# Rows estimated in one go: bounds the temporary matrices to a few megabytes.
CHUNK = 2048


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


@dataclass(slots=True)
class Merged:
    """The merged state of rows: metadata and one histogram per row and resource."""

    first: Ints
    last: Ints
    count: Ints
    blocks: dict[str, list[tuple[Ints, Block]]]


def rows_of(vpas: Iterable[VpaState], *, with_off: bool = False) -> list[Row]:
    """Return the rows of VPAs, containers sorted by name."""
    rows = []
    for vpa in vpas:
        names = [name for name in vpa.container_names() if with_off or not is_off(container_policy(vpa.policy, name))]
        rows += [Row(vpa, name, len(names)) for name in names]
    return rows


def merge_rows(aggregates: Aggregates, rows: Sequence[Row]) -> Merged:
    """Merge the aggregates of each row; nothing that is merged is changed."""
    where = {(row.vpa.key, row.container): i for i, row in enumerate(rows)}
    found: list[tuple[int, int]] = []
    for vpa in {row.vpa.key: row.vpa for row in rows}.values():
        for name, one in vpa.aggregates():
            number = where.get((vpa.key, name))
            if number is not None:
                found.append((one, number))
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    slot, group = pairs[:, 0], pairs[:, 1]
    far = np.iinfo(np.int64).max
    first = np.full(len(rows), far, dtype=np.int64)
    last = np.full(len(rows), ZERO_TIME, dtype=np.int64)
    count = np.zeros(len(rows), dtype=np.int64)
    given = aggregates.first[slot]
    np.minimum.at(first, group, np.where(given == ZERO_TIME, far, given))
    np.maximum.at(last, group, aggregates.last[slot])
    np.add.at(count, group, aggregates.count[slot])
    first[first == far] = ZERO_TIME
    tunings = [row.vpa.tuning(row.container, aggregates.default) for row in rows]
    blocks = {
        CPU: aggregates.cpu.merged(slot, group, [tuning.cpu_half_life for tuning in tunings]),
        MEMORY: aggregates.memory.merged(slot, group, [tuning.memory_half_life for tuning in tunings]),
    }
    return Merged(first, last, count, blocks)


def recommend(
    model: Model,
    vpas: Sequence[VpaState],
    options: Options,
    *,
    estimations: Mapping[ObjectKey, Estimation] | None = None,
    memory_floors: Mapping[tuple[ObjectKey, str], int] | None = None,
    excluded: Mapping[ObjectKey, Collection[str]] | None = None,
) -> dict[ObjectKey, tuple[Recommended, ...]]:
    """Return the recommendation of every VPA given.

    `estimations` are the VPAs with numbers of their own, `memory_floors` containers that must not shrink below,
    `excluded` resources that a VPA leaves alone.
    """
    rows = rows_of(vpas)
    found: dict[ObjectKey, list[Recommended]] = {vpa.key: [] for vpa in vpas}
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK]
        amounts = _estimate(merge_rows(model.aggregates, part), part, options, estimations or {})
        for i, row in enumerate(part):
            floor = (memory_floors or {}).get((row.vpa.key, row.container))
            if floor is not None:
                for bound in BOUNDS:
                    amounts[MEMORY][bound][i] = max(amounts[MEMORY][bound][i], floor)
            left_alone = (excluded or {}).get(row.vpa.key, ())
            found[row.vpa.key].append(_recommended(row, i, amounts, options, left_alone))
    return {vpa.key: post_process(vpa, found[vpa.key], options) for vpa in vpas}


def _estimate(
    merged: Merged, rows: Sequence[Row], options: Options, estimations: Mapping[ObjectKey, Estimation]
) -> dict[str, dict[str, list[int]]]:
    shared = np.array([row.shared_by for row in rows], dtype=np.int64)
    chosen = [estimations.get(row.vpa.key, options.estimation) for row in rows]
    result: dict[str, dict[str, list[int]]] = {}
    for resource in RESOURCES:
        out = {bound: np.zeros(len(rows), dtype=np.int64) for bound in BOUNDS}
        for members, block in merged.blocks[resource]:
            for estimation in dict.fromkeys(chosen[i] for i in members):
                which = np.flatnonzero([chosen[i] == estimation for i in members])
                narrowed = block if which.size == members.size else block.select(which)
                at = members[which]
                values = narrowed.percentiles(estimation.percentiles(resource))
                amounts = estimate(
                    resource,
                    values,
                    first=merged.first[at],
                    last=merged.last[at],
                    count=merged.count[at],
                    margin=_full(at.size, estimation.margin),
                    containers=shared[at],
                    estimation=estimation,
                )
                for bound in BOUNDS:
                    out[bound][at] = amounts[bound]
        multiple = options.round_cpu_millis if resource == CPU else options.round_memory_bytes
        result[resource] = {bound: round_up(values, multiple).tolist() for bound, values in out.items()}
    return result


def _full(size: int, value: float) -> Floats:
    return np.full(size, value)


def _recommended(
    row: Row, i: int, amounts: dict[str, dict[str, list[int]]], options: Options, left_alone: Collection[str]
) -> Recommended:
    controlled = controlled_resources(container_policy(row.vpa.policy, row.container))
    kept = [resource for resource in controlled if resource not in left_alone]
    bounds: dict[str, Amounts] = {
        bound: {resource: quantity(resource, amounts[resource][bound][i], options) for resource in kept}
        for bound in BOUNDS
    }
    return Recommended(
        container=row.container,
        target=bounds["target"],
        lower=bounds["lower"],
        upper=bounds["upper"],
        uncapped=dict(bounds["target"]),
    )


def quantity(resource: str, amount: int, options: Options) -> Quantity:
    """Return an amount as a quantity: millicores in decimal, bytes in binary notation."""
    if resource == CPU:
        return Quantity.of_milli(amount)
    if options.humanize_memory:
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
        return {**bound, CPU: Quantity.of(math.ceil(bound[CPU].nanos / 10**9))}

    return replace(
        one, target=up(one.target) or {}, lower=up(one.lower), upper=up(one.upper), uncapped=up(one.uncapped)
    )
