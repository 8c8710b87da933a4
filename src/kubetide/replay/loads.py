"""Replays replica counts: the services of a recording under every policy that counts them, one policy at a time.

A policy is a piece of work of its own: services are independent of each other, but reading their demand takes longer
than deciding on it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kubetide.recording.reader import Recording
from kubetide.replay.core.services import STEP_SECONDS, LoadFigures, Services, replay_services
from kubetide.replay.core.spec import Replicas
from kubetide.replay.demand import service_groups
from kubetide.replay.samples import Samples, opened
from kubetide.replay.workers import Workers, spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What of the time is replayed and counted; None takes what the source says."""

    days: int | None
    skipped_days: int
    warmup_periods: int | None
    period_seconds: int | None


def replay_counts(
    source: Recording | Samples, policies: Sequence[Replicas], stretch: Stretch, workers: Workers
) -> Iterator[tuple[int, LoadFigures]]:
    """Yield the place of every policy and what its counts came to, as they finish."""
    if isinstance(source, Samples) or (not workers.scheduler and min(workers.processes, len(policies)) <= 1):
        found: list[list[LoadFigures]] = [[] for _ in policies]
        for services in service_groups(source) if policies else ():
            counted = _counted(services, source, stretch)
            for mine, policy in zip(found, policies, strict=True):
                mine.append(replay_services(counted, policy))
        yield from ((place, LoadFigures.joined(mine)) for place, mine in enumerate(found))
    else:
        yield from spread(_replay_item, [(source.path, policy, stretch) for policy in policies], workers)


def _replay_item(item: tuple[Path, Replicas, Stretch]) -> LoadFigures:
    path, policy, stretch = item
    recording = opened(path)
    groups = service_groups(recording)
    return LoadFigures.joined([replay_services(_counted(each, recording, stretch), policy) for each in groups])


def _counted(services: Services, source: Recording | Samples, stretch: Stretch) -> Services:
    """Return services for the days that are replayed, counted from the period on that somebody named."""
    start, period = (
        (source.start_seconds, source.period_seconds)
        if isinstance(source, Samples)
        else (source.manifest.start, source.manifest.period_seconds)
    )

    def line(seconds: int) -> int:
        return max(0, (start + seconds - services.start_seconds) // STEP_SECONDS)

    demand, skip = services.demand, np.maximum(services.skip, line(stretch.skipped_days * 86400))
    if stretch.days is not None:
        demand = demand[: line(stretch.days * 86400)]
    if stretch.warmup_periods is not None:
        skip = np.maximum(skip, line(stretch.warmup_periods * (stretch.period_seconds or period)))
    return replace(services, demand=demand, skip=skip)
