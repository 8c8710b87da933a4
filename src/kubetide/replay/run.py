"""Replays a recording under policies: blocks in processes of their own, sums merged in the order of blocks.

What one block gives depends on that block alone, and sums are per workload: the result is the same for any number of
workers. `run` returns plain values, for the command line and for notebooks.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml

from kubetide.errors import InvalidInput
from kubetide.recording.reader import Recording
from kubetide.replay.core.block import Recorded, SizeReplay, clairvoyant_plans
from kubetide.replay.core.figures import Prices, empty, figures, intervals
from kubetide.replay.core.services import LoadFigures, replay_services
from kubetide.replay.core.spec import BUILT_IN_NAMES, PolicySpec, built_in, read_policy
from kubetide.replay.demand import services_of
from kubetide.stats.buckets import Floats

SEED = 1
DRAWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a recording is replayed and counted; None takes what the recording says."""

    interval_seconds: int | None = None
    period_seconds: int | None = None
    warmup_periods: int | None = None
    workers: int = 1
    prices: Prices = field(default_factory=Prices)
    draws: int = DRAWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one policy came to: figures with their 95 % intervals by workload, and the sums they come from."""

    policy: str
    figures: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    workloads: Sequence[str]
    sums: Floats


def load_policy(name: str) -> PolicySpec:
    """Return a policy by its name or from a file."""
    found = built_in(name)
    if found is not None:
        return found
    path = Path(name)
    if path.suffix not in (".yaml", ".yml", ".json") and not path.exists():
        raise InvalidInput(f"{name!r} is neither a file nor one of {BUILT_IN_NAMES}", field="--policy")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", subject=name) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"is not YAML: {' '.join(str(error).split())}", subject=name) from error
    return read_policy(content, path.stem if isinstance(content, dict) else name)


def with_cadence(policy: PolicySpec, every: str) -> PolicySpec:
    """Return a policy that recommends sizes at another cadence."""
    if policy.sizes is None:
        return policy
    update = msgspec.structs.replace(policy.sizes.update, every=every)
    changed = msgspec.structs.replace(policy, sizes=msgspec.structs.replace(policy.sizes, update=update))
    return read_policy(msgspec.to_builtins(changed), policy.name)


def run(
    path: Path,
    policies: Sequence[PolicySpec],
    options: Options | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Replay a recording under every policy; each is an outcome, in the order given."""
    recording, options = Recording(path), options or Options()
    _check(recording, options)
    sizes = [policy for policy in policies if policy.sizes is not None]
    names: list[str] = []
    parts: list[list[Floats]] = [[] for _ in sizes]
    if sizes:
        blocks = recording.blocks
        for done, (found, sums) in enumerate(_blocks(path, blocks, sizes, options), 1):
            names += found
            for place, each in enumerate(sums):
                parts[place].append(each)
            if progress is not None:
                progress(done, len(blocks))
    by_policy: dict[str, Outcome] = {}
    for policy, part in zip(sizes, parts, strict=True):
        whole = np.concatenate(part, axis=1) if part else empty(0)
        by_policy[policy.name] = _outcome(policy.name, names, whole, options)
    counted = [policy for policy in policies if policy.replicas is not None]
    if counted:
        services = services_of(recording)
        for policy in counted:
            assert policy.replicas is not None
            found_load = replay_services(services, policy.replicas)
            by_policy[policy.name] = _with_load(by_policy.get(policy.name), policy.name, found_load, options)
    return [by_policy[policy.name] for policy in policies]


def _check(recording: Recording, options: Options) -> None:
    interval = options.interval_seconds or recording.manifest.interval_seconds
    period = options.period_seconds or recording.manifest.period_seconds
    if interval <= 0 or 86400 % interval:
        raise InvalidInput(f"{interval} s do not divide a day", subject=str(recording.path), field="interval")
    if period % interval or 86400 % period:
        raise InvalidInput(f"{period} s must be a multiple of the interval and divide a day", field="--period")


def _blocks(
    path: Path, blocks: Sequence[int], policies: Sequence[PolicySpec], options: Options
) -> Iterator[tuple[list[str], list[Floats]]]:
    """Yield the workloads and the sums of every block, in order."""
    if options.workers <= 1 or len(blocks) <= 1:
        recording = Recording(path)
        for block in blocks:
            yield replay_block(recording, block, policies, options)
        return
    with ProcessPoolExecutor(
        min(options.workers, len(blocks)), mp_context=get_context("spawn"), initializer=_open, initargs=(path,)
    ) as pool:
        tasks = [pool.submit(_in_process, block, policies, options) for block in blocks]
        for task in tasks:
            yield task.result()


