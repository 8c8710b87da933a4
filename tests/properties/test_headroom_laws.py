"""Laws of learned headroom: within bounds, silent until proven, never below the plain rule unless allowed."""

import json
from datetime import timedelta
from math import ceil
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.hpa.core.annotations import HeadroomMode, overrides_of
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.headroom.advice import Headroom, Terms
from kubetide.hpa.core.observation import Memory
from unit.hpa.worlds import NOW, hpa, learned, observation, reading, turn

HOUR = 240
"""Steps of 15 s."""

seeds = st.integers(0, 2**32 - 1).map(Random)
bounds = st.tuples(st.integers(1, 10), st.integers(0, 60)).map(lambda found: (found[0], found[0] + found[1]))


@settings(max_examples=12, deadline=None)
@given(seeds, bounds, st.floats(1.1, 4.0), st.booleans())
def test_advice_is_silent_for_an_hour_and_then_only_while_it_is_cheaper(
    rng: Random, limits: tuple[int, int], reserve: float, floor: bool
) -> None:
    least, most = limits
    headroom = Headroom(Terms(minimum=least, maximum=most), replicas=least, floor=floor)
    level, asked = rng.uniform(0.5, most), least
    for step in range(HOUR + 160):
        if rng.random() < 0.02:
            level = rng.uniform(0.0, 1.3 * most)
        demand = level * rng.uniform(0.8, 1.2)
        plain = min(max(ceil(demand * reserve), least), most)
        advice = headroom.advise(step * 15, demand, ready=asked, asked=asked, plain=plain)
        assert least <= advice.replicas <= most
        assert not (advice.proven and step < HOUR - 1)
        if advice.proven:
            assert advice.plain_cost is not None
            assert advice.cost <= advice.plain_cost
        if floor:
            assert advice.replicas >= plain
        asked = advice.replicas if advice.proven else plain


@settings(max_examples=6, deadline=None)
@given(seeds, st.integers(20, 2 * HOUR))
def test_a_restart_forgets_nothing_of_what_is_saved(rng: Random, steps: int) -> None:
    learner = Headroom(Terms(), replicas=5)
    for step in range(steps):
        demand = rng.uniform(2.0, 12.0)
        learner.advise(step * 15, demand, ready=5, asked=5, plain=ceil(demand / 0.5))
    text = json.dumps(learner.saved(), separators=(",", ":"))
    again = Headroom(Terms(), replicas=5)
    again.restore(json.loads(text))
    assert json.loads(json.dumps(again.saved())) == json.loads(text)
    assert len(text) < 4096


BEHAVIORS = st.sampled_from(
    [
        None,
        {"scaleDown": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}},
        {"scaleUp": {"policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}], "selectPolicy": "Min"}},
        {"scaleDown": {"selectPolicy": "Disabled"}, "scaleUp": {"stabilizationWindowSeconds": 120}},
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    BEHAVIORS,
    st.sampled_from(list(HeadroomMode)),
    st.lists(st.tuples(st.integers(0, 200), st.integers(1, 40), st.booleans()), min_size=1, max_size=25),
)
def test_what_is_decided_is_never_below_the_plain_decision_unless_allowed(
    behavior: dict[str, object] | None, mode: HeadroomMode, story: list[tuple[int, int, bool]]
) -> None:
    autoscaler = hpa(minimum=2, maximum=25, behavior=behavior)
    memory, current = Memory(recommendations=()), 4
    for number, (usage, count, proven) in enumerate(story):
        now = NOW + number * timedelta(seconds=15)
        seen = observation(autoscaler, current, [reading(*[usage] * current, at=now)])
        plain = turn(seen, memory, now=now)
        told = turn(msgspec.structs.replace(seen, learned=learned(count, proven=proven, mode=mode)), memory, now=now)
        assert 2 <= told.desired <= 25
        if not proven:
            assert told.desired == plain.desired
        if mode is HeadroomMode.LEARNED:
            assert told.desired >= plain.desired
        memory, current = conclude(told).memory, told.desired


@given(
    st.sampled_from(["learned", "learned-below"]),
    st.text(max_size=8).filter(lambda text: text != "on"),
)
def test_whatever_the_kill_switch_says_but_on_nothing_learned_decides(asked: str, switch: str) -> None:
    found = overrides_of({"kubetide.io/hpa-headroom": asked, "kubetide.io/learned": switch})
    assert found.headroom is None
    assert found.killed == f"annotation kubetide.io/learned: {switch}"
    assert bool(found.problems) == (switch != "off")
