"""Searches the numbers of a policy on the past of a cluster; days that were not searched on decide.

Optuna proposes candidates in batches of a fixed size and is told all results of a batch at once, in order: the result
does not depend on who finishes first, nor on the number of workers. Every class of workloads has a search of its own;
they propose in turn, and each is told what all proposals came to for its workloads, since a replay counts them anyway.

A search that was interrupted goes on by starting anew: it proposes the same candidates again, and what they came to is
known already.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.recording.reader import Recording
from kubetide.replay.classes import Autoscalers, Classes, autoscalers_of, class_names
from kubetide.replay.core.search import (
    Estimator,
    Numbers,
    Objective,
    Space,
    Values,
    cost,
    front,
    load_values,
    policy_of,
    space_of,
    values_of,
)
from kubetide.replay.parts import Journal, fingerprint, parts_file
from kubetide.replay.runs import Options, Outcome, run

BATCH = 8
FINALISTS = 8
"""Candidates per class that go on to the held-out days, beside the defaults."""
_DAY = 86400
ByClass = Mapping[str, Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Numbers, and what they came to on both sides of the split."""

    numbers: Numbers
    train: Values
    held_out: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedNumbers:
    """What was found for a class of workloads."""

    workload_class: str
    estimator: str
    chosen: Candidate
    defaults: Candidate
    finalists: Sequence[Candidate]
    """The front of the days searched on, by rising footprint; the defaults are not among them."""
    classes: Classes = "all"
    autoscalers: Autoscalers = field(default_factory=Autoscalers)
    """Those of the class that were recorded."""


