"""The worst workloads and services of a replay, followed sample by sample.

Which are worst comes from the sums that a replay has counted anyway: the cost of each workload by itself, in the same
words as the whole. Only the blocks that hold one of them are replayed once more, this time keeping the sizes in force;
a block is always replayed whole, because a policy may learn from neighbours. Services are independent of each other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kubetide.recording.core.layout import Grid
from kubetide.recording.reader import Recording
from kubetide.replay.core.block import Recorded, SizeReplay, clairvoyant_plans
from kubetide.replay.core.figures import figures
from kubetide.replay.core.services import PRICE, STEP_SECONDS, Services, replay_services
from kubetide.replay.core.spec import PolicySpec, built_in
from kubetide.replay.demand import services_of
from kubetide.replay.runs import Options, Outcome, recorded_of
from kubetide.replay.samples import Samples
from kubetide.stats.buckets import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Followed:
    """One workload under one policy: of its pods, the highest usage and the highest size at each sample."""

    policy: str
    workload: str
    times: Floats
    """Seconds."""
    cpu: Floats
    memory: Floats
    old_cpu: Floats
    old_memory: Floats
    new_cpu: Floats
    new_memory: Floats
    overruns: Floats
    """When memory passed the limit of the policy."""
    oom_kills: Floats
    """When an OOM kill was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FollowedService:
    """One service under one policy: demand in pods' worth, the pods asked for, and what was recorded."""

    policy: str
    service: str
    times: Floats
    demand: Floats
    replicas: Floats
    recorded_times: Floats
    recorded: Floats


def worst_workloads(outcome: Outcome, most: int) -> list[str]:
    """Return the workloads that cost most by themselves, memory and CPU together, worst first."""
    if not outcome.sums.size:
        return []
    costs = []
    for place, name in enumerate(outcome.workloads):
        own = figures(outcome.sums[:, place : place + 1])
        cost = sum(own[key] for key in ("memory_cost", "cpu_cost") if own[key] == own[key])
        if cost > 0.0:
            costs.append((-cost, name))
    return [name for _, name in sorted(costs)[:most]]


def worst_services(outcome: Outcome, most: int) -> list[str]:
    """Return the services that cost most, worst first."""
    found = outcome.load
    if found is None:
        return []
    counted = np.flatnonzero((found.seconds > 0) & (found.work > 0))
    bad = (found.late[counted] + found.lost[counted]) / found.work[counted]
    cost = found.replicas[counted] / found.least[counted] + PRICE * bad
    ranked = sorted(zip((-cost).tolist(), (found.names[at] for at in counted.tolist()), strict=True))
    return [name for _, name in ranked[:most]]


def follow(
    source: Path | Samples,
    policies: Sequence[PolicySpec],
    chosen: Mapping[str, Sequence[str]] | None = None,
    options: Options | None = None,
) -> list[Followed]:
    """Return the chosen workloads of each policy, by its name, in the order chosen; None is all of them."""
    options = options or Options()
    if isinstance(source, Samples):
        every = tuple(dict.fromkeys(source.workloads))
        wanted = {policy.name: every for policy in policies} if chosen is None else chosen
        recorded = recorded_of(source, 0, options)
        grids = source.grids(interval_seconds=recorded.interval_seconds)
        listed = _follow_block(recorded, grids, policies, wanted)
    else:
        recording = Recording(source)
        who = recording.containers
        units = [who.unit_of(at) for at in range(len(who))]
        wanted = {policy.name: tuple(dict.fromkeys(units)) for policy in policies} if chosen is None else chosen
        names = {name for each in wanted.values() for name in each}
        listed = []
        for block in sorted({int(who.block[at]) for at, unit in enumerate(units) if unit in names}):
            recorded = recorded_of(recording, block, options)
            grids = recording.grids(block, interval_seconds=recorded.interval_seconds)
            listed += _follow_block(recorded, grids, policies, wanted)
    found = {(each.policy, each.workload): each for each in listed}
    return [found[policy.name, name] for policy in policies for name in wanted.get(policy.name, ())]


