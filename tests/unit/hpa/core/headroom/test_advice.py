"""A count for what may come while a pod starts: learned, calm, and proven before it is trusted."""

import json
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest

from kubetide.errors import InvalidInput
from kubetide.hpa.core.headroom.advice import Advice, Headroom, Plants, Terms

TERMS = Terms()


def noise(count: int, low: float, high: float) -> list[float]:
    """Return numbers that look random and are the same everywhere."""
    state, out = 12345, []
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        out.append(low + (high - low) * state / 2**31)
    return out


def minutes(values: Iterable[float]) -> list[float]:
    """Return values that are new every minute."""
    return [value for value in values for _ in range(4)]


def followed(
    demands: Iterable[float],
    *,
    plain: Iterable[int] | None = None,
    floor: bool = False,
    learner: Headroom | None = None,
) -> tuple[list[Advice], list[bool]]:
    """Let a workload follow the advice; return it and whether each step was late."""
    headroom = learner or Headroom(TERMS, replicas=8, floor=floor)
    world = Plants(1, 8, TERMS)
    advice: list[Advice] = []
    late: list[bool] = []
    rule = iter(plain) if plain is not None else None
    for which, demand in enumerate(demands):
        was_late, _ = world.serve(demand)
        late.append(bool(was_late[0]))
        told = headroom.advise(
            which * 15,
            demand,
            ready=int(world.ready[0]),
            asked=int(world.asked[0]),
            plain=next(rule) if rule is not None else None,
        )
        world.scale(np.array([float(told.replicas)]))
        advice.append(told)
    return advice, late


def reversals(counts: list[int]) -> int:
    turns = [after > before for before, after in pairwise(counts) if after != before]
    return sum(one != other for one, other in pairwise(turns))


def test_a_pod_serves_after_its_start_time_and_is_paid_from_the_start() -> None:
    world = Plants(1, 1, TERMS)
    world.scale(np.array([3.0]))
    ready = []
    for _ in range(3):
        world.serve(0.5)
        ready.append(int(world.ready[0]))
    assert ready == [1, 3, 3]
    assert world.asked[0] == 3


def test_pods_that_still_start_are_given_up_first() -> None:
    world = Plants(1, 5, TERMS)
    world.scale(np.array([8.0]))
    world.scale(np.array([6.0]))
    assert world.ready[0] == 5
    world.scale(np.array([4.0]))
    assert (world.ready[0], world.starting.sum()) == (4, 0)


@pytest.mark.parametrize(
    ("demand", "late", "lost"),
    [
        pytest.param(2.0, False, 0.0, id="enough"),
        pytest.param(2.1, False, 0.0, id="a-wait-below-a-second"),
        pytest.param(2.2, True, 0.0, id="a-wait-above-a-second"),
        pytest.param(20.0, True, 10.0, id="a-wait-above-a-minute-is-lost"),
    ],
)
def test_work_that_waits_is_late_and_then_lost(demand: float, late: bool, lost: float) -> None:
    was_late, was_lost = Plants(1, 2, TERMS).serve(demand)
    assert (bool(was_late[0]), float(was_lost[0])) == (late, lost)


def test_smooth_demand_gets_little_more_than_it_needs() -> None:
    advice, late = followed([10.0 + 5 * abs((n % 1440) / 720 - 1) for n in range(3000)])
    paid = sum(one.replicas for one in advice[500:])
    needed = sum(one.forecast.value for one in advice[500:])
    assert paid < 1.15 * needed
    assert not any(late[500:])


def test_wild_demand_gets_more_than_smooth_demand_of_the_same_mean() -> None:
    smooth, _ = followed([10.0] * 1500)
    wild, late = followed(noise(1500, 5.0, 15.0))
    assert wild[-1].replicas >= smooth[-1].replicas + 3
    assert sum(late[500:]) < 20


def test_noise_of_small_counts_is_met_by_a_band_around_a_mean() -> None:
    advice, late = followed(minutes(noise(1500, 2.0, 14.0)))
    assert any("mean of" in one.rule for one in advice)
    counts = [one.replicas for one in advice[3000:]]
    assert sum(counts) < 16 * len(counts)
    assert sum(late[3000:]) < 0.005 * len(counts)
    assert reversals(counts) <= 2 * len(counts) / 240


def test_noise_around_a_level_does_not_make_it_flap() -> None:
    advice, _ = followed(noise(2400, 8.0, 12.0))
    counts = [one.replicas for one in advice[480:]]
    assert reversals(counts) <= 2 * len(counts) / 240