def tune(
    path: Path,
    *,
    objective: Objective = "both",
    estimator: Estimator = "vpa",
    budget: int = 200,
    classes: Classes = "all",
    held_out_days: int | None = None,
    options: Options | None = None,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[TunedNumbers]:
    """Return the best numbers for every class of workloads."""
    recording, options = Recording(path), replace(options or Options(), draws=0)
    space = space_of(estimator, objective)
    manifest = recording.manifest
    days = -(-(_last_second(recording) - manifest.start + manifest.interval_seconds) // _DAY)
    held_out = max(1, days // 3) if held_out_days is None else held_out_days
    split = days - held_out
    period = options.period_seconds or manifest.period_seconds
    warmup = max(1, manifest.warmup_periods) if options.warmup_periods is None else options.warmup_periods
    if held_out < 1 or split * _DAY <= warmup * period:
        raise InvalidInput(
            f"{days} days are too few to search on with {held_out} held out", subject=str(path), field="--held-out"
        )
    names = class_names(recording, classes, days=split, services=objective == "replicas")
    journal = Journal(path, resume=options.resume)
    judge = _Judge(path, space, objective, names, journal)
    train, last = replace(options, days=split), replace(options, skipped_days=split)
    search = _Search(space, seed)
    tried: list[Numbers] = []
    found: list[ByClass] = []
    try:
        while len(tried) < budget:
            batch = search.propose(min(BATCH, budget - len(tried)))
            came_to = judge.values(batch, train)
            tried, found = [*tried, *batch], [*found, *came_to]
            search.told(batch, came_to)
            if progress is not None:
                progress(len(tried), budget)
        finals = _finals(found)
        if not finals:
            raise InvalidInput("has nothing to count in the days searched on", subject=str(path))
        # The first candidate is always the defaults: who does not beat them on the held-out days is not chosen.
        wanted = sorted({0, *(place for places in finals.values() for place in places)})
        judged = dict(zip(wanted, judge.values([tried[place] for place in wanted], last), strict=True))
    except KeyboardInterrupt:
        journal.keep()
        raise
    journal.forget()
    result = []
    for name, places in finals.items():
        defaults, *finalists = (
            Candidate(numbers=tried[place], train=found[place][name], held_out=judged[place][name])
            for place in (0, *places)
        )
        sound = [each for each in (defaults, *finalists) if not np.isnan(each.held_out).any()]
        if sound:
            tuned = TunedNumbers(
                workload_class=name,
                estimator=space.estimator,
                chosen=min(sound, key=lambda each: cost(each.held_out)),
                defaults=defaults,
                finalists=finalists,
                classes=classes,
                autoscalers=autoscalers_of(recording, [unit for unit, mine in names.items() if mine == name]),
            )
            result.append(tuned)
    if not result:
        raise InvalidInput("has nothing to count in the held-out days", subject=str(path))
    return result


def _last_second(recording: Recording) -> int:
    """Return when a recording ends; older ones of load alone do not say it."""
    times = recording.rows("load")["time"] if not recording.manifest.rows.get("usage") else []
    return max(recording.manifest.end, max(times, default=0) // 1_000_000)


def _finals(found: Sequence[ByClass]) -> dict[str, list[int]]:
    """Return the best candidates of each class that has anything to count, by rising footprint."""
    finals: dict[str, list[int]] = {}
    for name in found[0]:
        values = [each[name] for each in found]
        if not np.isnan(values).any():
            best = sorted(front(values), key=lambda at: (cost(values[at]), at))[:FINALISTS]
            finals[name] = sorted((place for place in best if place), key=lambda at: values[at])
    return finals


class _Judge:
    """Replays candidates, unless it is known already what they came to."""

    def __init__(
        self, path: Path, space: Space, objective: Objective, names: Mapping[str, str], journal: Journal
    ) -> None:
        self._path, self._space, self._objective, self._names = path, space, objective, names
        self._journal = journal

    def values(self, batch: Sequence[Numbers], options: Options) -> list[ByClass]:
        """Return what every candidate came to, by class."""
        counted = (
            options.interval_seconds,
            options.period_seconds,
            options.warmup_periods,
            options.days,
            options.skipped_days,
        )
        policies = [policy_of(self._space.estimator, each, f"t{place}") for place, each in enumerate(batch)]
        # The name of a candidate is only its place in the batch.
        plain = [policy_of(self._space.estimator, each, "candidate") for each in batch]
        how = (*counted, self._objective, *sorted(set(self._names.values())))
        keys = [fingerprint(self._path, each, how) for each in plain]
        known = self._journal.known
        missing = [policy for policy, key in zip(policies, keys, strict=True) if key not in known]
        if missing:
            resume = options.resume and parts_file(self._path).exists()
            outcomes = {each.policy: each for each in run(self._path, missing, replace(options, resume=resume))}
            for policy, key in zip(policies, keys, strict=True):
                if policy.name in outcomes:
                    known[key] = self._by_class(outcomes[policy.name])
        return [known[key] for key in keys]

    def _by_class(self, outcome: Outcome) -> dict[str, Values]:
        listed = outcome.workloads if outcome.load is None else outcome.load.names
        members: dict[str, list[int]] = {}
        for column, name in enumerate(listed):
            members.setdefault(self._names[name], []).append(column)
        if outcome.load is not None:
            return {name: load_values(outcome.load, at) for name, at in members.items()}
        return {name: values_of(outcome.sums[:, at], self._objective) for name, at in members.items()}


class _Search:
    """One study per class, in turn; until the classes are known, one for all."""

    def __init__(self, space: Space, seed: int) -> None:
        self._optuna = _optuna()
        self._seed, self._defaults = seed, space.defaults
        kinds = self._optuna.distributions
        self._space = {
            name: kinds.FloatDistribution(low, high, step=step) for name, (low, high, step) in space.ranges.items()
        }
        self._studies: dict[str, Any] = {}
        self._turn = 0

    def propose(self, number: int) -> list[Numbers]:
        """Return the next candidates; the first of all are the defaults."""
        if not self._studies:
            first = self._study(self._seed)
            drawn = [first.ask(self._space).params for _ in range(number - 1)]
            return [dict(self._defaults), *drawn]
        names = list(self._studies)
        study = self._studies[names[self._turn % len(names)]]
        self._turn += 1
        return [study.ask(self._space).params for _ in range(number)]

    def told(self, batch: Sequence[Numbers], found: Sequence[ByClass]) -> None:
        """Tell every study what the candidates came to for its workloads."""
        make = self._optuna.trial.create_trial
        for place, name in enumerate(found[0]):
            study = self._studies.setdefault(name, self._study(self._seed + place))
            for numbers, values in zip(batch, found, strict=True):
                if not np.isnan(values[name]).any():
                    study.add_trial(make(params=dict(numbers), distributions=self._space, values=list(values[name])))

    def _study(self, seed: int) -> Any:
        sampler = self._optuna.samplers.TPESampler(seed=seed)
        return self._optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)


def _optuna() -> Any:
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise InvalidInput("tuning needs Optuna: pip install 'kubetide[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
