"""Replays a recording under policies: blocks in processes of their own, sums merged in the order of blocks.

What one block gives depends on that block alone, and sums are per workload: the result is the same for any number of
workers. `run` returns plain values, for the command line and for notebooks.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import yaml

from kubetide.errors import InvalidInput
from kubetide.recording.core.layout import ABSENT, Grid
from kubetide.recording.reader import Recording
from kubetide.replay.core.block import Recorded, SizeReplay, clairvoyant_plans, joined
from kubetide.replay.core.figures import Prices, empty, figures, intervals
from kubetide.replay.core.services import LoadFigures
from kubetide.replay.core.spec import BUILT_IN_NAMES, PolicySpec, Replicas, built_in, read_policy
from kubetide.replay.loads import Stretch, replay_counts
from kubetide.replay.parts import LOADS, Part, fingerprint, keep, kept, parts_file
from kubetide.replay.samples import Samples, opened, recorded_events
from kubetide.replay.workers import Workers, spread
from kubetide.stats.buckets import Floats

SEED = 1
DRAWS = 200
BLOCKS = 4
"""Blocks of a recording that a process replays side by side, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a recording is replayed and counted; None takes what the recording says."""

    interval_seconds: int | None = None
    period_seconds: int | None = None
    warmup_periods: int | None = None
    days: int | None = None
    """Replay no more than so many days from the start."""
    skipped_days: int = 0
    """Count nothing of so many days at the start, in which policies learn."""
    workers: int = 1
    scheduler: str = ""
    """A Dask scheduler whose workers do it, instead of processes here."""
    resume: bool = False
    """Go on from the parts that an interrupted replay has kept."""
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
    load: LoadFigures | None = None
    """What was counted per service, for policies with replicas."""


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
    source: Path | Samples,
    policies: Sequence[PolicySpec],
    options: Options | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Replay a recording, or samples in memory, under every policy; each is an outcome, in the order given."""
    options = options or Options()
    recording = source if isinstance(source, Samples) else Recording(source)
    _check(recording, options)
    path = None if isinstance(recording, Samples) else recording.path
    parts = _Parts(kept(parts_file(path)) if path is not None and options.resume else {}, progress)
    try:
        found = _outcomes(recording, policies, options, parts)
    except KeyboardInterrupt:
        if path is not None and parts.done:
            keep(parts_file(path), parts.done)
        raise
    if path is not None and options.resume:
        parts_file(path).unlink(missing_ok=True)
    return found


@dataclass(slots=True)
class _Parts:
    """What is done of a run, to be kept when it is interrupted, and who is told how much that is."""

    done: dict[tuple[int, str], Part]
    tell: Callable[[int, int], None] | None
    total: int = 0
    finished: int = 0

    def finish(self, number: int = 1) -> None:
        """Count pieces that are finished."""
        self.finished += number
        if self.tell is not None:
            self.tell(self.finished, self.total)


def _outcomes(
    source: Recording | Samples, policies: Sequence[PolicySpec], options: Options, parts: _Parts
) -> list[Outcome]:
    sizes = [policy for policy in policies if policy.sizes is not None]
    counted = [policy for policy in policies if policy.replicas is not None and _has_counts(source, policy.replicas)]
    blocks = 0 if isinstance(source, Samples) or not sizes else len(source.blocks)
    parts.total = blocks + len(counted)
    # Counts come first: that there is nothing to count them from is known at once.
    try:
        loads = _all_loads(source, counted, options, parts)
    except InvalidInput:
        if not all(each.replicas is not None and each.replicas.recorded for each in counted):
            raise
        counted, loads = [], []  # Counts were recorded, but nothing to hold them against.
    by_policy: dict[str, Outcome] = {}
    if sizes:
        names, sums = _all_sums(source, sizes, options, parts)
        for policy, each in zip(sizes, sums, strict=True):
            by_policy[policy.name] = _outcome(policy.name, names, each, options)
    for policy, found in zip(counted, loads, strict=True):
        by_policy[policy.name] = _with_load(by_policy.get(policy.name), policy.name, found, options)
    return [by_policy[policy.name] for policy in policies]


def _has_counts(source: Recording | Samples, replicas: Replicas) -> bool:
    """Return whether a policy can count replicas: as they were, only where they were recorded."""
    if not replicas.recorded:
        return True
    return not isinstance(source, Samples) and source.manifest.rows.get("replicas", 0) > 0