_opened: dict[str, Recording] = {}
"""The recording of this worker process."""


def _open(path: Path) -> None:
    _opened["recording"] = Recording(path)


def _in_process(block: int, policies: Sequence[PolicySpec], options: Options) -> tuple[list[str], list[Floats]]:
    return replay_block(_opened["recording"], block, policies, options)


def replay_block(
    recording: Recording, block: int, policies: Sequence[PolicySpec], options: Options
) -> tuple[list[str], list[Floats]]:
    """Replay one block under every policy of sizes; return its workloads and each policy's sums."""
    recorded = recorded_of(recording, block, options)
    replays = [SizeReplay(policy, recorded) for policy in policies]
    for grid in recording.grids(block, interval_seconds=recorded.interval_seconds):
        plans = clairvoyant_plans(grid.cpu, recorded)
        for each in replays:
            each.feed(grid.cpu, grid.memory, grid.throttled, grid.start_seconds, plans)
    return list(recorded.names), [each.sums for each in replays]


def recorded_of(recording: Recording, block: int, options: Options) -> Recorded:
    """Return what holds for a block."""
    manifest, who = recording.manifest, recording.containers
    members = np.flatnonzero(who.block == block).tolist()
    column = {member: place for place, member in enumerate(members)}
    numbers: dict[str, int] = {}
    workloads = [
        numbers.setdefault(f"{who.namespace[m]}/{who.kind[m]}/{who.workload[m]}/{who.container[m]}", len(numbers))
        for m in members
    ]
    sizes: dict[int, list[tuple[int, float, float, float]]] = {}
    rows = recording.rows("sizes")
    names = ("container_id", "time", "cpu_request_millis", "memory_request_bytes", "memory_limit_bytes")
    for member, time, cpu, memory, limit in zip(*(rows[name] for name in names), strict=True):
        if member in column:
            size = (time // 1_000_000, _number(cpu, 1000.0), _number(memory), _number(limit))
            sizes.setdefault(column[member], []).append(size)
    kills: dict[int, list[tuple[int, float]]] = {}
    rows = recording.rows("oom_kills")
    for member, time, memory in zip(rows["container_id"], rows["time"], rows["memory_bytes"], strict=True):
        if member in column:
            kills.setdefault(column[member], []).append((time // 1_000_000, _number(memory)))
    return Recorded(
        workloads=np.array(workloads, dtype=np.int64),
        names=tuple(numbers),
        interval_seconds=options.interval_seconds or manifest.interval_seconds,
        period_seconds=options.period_seconds or manifest.period_seconds,
        # Without any warm-up the policies would be compared on different cells: most decide nothing in the first.
        warmup_periods=max(1, manifest.warmup_periods) if options.warmup_periods is None else options.warmup_periods,
        start_seconds=manifest.start,
        sizes={at: sorted(found) for at, found in sizes.items()},
        oom_kills={at: sorted(found) for at, found in kills.items()},
    )


def _number(value: Any, divisor: float = 1.0) -> float:
    return float("nan") if value is None else float(value) / divisor


def _outcome(name: str, workloads: Sequence[str], sums: Floats, options: Options) -> Outcome:
    found = figures(sums, options.prices)
    draws = []
    # The same workloads are drawn for every policy: differences between policies are paired.
    rng, places = random.Random(SEED), range(len(workloads))
    for _ in range(options.draws if len(workloads) > 1 else 0):
        drawn = np.bincount(rng.choices(places, k=len(places)), minlength=len(places))
        draws.append(figures(sums * drawn, options.prices))
    return Outcome(policy=name, figures=found, intervals=intervals(draws), workloads=tuple(workloads), sums=sums)


def _with_load(sizes: Outcome | None, name: str, found: LoadFigures, options: Options) -> Outcome:
    """Return an outcome with the figures of replica counts beside those of sizes."""
    rng, places = random.Random(SEED), range(len(found.names))
    draws = [found.figures(rng.choices(places, k=len(places))) for _ in range(options.draws if len(places) > 1 else 0)]
    mine, drawn = found.figures(), intervals(draws)
    if options.prices.core:
        mine["replica_money"] = options.prices.core * mine["replica_core_hours"]
    if sizes is None:
        return Outcome(policy=name, figures=mine, intervals=drawn, workloads=found.names, sums=np.zeros((0, 0)))
    return Outcome(
        policy=name,
        figures={**sizes.figures, **mine},
        intervals={**sizes.intervals, **drawn},
        workloads=sizes.workloads,
        sums=sizes.sums,
    )