def test_a_backlog_is_worked_off_before_the_hold_matters() -> None:
    advice, late = followed([5.0] * 600 + [20.0] * 40)
    assert any(late[600:604])
    assert not any(late[606:])
    assert max(one.replicas for one in advice[600:603]) > 20


def test_counts_stay_within_their_bounds() -> None:
    terms = Terms(minimum=3, maximum=12)
    headroom = Headroom(terms, replicas=5)
    for which, demand in enumerate([0.0] * 300 + [50.0] * 50 + noise(300, 0.0, 30.0)):
        assert 3 <= headroom.advise(which * 15, demand, ready=5, asked=5).replicas <= 12


def test_the_same_demand_gives_the_same_counts() -> None:
    demands = noise(800, 1.0, 20.0)
    assert [one.replicas for one in followed(demands)[0]] == [one.replicas for one in followed(demands)[0]]


def test_what_is_to_come_changes_nothing_before() -> None:
    past = noise(500, 1.0, 20.0)
    one, _ = followed([*past, *[1.0] * 100])
    other, _ = followed([*past, *[19.0] * 100])
    assert [a.replicas for a in one[:500]] == [a.replicas for a in other[:500]]


def test_nothing_is_proven_without_a_plain_rule() -> None:
    assert not any(one.proven for one in followed(noise(600, 5.0, 15.0))[0])


def test_nothing_is_proven_in_the_first_hour() -> None:
    advice, _ = followed([10.0] * 400, plain=[40] * 400)
    assert not any(one.proven for one in advice[:239])
    assert advice[-1].proven


def rushes(count: int) -> tuple[list[float], list[int]]:
    """Return short rushes at times that nobody can foresee, and what a rule that knows them would ask for."""
    demands: list[float] = []
    for wait in noise(count, 30.0, 70.0):
        demands += [5.0] * int(wait) + [28.0] * 3
    return demands, [29 if max(demands[n : n + 4]) > 5 else 6 for n in range(len(demands))]


def test_a_plain_rule_that_knows_what_comes_is_never_overruled() -> None:
    demands, knowing = rushes(40)
    advice, _ = followed(demands, plain=knowing)
    assert not any(one.proven for one in advice)


def test_whoever_errs_goes_back_to_the_plain_rule() -> None:
    demands, knowing = rushes(40)
    advice, _ = followed([5.0] * 300 + demands, plain=[30] * 300 + knowing)
    assert advice[299].proven
    first = next(one for one in advice[300:] if not one.proven)
    assert first.plain_cost is not None
    assert first.cost > first.plain_cost
    assert not advice[-1].proven


def test_with_a_floor_no_count_is_below_the_plain_rule() -> None:
    plain = [int(value) for value in noise(800, 6.0, 18.0)]
    advice, _ = followed(noise(800, 1.0, 15.0), plain=plain, floor=True)
    assert all(one.replicas >= rule for one, rule in zip(advice, plain, strict=True))


def test_it_goes_on_from_what_was_saved_and_that_is_small() -> None:
    demands = noise(3000, 1.0, 20.0)
    learner = Headroom(TERMS, replicas=8)
    followed(demands, plain=[25] * 3000, learner=learner)
    text = json.dumps(learner.saved(), separators=(",", ":"))
    assert len(text) < 4096
    again = Headroom(TERMS, replicas=8)
    again.restore(json.loads(text))
    assert again.followed == learner.followed
    assert again.costs == pytest.approx(learner.costs, rel=1e-3)
    assert json.loads(text)["proven"] == again.saved()["proven"]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        pytest.param({"start": 60}, "start", id="another-start-time"),
        pytest.param({"costs": [1.0]}, "costs", id="other-candidates"),
        pytest.param({"costs": None}, "costs", id="no-costs"),
        pytest.param({"followed": 182}, "followed", id="no-such-candidate"),
        pytest.param({"rate": "x"}, "rate", id="text"),
        pytest.param({"errors": 1}, "errors", id="no-errors"),
        pytest.param({"forecasters": {}}, "errors", id="no-forecasters"),
        pytest.param({"bands": {"widths": [1.0], "count": [1]}}, "widths", id="other-bands"),
        pytest.param({"bands": None}, "bands", id="no-bands"),
    ],
)
def test_what_cannot_be_restored_changes_nothing(change: dict[str, object], names: str) -> None:
    learner = Headroom(TERMS, replicas=8)
    followed(noise(300, 1.0, 20.0), learner=learner)
    before = learner.saved()
    with pytest.raises(InvalidInput, match=names):
        learner.restore({**before, **change})
    assert learner.saved() == before