def _all_loads(
    source: Recording | Samples, policies: Sequence[PolicySpec], options: Options, parts: _Parts
) -> list[LoadFigures]:
    """Return what every policy of replica counts came to."""
    stretch = Stretch(
        days=options.days,
        skipped_days=options.skipped_days,
        warmup_periods=options.warmup_periods,
        period_seconds=options.period_seconds,
    )
    marks = ["" if isinstance(source, Samples) else _mark(source, each, options) for each in policies]
    left = [place for place, mark in enumerate(marks) if (LOADS, mark) not in parts.done]
    parts.finished += len(policies) - len(left)
    wanted = [replicas for place in left if (replicas := policies[place].replicas) is not None]
    workers = Workers(processes=min(options.workers, max(1, len(left))), scheduler=options.scheduler)
    found: dict[int, LoadFigures] = {}
    for at, each in replay_counts(source, wanted, stretch, workers):
        found[left[at]] = each
        if not isinstance(source, Samples):
            parts.done[LOADS, marks[left[at]]] = (list(each.names), each.sums)
        parts.finish()
    return [found.get(place) or LoadFigures.from_sums(*parts.done[LOADS, marks[place]]) for place in range(len(marks))]


def _all_sums(
    source: Recording | Samples,
    policies: Sequence[PolicySpec],
    options: Options,
    parts: _Parts,
) -> tuple[list[str], list[Floats]]:
    """Return all workloads and the sums of every policy."""
    if isinstance(source, Samples):
        recorded = recorded_of(source, 0, options)
        days = ([grid] for grid in source.grids(interval_seconds=recorded.interval_seconds))
        ((names, sums),) = _replayed([recorded], days, policies, options)
        return names, sums
    found = _blocks(source, policies, options, parts)
    names = [name for block in source.blocks for name in found[block][0]]
    columns = [[found[block][1][place] for block in source.blocks] for place in range(len(policies))]
    return names, [np.concatenate(part, axis=1) if part else empty(0) for part in columns]


def _check(source: Recording | Samples, options: Options) -> None:
    about = source if isinstance(source, Samples) else source.manifest
    interval = options.interval_seconds or about.interval_seconds
    period = options.period_seconds or about.period_seconds
    if interval <= 0 or 86400 % interval:
        subject = "samples" if isinstance(source, Samples) else str(source.path)
        raise InvalidInput(f"{interval} s do not divide a day", subject=subject, field="interval")
    if period % interval or 86400 % period:
        raise InvalidInput(f"{period} s must be a multiple of the interval and divide a day", field="--period")


def _mark(recording: Recording, policy: PolicySpec, options: Options) -> str:
    """Return what stands for all that the parts of a policy depend on."""
    manifest = recording.manifest
    how = (
        options.interval_seconds or manifest.interval_seconds,
        options.period_seconds or manifest.period_seconds,
        options.warmup_periods,
        options.days,
        options.skipped_days,
    )
    return fingerprint(recording.path, policy, how)


def _blocks(
    recording: Recording, policies: Sequence[PolicySpec], options: Options, parts: _Parts
) -> dict[int, tuple[list[str], list[Floats]]]:
    """Return the workloads and the sums of every block."""
    marks, done = [_mark(recording, policy, options) for policy in policies], parts.done
    missing: dict[tuple[int, ...], list[int]] = {}
    for block in recording.blocks:
        if lacks := tuple(place for place, mark in enumerate(marks) if (block, mark) not in done):
            missing.setdefault(lacks, []).append(block)
    most = 1 if options.scheduler else BLOCKS
    items: list[_Item] = [
        (recording.path, group, [policies[place] for place in lacks], options)
        for lacks, blocks in missing.items()
        for group in _even(blocks, options.workers, most)
    ]
    by_name = dict(zip((policy.name for policy in policies), marks, strict=True))
    parts.finished += len(recording.blocks) - sum(len(item[1]) for item in items)
    workers = Workers(processes=options.workers, scheduler=options.scheduler)
    for place, found in spread(_replay_item, items, workers):
        _, group, replayed, _ = items[place]
        for block, (names, sums) in zip(group, found, strict=True):
            for policy, each in zip(replayed, sums, strict=True):
                done[block, by_name[policy.name]] = (names, each)
        parts.finish(len(group))
    return {block: (done[block, marks[0]][0], [done[block, mark][1] for mark in marks]) for block in recording.blocks}


