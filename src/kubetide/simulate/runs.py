"""Runs a scenario under policies: all controllers on the simulated cluster, a process of its own for every run.

A run depends on the scenario, the policy and the seed alone: results are the same bytes for any number of workers.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import msgspec

from kubetide.durations import parse_duration
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.ledger import Ledger
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.errors import InvalidInput
from kubetide.kube.client.decoding import tune_gc
from kubetide.replay.core.figures import Prices
from kubetide.replay.workers import Workers, spread
from kubetide.simulate.controllers import Controllers, needed
from kubetide.simulate.core.counting import Run, figures
from kubetide.simulate.kept import fingerprint, keep, kept
from kubetide.simulate.observer import SeriesObserver
from kubetide.simulate.variants import AS_IS, NOBODY, Variant, applied, distinct

AGENT_INTERVAL = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How long, how strict, how dear; None takes what the scenario says."""

    duration: timedelta | None = None
    seed: int | None = None
    slo: timedelta = timedelta(seconds=1)
    workers: int = 1
    scheduler: str = ""
    """A Dask scheduler whose workers do it, instead of processes here."""
    keep: Path | None = None
    """Where finished runs are kept when it is interrupted (KeyboardInterrupt)."""
    resume: bool = False
    """Go on from the runs that were kept."""
    prices: Prices = field(default_factory=Prices)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulated:
    """A run and its figures."""

    run: Run
    figures: dict[str, float]


def run(
    scenario: Scenario,
    variants: Sequence[Variant] = (AS_IS, NOBODY),
    options: Options | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[Simulated]:
    """Simulate a scenario under every policy; an outcome each, in the order given."""
    options = options or Options()
    length = options.duration or parse_duration(scenario.duration)
    if length <= timedelta(0):
        raise InvalidInput("must be longer than nothing", field="duration")
    distinct(variants, scenario.name)
    seed = scenario.seed if options.seed is None else options.seed
    # Mistakes are found before the first process starts.
    items = [(applied(scenario, variant), variant, seed, length, options.slo) for variant in variants]
    keys = [fingerprint(*item) for item in items]
    if options.resume and options.keep is None:
        raise InvalidInput("needs to know where runs are kept", field="keep")
    runs = kept(options.keep) if options.keep is not None and options.resume else {}
    left = [place for place, key in enumerate(keys) if key not in runs]
    workers = Workers(processes=options.workers, scheduler=options.scheduler, fresh=True)
    try:
        for number, (at, found) in enumerate(spread(_once, [items[place] for place in left], workers), 1):
            runs[keys[left[at]]] = found
            if progress is not None:
                progress(len(items) - len(left) + number, len(items))
    except KeyboardInterrupt:
        if options.keep is not None and runs:
            keep(options.keep, runs)
        raise
    if options.keep is not None and options.resume:
        options.keep.unlink(missing_ok=True)
    return [Simulated(run=runs[key], figures=figures(runs[key], options.prices)) for key in keys]


_Item = tuple[Scenario, Variant, int, timedelta, timedelta]


def _once(item: _Item) -> Run:
    scenario, variant, seed, length, slo = item
    logging.getLogger("kubetide").setLevel(logging.ERROR)
    tune_gc()
    return simulate_once(scenario, variant, seed=seed, length=length, slo=slo)


def simulate_once(scenario: Scenario, variant: Variant, *, seed: int, length: timedelta, slo: timedelta) -> Run:
    """Simulate a scenario, to which a policy has been applied, in this process."""
    names = needed(scenario) if variant.controllers is None else tuple(dict.fromkeys(variant.controllers))

    async def main() -> Run:
        cluster = SimCluster(scenario, seed=seed, api=ApiServer(clock=virtual_clock(), seed=seed))
        ledger = Ledger(cluster)
        observer = SeriesObserver(cluster, ledger, slo.total_seconds())
        ledger.attach()
        cluster.observers.append(observer)
        start = cluster.clock.now().timestamp()
        async with cluster:
            cluster.world.on_any(observer.changed)
            async with Controllers().at_work(cluster, names, agent_interval=AGENT_INTERVAL):
                # The look at the very end belongs to it.
                await asyncio.sleep(length.total_seconds() + 0.001)
                return Run(
                    policy=variant.name,
                    seed=seed,
                    start=start,
                    series=observer.series(),
                    oom_kills={name: tuple(times) for name, times in sorted(observer.oom_kills.items())},
                    evictions=observer.evictions,
                    digest=digest(cluster),
                )

    return run_virtual(main(), start=scenario.start)


def digest(cluster: SimCluster) -> str:
    """Return a hash of every object there is: equal runs have equal ones."""
    found = sha256()
    for resource in cluster.api.store.resources():
        for entry in cluster.api.store.collection(resource).entries():
            found.update(msgspec.json.encode([resource.group, resource.plural, entry.obj], order="deterministic"))
    return found.hexdigest()