def _follow_block(
    recorded: Recorded, grids: Iterable[Grid], policies: Sequence[PolicySpec], chosen: Mapping[str, Sequence[str]]
) -> list[Followed]:
    current = built_in("current")
    assert current is not None
    columns = {name: np.flatnonzero(recorded.workloads == place) for place, name in enumerate(recorded.names)}
    mine = [policy for policy in policies if any(name in columns for name in chosen.get(policy.name, ()))]
    names = sorted({name for policy in mine for name in chosen[policy.name] if name in columns})
    replays = [SizeReplay(policy, recorded) for policy in (current, *mine)]
    parts: dict[str, list[Floats]] = {}

    def keep(key: str, values: Floats, name: str) -> None:
        parts.setdefault(f"{key} {name}", []).append(np.fmax.reduce(values[:, columns[name]], axis=1))

    times = []
    for grid in grids:
        plans = clairvoyant_plans(grid.cpu, recorded)
        times.append(grid.start_seconds + np.arange(len(grid.cpu)) * float(recorded.interval_seconds))
        for name in names:
            keep("cpu", grid.cpu, name)
            keep("memory", grid.memory, name)
        for number, each in enumerate(replays):
            each.feed(grid.cpu, grid.memory, grid.throttled, grid.start_seconds, plans)
            cpu, memory, limit = each.requests
            held = np.fmax(limit, memory)
            above = np.where(np.isnan(held), 0.0, grid.memory > held)
            for name in names:
                keep(f"{number} cpu", cpu, name)
                keep(f"{number} memory", memory, name)
                keep(f"{number} above", above, name)
    whole = {key: np.concatenate(each) for key, each in parts.items()}
    at = np.concatenate(times)
    return [
        Followed(
            policy=policy.name,
            workload=name,
            times=at,
            cpu=whole[f"cpu {name}"],
            memory=whole[f"memory {name}"],
            old_cpu=whole[f"0 cpu {name}"],
            old_memory=whole[f"0 memory {name}"],
            new_cpu=whole[f"{number} cpu {name}"],
            new_memory=whole[f"{number} memory {name}"],
            overruns=at[whole[f"{number} above {name}"] > 0.0],
            oom_kills=np.array(
                sorted(
                    {second for column in columns[name].tolist() for second, _ in recorded.oom_kills.get(column, ())}
                ),
                dtype=np.float64,
            ),
        )
        for number, policy in enumerate(mine, 1)
        for name in chosen[policy.name]
        if name in columns
    ]


def follow_services(
    source: Path | Samples, policies: Sequence[PolicySpec], chosen: Mapping[str, Sequence[str]] | None = None
) -> list[FollowedService]:
    """Return the chosen services of each policy, by its name, in the order chosen; None is all of them."""
    recording = source if isinstance(source, Samples) else Recording(source)
    some_names = None if chosen is None else {name for names in chosen.values() for name in names}
    services = services_of(recording, some_names)
    if chosen is None:
        chosen = {policy.name: services.names for policy in policies}
    place = {name: at for at, name in enumerate(services.names)}
    recorded = dict(zip(services.names, services.recorded, strict=True))
    found = []
    for policy in policies:
        names = list(chosen.get(policy.name, ()))
        if policy.replicas is None or not names:
            continue
        some = _only(services, np.array([place[name] for name in names], dtype=np.int64))
        counts = np.array(replay_services(some, policy.replicas, keep=True).counts, dtype=np.float64)
        times: Floats = (services.start_seconds + np.arange(len(counts)) * STEP_SECONDS).astype(np.float64)
        for column, name in enumerate(names):
            seconds, wanted = recorded[name]
            known = ~np.isnan(some.demand[:, column])
            found.append(
                FollowedService(
                    policy=policy.name,
                    service=name,
                    times=times,
                    demand=some.demand[:, column],
                    replicas=np.where(known, counts[:, column], np.nan),
                    recorded_times=seconds,
                    recorded=wanted,
                )
            )
    return found


def _only(services: Services, at: Ints) -> Services:
    return replace(
        services,
        names=tuple(services.names[each] for each in at.tolist()),
        demand=services.demand[:, at],
        pod_cores=services.pod_cores[at],
        skip=services.skip[at],
        recorded=tuple(services.recorded[each] for each in at.tolist()),
    )
