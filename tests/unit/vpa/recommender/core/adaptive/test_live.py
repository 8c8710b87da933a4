"""A fleet that lives: loops add up to hours, containers come and go, and a state goes on where it stopped."""

import numpy as np
import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.errors import InvalidInput
from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.recommender.core.adaptive.cpu import PERCENTILES
from kubetide.vpa.recommender.core.adaptive.hour import RunningHour, cpu_hour, memory_hour
from kubetide.vpa.recommender.core.adaptive.live import Key, LiveFleet, Seed, Way
from kubetide.vpa.recommender.core.adaptive.saved import State, read_state, state_text

MIB = 2.0**20
ONE, TWO = Way(limit_apart=False, daily=False), Way(limit_apart=True, daily=False)


def keys(count: int) -> list[Key]:
    return [Key(ObjectKey("default", f"web-{number:02}"), "main") for number in range(count)]


def fleet(way: Way, count: int, hour: int = 0, found: dict[Key, State] | None = None) -> LiveFleet:
    made = LiveFleet(way, hour)
    listed = keys(count)
    made.arrange(listed, found or {}, {})
    made.link({key: [slot] for slot, key in enumerate(listed)}, count)
    return made


def loops(made: LiveFleet, hours: int, *, seed: int = 1, start: int = 0) -> None:
    """Let hours pass with four loops each."""
    rng = np.random.default_rng(seed)
    slots: Ints = np.arange(len(made.keys))
    for hour in range(start, start + hours):
        for _ in range(4):
            used: Floats = rng.random(slots.size) + 0.1
            made.add_cpu(slots, used)
            made.add_memory(slots, used * 500.0 * MIB)
        due = made.close(hour + 1)
        made.decide(np.full((len(PERCENTILES), slots.size), 0.5) if due else None)


def test_an_hour_of_loops_comes_to_what_its_samples_come_to() -> None:
    rng = np.random.default_rng(3)
    samples = rng.random((12, 5))
    request = np.full(5, 0.5)
    running = RunningHour(5)
    for line in samples:
        running.add_cpu(np.arange(5), line, request)
        running.add_memory(np.arange(5), line)
    cpu, memory = running.close()
    wanted, wanted_memory = cpu_hour(samples, request), memory_hour(samples)
    for name in ("count", "above", "peak", "high"):
        assert (getattr(cpu, name) == getattr(wanted, name)).all(), name
    assert cpu.total == pytest.approx(wanted.total)
    assert (memory.peak == wanted_memory.peak).all()
    assert np.isnan(running.columns["cpu peak"]).all()


def test_replicas_are_samples_of_one_workload() -> None:
    running = RunningHour(1)
    for _ in range(3):
        running.add_cpu(np.array([0, 0, 0]), np.array([0.1, 0.2, 0.6]), np.array([0.3]))
    cpu, _ = running.close()
    assert (cpu.count[0], cpu.above[0], cpu.peak[0]) == (9, 3, 0.6)
    assert cpu.high[0] == pytest.approx(0.3)


@pytest.mark.parametrize("way", [ONE, TWO], ids=["one-number", "two-numbers"])
def test_a_container_that_comes_or_goes_leaves_the_others_as_they_are(way: Way) -> None:
    made = fleet(way, 4)
    loops(made, 5)
    before = {key: made.state(key).numbers for key in made.keys}
    made.arrange([*keys(6)[:1], *keys(6)[2:]], {}, {})
    assert made.keys == (*keys(6)[:1], *keys(6)[2:])
    for key in (keys(6)[0], keys(6)[2], keys(6)[3]):
        assert np.array_equal(made.state(key).numbers, before[key], equal_nan=True)


@pytest.mark.parametrize("way", [ONE, TWO], ids=["one-number", "two-numbers"])
def test_states_go_on_whatever_the_order_in_which_they_are_found(way: Way) -> None:
    first = fleet(way, 25)
    loops(first, 30)
    texts = {key: state_text(first.state(key)) for key in reversed(first.keys)}
    second = fleet(way, 25, hour=30, found={key: read_state(text) for key, text in texts.items()})
    second.adaptive.load_fleet(first.adaptive.save_fleet())
    for made in (first, second):
        loops(made, 30, seed=2, start=30)
    one, other = first.adaptive.in_force(), second.adaptive.in_force()
    assert (one.cpu == other.cpu).all()
    assert (one.memory == other.memory).all()
    assert max(map(len, texts.values())) < 2500


def test_hours_in_which_nobody_looked_are_hours_without_samples() -> None:
    made = fleet(ONE, 2)
    loops(made, 3)
    late = fleet(ONE, 2, hour=7, found={key: made.state(key) for key in made.keys})
    for _ in range(4):
        made.close(made.hour + 1)
    assert all(np.array_equal(made.state(key).numbers, late.state(key).numbers, equal_nan=True) for key in made.keys)


def test_a_container_whose_memory_becomes_one_number_keeps_the_rest() -> None:
    made = fleet(TWO, 2)
    loops(made, 3)
    other = fleet(ONE, 2, hour=3, found={key: made.state(key) for key in made.keys})
    assert (other.adaptive.cpu.columns["request"] == made.adaptive.cpu.columns["request"]).all()
    assert (other.adaptive.in_force().memory == 0.0).all()


def test_an_oom_kill_holds_memory_for_weeks_and_fades() -> None:
    made = fleet(ONE, 2)
    loops(made, 30)
    made.add_oom(0, 4000.0 * MIB)
    loops(made, 3, start=30)
    assert made.adaptive.in_force().memory[0] >= 4000.0 * MIB
    assert made.adaptive.in_force().memory[1] < 2000.0 * MIB
    assert made.adaptive.distrust.floor()[0] > 0.0
    for _ in range(24 * 7):
        made.adaptive.distrust.fade()
    assert made.adaptive.distrust.floor()[0] > 0.0
    for _ in range(24 * 14):
        made.adaptive.distrust.fade()
    assert made.adaptive.distrust.floor()[0] == 0.0


def test_a_warm_start_knows_the_peaks_of_the_plain_histogram() -> None:
    made = LiveFleet(ONE, 0)
    (key,) = keys(1)
    made.arrange([key], {}, {key: Seed(2.0, (100.0 * MIB, 200.0 * MIB, 900.0 * MIB))})
    assert made.decide(None).memory[0] >= 900.0 * MIB


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("9 one 3 AAAA", id="another-version"),
        pytest.param("1 one -3 AAAA", id="an-hour-before-1970"),
        pytest.param("1 one 3 !!!!", id="no-base64"),
        pytest.param("1 one 3 AAAA", id="not-packed"),
        pytest.param(state_text(State(False, 3, np.array([np.inf]))), id="infinite"),
        pytest.param(state_text(State(False, 3, np.ones(100_000))), id="a-bomb"),
    ],
)
def test_a_text_that_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="adaptive state"):
        read_state(text)