def _even(blocks: Sequence[int], workers: int, most: int) -> list[list[int]]:
    """Return blocks in groups of about the same size and at most `most`, as many groups for every worker."""
    groups = workers * -(-len(blocks) // (workers * most))
    size, more = divmod(len(blocks), groups)
    ends = [number * size + min(number, more) for number in range(groups + 1)]
    return [list(blocks[begin:end]) for begin, end in pairwise(ends) if begin < end]


_Item = tuple[Path, list[int], list[PolicySpec], Options]
_Replayed = tuple[list[str], list[Floats]]
"""The workloads of a block, and the sums of every policy."""


def _replay_item(item: _Item) -> list[_Replayed]:
    path, blocks, policies, options = item
    recording = opened(path)
    recorded = [recorded_of(recording, block, options) for block in blocks]
    interval = recorded[0].interval_seconds
    days = zip(*(recording.grids(block, interval_seconds=interval) for block in blocks), strict=True)
    return _replayed(recorded, days, policies, options)


def _replayed(
    blocks: Sequence[Recorded], days: Iterable[Sequence[Grid]], policies: Sequence[PolicySpec], options: Options
) -> list[_Replayed]:
    """Replay blocks under every policy of sizes.

    Where nothing is learned from neighbours, blocks are replayed side by side as one: a step on four times as many
    columns takes twice as long.
    """
    together = joined(blocks)
    replays = [
        [SizeReplay(policy, each) for each in ([together] if policy.independent else blocks)] for policy in policies
    ]
    edges = np.cumsum([0, *(each.workloads.size for each in blocks)])
    for day, grids in enumerate(days):
        if options.days is not None and day >= options.days:
            break
        cpu, memory, throttled = _side_by_side(grids)
        plans = clairvoyant_plans(cpu, together)
        for policy in replays:
            for place, each in enumerate(policy):
                part = slice(None) if len(policy) == 1 else slice(edges[place], edges[place + 1])
                seen = None if throttled is None else throttled[:, part]
                each.feed(cpu[:, part], memory[:, part], seen, grids[0].start_seconds, [plan[part] for plan in plans])
    sums = [np.concatenate([each.sums for each in policy], axis=1) for policy in replays]
    ends = np.cumsum([0, *(len(each.names) for each in blocks)])
    return [
        (list(each.names), [whole[:, begin:end] for whole in sums])
        for each, (begin, end) in zip(blocks, pairwise(ends.tolist()), strict=True)
    ]


def _side_by_side(grids: Sequence[Grid]) -> tuple[Floats, Floats, Floats | None]:
    if len(grids) == 1:
        return grids[0].cpu, grids[0].memory, grids[0].throttled
    cpu, memory = (np.concatenate(each, axis=1) for each in zip(*((g.cpu, g.memory) for g in grids), strict=True))
    if all(grid.throttled is None for grid in grids):
        return cpu, memory, None
    seen = [np.full(grid.cpu.shape, np.nan) if grid.throttled is None else grid.throttled for grid in grids]
    return cpu, memory, np.concatenate(seen, axis=1)


def recorded_of(source: Recording | Samples, block: int, options: Options) -> Recorded:
    """Return what holds for a block; samples in memory are one."""
    if isinstance(source, Samples):
        names, start, since = source.workloads, source.start_seconds, np.full(len(source.workloads), ABSENT)
        sizes, kills = source.sizes, source.oom_kills
        interval, period, warmup = source.interval_seconds, source.period_seconds, source.warmup_periods
    else:
        manifest, members = source.manifest, np.flatnonzero(source.containers.block == block)
        names, start = [source.containers.unit_of(member) for member in members.tolist()], manifest.start
        sizes, kills = recorded_events(source, members)
        since = source.containers.since[members]
        # Without any warm-up the policies would be compared on different cells: most decide nothing in the first.
        interval, period, warmup = manifest.interval_seconds, manifest.period_seconds, max(1, manifest.warmup_periods)
    numbers: dict[str, int] = {}
    workloads = [numbers.setdefault(name, len(numbers)) for name in names]
    begins: dict[int, int] = {}
    for workload, at in zip(workloads, since.tolist(), strict=True):
        if at != ABSENT:
            begins[workload] = min(begins.get(workload, at), at // 1_000_000)
    return Recorded(
        workloads=np.array(workloads, dtype=np.int64),
        names=tuple(numbers),
        interval_seconds=options.interval_seconds or interval,
        period_seconds=options.period_seconds or period,
        warmup_periods=warmup if options.warmup_periods is None else options.warmup_periods,
        start_seconds=start,
        sizes=sizes,
        oom_kills=kills,
        begins=begins,
        counted_from=start + options.skipped_days * 86400,
    )


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
        return Outcome(
            policy=name, figures=mine, intervals=drawn, workloads=found.names, sums=np.zeros((0, 0)), load=found
        )
    return Outcome(
        policy=name,
        figures={**sizes.figures, **mine},
        intervals={**sizes.intervals, **drawn},
        workloads=sizes.workloads,
        sums=sizes.sums,
        load=found,
    )
