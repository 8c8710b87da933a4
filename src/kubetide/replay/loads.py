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
from kubetide.replay.demand import services_of
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
        services = _counted(services_of(source), source, stretch) if policies else None
        for place, policy in enumerate(policies):
            assert services is not None
            yield place, replay_services(services, policy)
    else:
        yield from spread(_replay_item, [(source.path, policy, stretch) for policy in policies], workers)


def _replay_item(item: tuple[Path, Replicas, Stretch]) -> LoadFigures:
    path, policy, stretch = item
    recording = opened(path)
    return replay_services(_counted(services_of(recording), recording, stretch), policy)


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
