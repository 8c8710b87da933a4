"""Why a recommendation is what it is, step by step, as plain data.

The steps are those of `estimator`, computed again for one VPA from the same merged histograms, so the trace ends in
the very numbers that were recommended. Without a running recommender the same trace is made from checkpoints; what
they do not hold (open memory windows, the cap of a flag) is then missing, and the trace reports where it came from.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from kubetide.api.objects.meta import key_of
from kubetide.api.objects.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint, update_mode
from kubetide.api.values.selectors import NOTHING
from kubetide.errors import InvalidInput
from kubetide.stats.block import Block
from kubetide.stats.instants import moment
from kubetide.vpa.core.policy import (
    CPU,
    RESOURCES,
    Recommended,
    container_policy,
    controlled_resources,
    is_off,
    recommendations,
    texts,
)
from kubetide.vpa.recommender.core.checkpoint import UnreadableCheckpoint, read_checkpoint
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.estimator import (
    BOUNDS,
    Estimation,
    confidence,
    factor,
    floors,
    measured,
    scaled,
    with_margin,
)
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.ratchet import scale_up_only
from kubetide.vpa.recommender.core.recommend import MergedRows, Options, Overlay, Row, merge_rows, recommend, rows_of


def trace(
    model: Model,
    vpa: VpaState,
    options: Options,
    *,
    now: datetime,
    memory_floors: Mapping[str, int] | None = None,
    excluded: Collection[str] = (),
    source: str = "recommender",
    learned: Overlay | None = None,
) -> dict[str, Any]:
    """Return the trace of one VPA."""
    rows = rows_of([vpa], with_off=True)
    counted = sum(not is_off(container_policy(vpa.policy, row.container)) for row in rows)
    found = recommend(
        model,
        [vpa],
        options,
        memory_floors={(vpa.key, name): floor for name, floor in (memory_floors or {}).items()},
        excluded={vpa.key: excluded},
        learned=learned,
    )[vpa.key]
    merged = merge_rows(model.aggregates, rows) if rows else None
    containers = [
        _container(row, i, merged, options, max(1, counted), found, (memory_floors or {}).get(row.container), now)
        for i, row in enumerate(rows)
        if merged is not None
    ]
    return {
        "kind": "VerticalPodAutoscaler",
        "namespace": vpa.key.namespace,
        "name": vpa.key.name,
        "source": source,
        "at": now.isoformat(),
        "mode": vpa.mode,
        "pods": vpa.pod_count,
        "aggregates": sum(1 for _ in vpa.aggregates()),
        "leftAlone": sorted(excluded),
        "onlyUp": sorted(vpa.only_up),
        "conditions": [
            {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message} for c in vpa.conditions
        ],
        "containers": containers,
    }


def _container(
    row: Row,
    i: int,
    merged: MergedRows,
    options: Options,
    counted: int,
    found: Sequence[Recommended],
    floor: int | None,
    now: datetime,
) -> dict[str, Any]:
    entry = container_policy(row.vpa.policy, row.container)
    estimation = row.vpa.estimation(row.container, options.estimation)
    first, last = moment(int(merged.first[i])), moment(int(merged.last[i]))
    result: dict[str, Any] = {
        "name": row.container,
        "off": is_off(entry),
        "controlled": list(controlled_resources(entry)),
        "samples": int(merged.count[i]),
        "firstSample": None if first is None else first.isoformat(),
        "lastSample": None if last is None else last.isoformat(),
        "ageSeconds": None if first is None else (now - first).total_seconds(),
        "oomFloorBytes": floor,
        "nearOom": None
        if (near := row.vpa.near_ooms.get(row.container)) is None
        else {"rule": near.rule.value, "needBytes": near.memory_bytes, "at": near.at.isoformat(), "pod": near.pod},
        "resources": {},
        "recommendation": None,
    }
    for resource in RESOURCES:
        block, column = _column(merged.blocks[resource], i)
        result["resources"][resource] = _resource(resource, block.select([column]), merged, i, estimation, counted)
    for one in found:
        if one.container == row.container:
            result["recommendation"] = _recommendation(one)
    if entry is not None:
        result["minAllowed"] = {name: str(text) for name, text in (entry.min_allowed or {}).items()}
        result["maxAllowed"] = {name: str(text) for name, text in (entry.max_allowed or {}).items()}
    return result


def _recommendation(one: Recommended) -> dict[str, Any]:
    return {
        "target": texts(one.target),
        "lowerBound": texts(one.lower or {}),
        "upperBound": texts(one.upper or {}),
        "uncappedTarget": texts(one.uncapped or {}),
    }


def with_ceilings(containers: Iterable[dict[str, Any]], allowed: Iterable[Recommended]) -> None:
    """Replace what traced containers were recommended by what ceilings left of it."""
    by_name = {one.container: one for one in allowed}
    for container in containers:
        if container["name"] in by_name:
            container["recommendation"] = _recommendation(by_name[container["name"]])


def _column(parts: Iterable[tuple[Any, Block]], i: int) -> tuple[Block, int]:
    for members, block in parts:
        where = np.flatnonzero(members == i)
        if where.size:
            return block, int(where[0])
    raise AssertionError("every row has a histogram")


def _resource(
    resource: str, block: Block, merged: MergedRows, i: int, estimation: Estimation, counted: int
) -> dict[str, Any]:
    at = np.array([i])
    trust = confidence(merged.first[at], merged.last[at], merged.count[at], estimation.interval(resource))
    ps = estimation.percentiles(resource)
    buckets, values = block.percentile_buckets(ps), block.percentiles(ps)
    floor = floors(resource, estimation, np.array([counted]))
    empty = bool(block.empty()[0])
    bounds = {}
    for number, bound in enumerate(BOUNDS):
        measured_amount = measured(resource, values[number])
        raised = with_margin(measured_amount, np.array([estimation.margin]))
        by = factor(bound, trust)
        multiplied = raised if bound == "target" else scaled(raised, by)
        bounds[bound] = {
            "percentile": ps[number],
            "bucket": None if empty else int(buckets[number, 0]),
            "measured": int(measured_amount[0]),
            "withMargin": int(raised[0]),
            "multiplier": float(by[0]) if np.isfinite(by[0]) else None,
            "multiplied": int(multiplied[0]),
            "minimum": int(floor[0]),
            "result": int(max(multiplied[0], floor[0])),
        }
    return {
        "unit": "millicores" if resource == CPU else "bytes",
        "confidence": float(trust[0]),
        "margin": estimation.margin,
        "totalWeight": float(block.total[0]),
        "bounds": bounds,
        "histogram": _histogram(resource, block, empty),
    }


def _histogram(resource: str, block: Block, empty: bool) -> list[list[float]]:
    """Return [start, end, share] of every bucket that counts, in millicores or bytes."""
    if empty:
        return []
    unit = 1000.0 if resource == CPU else 1.0
    low, high = int(block.low[0]), int(block.high[0])
    weights = block.weights[low : high + 1, 0]
    starts, ends = block.buckets.starts[low : high + 1], block.buckets.ends(np.arange(low, high + 1))
    shares = weights / max(float(weights.sum()), 1e-300)
    return [
        [float(start) * unit, float(end) * unit, float(share)]
        for start, end, share in zip(starts, ends, shares, strict=True)
        if share > 0
    ]


def trace_from_checkpoints(
    vpa: VerticalPodAutoscaler,
    stored: Iterable[VerticalPodAutoscalerCheckpoint],
    *,
    now: datetime,
    options: Options | None = None,
    name: str = "",
) -> dict[str, Any]:
    """Return the trace of a VPA made from its checkpoints alone; `name` names one of its groups instead."""
    model = Model()
    status = vpa.status
    state = model.set_vpa(
        VpaState(
            key_of(vpa),
            NOTHING,
            created=vpa.metadata.creation_timestamp,
            target=vpa.spec.target_ref,
            policy=vpa.spec.resource_policy,
            mode=update_mode(vpa),
            annotations=vpa.metadata.annotations or {},
            conditions=(status.conditions if status is not None else None) or (),
        ),
        keep_history=False,
    )
    state.only_up, misspelt = scale_up_only(state.annotations)
    try:
        state.recommendation = recommendations(status.recommendation) if status is not None else None
    except InvalidInput as error:
        misspelt = misspelt or f"status.recommendation: {error}"
    problems = [misspelt] if misspelt else []
    for one in stored:
        if one.spec.vpa_object_name != (name or vpa.metadata.name):
            continue
        try:
            content = read_checkpoint(one)
            model.restore(
                state,
                content.container,
                cpu=content.cpu,
                memory=content.memory,
                first=content.first,
                last=content.last,
                count=content.count,
                now=now,
            )
        except (UnreadableCheckpoint, ValueError) as error:
            problems.append(f"checkpoint {one.metadata.name}: {error}")
    result = trace(model, state, options or Options(), now=now, source="checkpoints")
    result["problems"] = problems
    return result
