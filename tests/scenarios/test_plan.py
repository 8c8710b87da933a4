"""Counts and sizes under one plan: random workloads in the vectorised model, and whole controllers in virtual time."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.plan_model import SHAPES, TOLERANCE, Figures, Scenarios, better, dearer, drifted, run
from benchmarks.plan_scenarios import Outcome, play
from benchmarks.plan_scenarios import drifted as closed_loop_drifted

HOURS = 16.0


@pytest.fixture(scope="module")
def scenarios() -> Scenarios:
    return Scenarios.draw(60, seed=11)


@pytest.fixture(scope="module")
def found(scenarios: Scenarios) -> dict[str, Figures]:
    return {policy: run(scenarios, policy, HOURS) for policy in ("counts", "sizes", "upstream", "followed", "alone")}


@pytest.mark.parametrize("policy", ["followed", "alone"])
def test_at_constant_load_the_count_turns_around_at_most_once_an_hour_and_drifts_nowhere(
    scenarios: Scenarios, found: dict[str, Figures], policy: str
) -> None:
    constant = scenarios.shape == SHAPES.index("constant")
    assert found[policy].reversals[constant].max() <= 1.0
    assert drifted(scenarios, found[policy]).size == 0


@pytest.mark.parametrize("policy", ["followed", "alone"])
def test_the_noise_of_a_day_moves_neither_counts_nor_sizes(policy: str) -> None:
    """A day at a constant load, whose peak rises by a little with every hour that passes."""
    constant = replace(Scenarios.draw(120, seed=20), shape=np.full(120, SHAPES.index("constant")))
    found = {each: run(constant, each, 24.0) for each in ("counts", "sizes", policy)}
    cost, _ = better(found)
    assert found[policy].reversals.max() <= 1.0
    assert drifted(constant, found[policy]).size == 0
    assert float((found[policy].cost / cost).mean()) <= 1.0
    assert dearer(found, policy).mean() <= 0.02


@pytest.mark.parametrize("policy", ["followed", "alone"])
def test_both_together_cost_no_more_than_the_better_one_alone_plus_five_percent(
    found: dict[str, Figures], policy: str
) -> None:
    cost, _ = better(found)
    assert float((found[policy].cost / cost).mean()) <= 1.05
    assert found[policy].late.mean() <= min(found["counts"].late.mean(), found["sizes"].late.mean())
    assert found[policy].missed.mean() <= min(found["counts"].missed.mean(), found["sizes"].missed.mean())
    assert dearer(found, policy).mean() <= 0.1


def test_what_knows_nothing_of_each_other_drifts(scenarios: Scenarios, found: dict[str, Figures]) -> None:
    """The same workloads with upstream's rules: at constant load some run away, and targets are missed."""
    assert drifted(scenarios, found["upstream"]).size > 0
    missed = {policy: found[policy].cost * (1.0 + TOLERANCE) < 1.0 for policy in ("upstream", "followed")}
    assert missed["upstream"].mean() >= 0.05
    assert not missed["followed"].any()


def closed_loop(policy: str) -> Outcome:
    """Run a constant load of 800m at 70 % on pods of 99m, with whole controllers."""
    return play(Scenarios.draw(20, 5), 2.5, 0.0, (0, policy))


def test_whole_controllers_settle_on_one_size_where_upstreams_rules_run_to_the_maximum() -> None:
    upstream, coordinated = closed_loop("upstream"), closed_loop("followed")
    assert upstream.replicas[-1] == upstream.maximum
    assert coordinated.reversals <= 1.0
    assert coordinated.replicas[-1] == coordinated.replicas[-4] < coordinated.maximum / 2
    assert coordinated.sizes[-1] * coordinated.replicas[-1] == pytest.approx(800 / 0.7, rel=0.05)
    assert coordinated.short == 0.0


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(70, id="pods-that-take-four-minutes-to-start"),
        pytest.param(80, id="a-peak-one-percent-above-all-before"),
        pytest.param(190, id="noise-while-smaller-pods-are-announced"),
    ],
)
def test_noise_at_a_constant_load_neither_turns_the_count_around_nor_carries_it_away(row: int) -> None:
    """Workloads of four pods or less, where one pod more is a quarter more."""
    one = play(Scenarios.draw(200, 1), 4.0, 0.06, (row, "followed"))
    assert one.reversals <= 1.0
    assert not closed_loop_drifted(one)
    assert max(one.replicas) <= one.replicas[-1] + 1
    assert one.cost <= 1.05
