"""Searches the numbers of the recommender on the past of a cluster; days that were not searched on decide.

Optuna proposes candidates in batches of a fixed size and is told all results of a batch at once, in order: the result
does not depend on who finishes first, nor on the number of workers. Every class of workloads has a search of its own;
they propose in turn, and each is told what all proposals came to for its workloads, since a replay counts them anyway.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.recording.reader import Recording
from kubetide.replay.core.search import DEFAULTS, SPACES, Numbers, Objective, Values, cost, front, policy_of, values_of
from kubetide.replay.run import Options, Outcome, run

BATCH = 8
FINALISTS = 8
"""Candidates per class that go on to the held-out days, beside the defaults."""
Classes = Literal["all", "namespace"]
_DAY = 86400


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
    chosen: Candidate
    defaults: Candidate
    finalists: Sequence[Candidate]
    """The front of the days searched on, by rising footprint; the defaults are not among them."""


def tune(
    path: Path,
    *,
    objective: Objective = "both",
    budget: int = 200,
    classes: Classes = "all",
    held_out_days: int | None = None,
    options: Options | None = None,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[TunedNumbers]:
    """Return the best numbers for every class of workloads."""
    recording, options = Recording(path), replace(options or Options(), draws=0, resume=False)
    manifest = recording.manifest
    days = -(-(manifest.end - manifest.start + manifest.interval_seconds) // _DAY)
    held_out = max(1, days // 3) if held_out_days is None else held_out_days
    split = days - held_out
    period = options.period_seconds or manifest.period_seconds
    warmup = max(1, manifest.warmup_periods) if options.warmup_periods is None else options.warmup_periods
    if held_out < 1 or split * _DAY <= warmup * period:
        raise InvalidInput(
            f"{days} days are too few to search on with {held_out} held out", subject=str(path), field="--held-out"
        )
    train = replace(options, days=split)
    search = _Search(objective, seed)
    tried: list[Numbers] = []
    sums: list[Outcome] = []
    while len(tried) < budget:
        batch = search.propose(min(BATCH, budget - len(tried)))
        outcomes = run(path, [policy_of(each, f"t{number}") for number, each in enumerate(batch)], train)
        tried, sums = [*tried, *batch], [*sums, *outcomes]
        search.told(batch, outcomes, classes)
        if progress is not None:
            progress(len(tried), budget)
    members = members_of(sums[0].workloads, classes)
    finals: dict[str, list[int]] = {}
    for name, columns in members.items():
        values = [values_of(each.sums[:, columns], objective) for each in sums]
        if not np.isnan(values).any():
            best = sorted(front(values), key=lambda at: (cost(values[at]), at))[:FINALISTS]
            finals[name] = sorted((place for place in best if place), key=lambda at: values[at])
    if not finals:
        raise InvalidInput("has nothing to count in the days searched on", subject=str(path))
    # The first candidate is always the defaults: who does not beat them on the held-out days is not chosen.
    wanted = sorted({0, *(place for places in finals.values() for place in places)})
    policies = [policy_of(tried[place], f"t{place}") for place in wanted]
    judged = dict(
        zip(wanted, run(path, policies, replace(options, warmup_periods=split * _DAY // period)), strict=True)
    )
    found = []
    for name, places in finals.items():
        columns = members[name]

        def candidate(place: int, columns: list[int] = columns) -> Candidate:
            return Candidate(
                numbers=tried[place],
                train=values_of(sums[place].sums[:, columns], objective),
                held_out=values_of(judged[place].sums[:, columns], objective),
            )

        defaults, finalists = candidate(0), [candidate(place) for place in places]
        sound = [each for each in (defaults, *finalists) if not np.isnan(each.held_out).any()]
        if sound:
            chosen = min(sound, key=lambda each: cost(each.held_out))
            found.append(TunedNumbers(workload_class=name, chosen=chosen, defaults=defaults, finalists=finalists))
    if not found:
        raise InvalidInput("has nothing to count in the held-out days", subject=str(path))
    return found


def members_of(workloads: Sequence[str], classes: Classes) -> dict[str, list[int]]:
    """Return the columns of every class of workloads."""
    found: dict[str, list[int]] = {}
    for column, name in enumerate(workloads):
        found.setdefault("all" if classes == "all" else name.partition("/")[0], []).append(column)
    return found


class _Search:
    """One study per class, in turn; until the classes are known, one for all."""

    def __init__(self, objective: Objective, seed: int) -> None:
        self._optuna = _optuna()
        self._objective, self._seed = objective, seed
        space = SPACES[objective]
        kinds = self._optuna.distributions
        self._space = {name: kinds.FloatDistribution(low, high, step=step) for name, (low, high, step) in space.items()}
        self._studies: dict[str, Any] = {}
        self._turn = 0

    def propose(self, number: int) -> list[Numbers]:
        """Return the next candidates; the first of all are the defaults."""
        if not self._studies:
            first = self._study(self._seed)
            drawn = [first.ask(self._space).params for _ in range(number - 1)]
            return [{name: float(DEFAULTS[name]) for name in self._space}, *drawn]
        names = list(self._studies)
        study = self._studies[names[self._turn % len(names)]]
        self._turn += 1
        return [study.ask(self._space).params for _ in range(number)]

    def told(self, batch: Sequence[Numbers], outcomes: Sequence[Outcome], classes: Classes) -> None:
        """Tell every study what the candidates came to for its workloads."""
        for place, (name, columns) in enumerate(members_of(outcomes[0].workloads, classes).items()):
            study = self._studies.setdefault(name, self._study(self._seed + place))
            for numbers, outcome in zip(batch, outcomes, strict=True):
                values = values_of(outcome.sums[:, columns], self._objective)
                if not np.isnan(values).any():
                    make = self._optuna.trial.create_trial
                    study.add_trial(make(params=dict(numbers), distributions=self._space, values=list(values)))

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
