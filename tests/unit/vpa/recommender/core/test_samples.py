from datetime import timedelta

import numpy as np
import pytest

from kubetide.stats.instants import ZERO_TIME
from kubetide.vpa.recommender.core.aggregate import Aggregates, Tuning
from kubetide.vpa.recommender.core.samples import Containers

START = 1_767_600_000_000_000
MINUTE, DAY = 60_000_000, 86_400_000_000
MIB = 1024 * 1024


def table(tuning: Tuning | None = None) -> tuple[Aggregates, Containers, int, int]:
    aggregates = Aggregates(tuning or Tuning())
    containers = Containers(aggregates)
    slot = aggregates.allocate(START)
    return aggregates, containers, slot, containers.allocate(slot)


def memory(containers: Containers, row: int, at: int, mib: int) -> bool:
    return bool(containers.add_memory(np.array([row]), np.array([at]), np.array([mib * MIB]))[0])


def cpu(containers: Containers, row: int, at: int, millis: int) -> bool:
    return bool(containers.add_cpu(np.array([row]), np.array([at]), np.array([millis]))[0])


def peak(containers: Containers, row: int) -> float:
    """Return the peak of the running window."""
    return float(max(containers.peak[row], containers.oom_peak[row]))


def peaks(aggregates: Aggregates, slot: int) -> int:
    """Return how many peaks the memory histogram holds, by its weight as of one window end."""
    block = aggregates.memory.select(np.array([slot]))
    reference = block.reference[0]
    return round(float(block.total[0]) / float(2.0 ** ((START + DAY - reference) / DAY)))


def test_cpu_samples_must_move_forward_in_time() -> None:
    aggregates, containers, slot, row = table()
    assert cpu(containers, row, START, 100)
    assert not cpu(containers, row, START, 100)
    assert not cpu(containers, row, START - MINUTE, 100)
    assert not cpu(containers, row, START + MINUTE, -5)
    assert cpu(containers, row, START + MINUTE, 0)
    assert aggregates.count[slot] == 2
    assert (aggregates.first[slot], aggregates.last[slot]) == (START, START + MINUTE)


def test_a_window_holds_one_peak_that_is_replaced_as_it_grows() -> None:
    aggregates, containers, slot, row = table()
    for step, mib in enumerate((100, 80, 200, 150, 300)):
        assert memory(containers, row, START + step * MINUTE, mib)
    assert peaks(aggregates, slot) == 1
    assert peak(containers, row) == 300 * MIB
    assert memory(containers, row, START + DAY, 50)
    assert peak(containers, row) == 50 * MIB
    assert containers.window_end[row] == START + 2 * DAY


def test_a_gap_of_days_opens_the_window_that_holds_now() -> None:
    _, containers, _, row = table()
    memory(containers, row, START, 100)
    memory(containers, row, START + 3 * DAY + MINUTE, 100)
    assert containers.window_end[row] == START + 4 * DAY


def test_equal_times_are_fine_for_memory_and_older_ones_are_not() -> None:
    _, containers, _, row = table()
    assert memory(containers, row, START, 100)
    assert memory(containers, row, START, 120)
    assert not memory(containers, row, START - 1, 500)
    assert not memory(containers, row, START + 1, -1)


def test_an_oom_kill_raises_the_peak_by_ratio_or_minimum() -> None:
    _, containers, _, row = table()
    memory(containers, row, START, 100)
    assert containers.add_oom(row, START + MINUTE, 64 * MIB)
    assert containers.oom_peak[row] == 200 * MIB
    _, containers, _, row = table()
    memory(containers, row, START, 1000)
    assert containers.add_oom(row, START + MINUTE, 64 * MIB)
    assert containers.oom_peak[row] == 1200 * MIB


def test_a_second_kill_starts_from_usage_and_not_from_the_first_bump() -> None:
    _, containers, _, row = table()
    memory(containers, row, START, 100)
    containers.add_oom(row, START + MINUTE, 64 * MIB)
    assert containers.add_oom(row, START + 2 * MINUTE, 64 * MIB)
    assert peak(containers, row) == 200 * MIB


@pytest.mark.parametrize(
    ("from_window", "before", "counts"),
    [
        pytest.param(False, MINUTE, True, id="shortly-before-the-window-opened"),
        pytest.param(False, DAY, True, id="an-interval-before-the-last-sample"),
        pytest.param(False, DAY + 1, False, id="longer-ago"),
        pytest.param(True, MINUTE, False, id="lost-by-the-rule-of-1.7"),
    ],
)
def test_an_oom_kill_is_too_old_an_interval_before_the_last_sample(
    from_window: bool, before: int, counts: bool
) -> None:
    aggregates = Aggregates(Tuning())
    containers = Containers(aggregates, oom_age_from_window=from_window)
    row = containers.allocate(aggregates.allocate(START))
    memory(containers, row, START, 100)
    assert containers.add_oom(row, START - before, 500 * MIB) is counts
    assert (peak(containers, row) > 500 * MIB) is counts


def test_an_oom_kill_may_open_the_first_window() -> None:
    aggregates, containers, slot, row = table()
    assert containers.add_oom(row, START, 500 * MIB)
    assert containers.window_end[row] == START + DAY
    assert peaks(aggregates, slot) == 1


def test_a_tuned_aggregate_has_its_own_windows_and_bumps() -> None:
    aggregates, containers, _, _ = table()
    tuned = Tuning(interval=timedelta(hours=1), oom_ratio=3.0, oom_min_bytes=0.0, cpu_half_life=timedelta(hours=6))
    row = containers.allocate(aggregates.allocate(START, tuned))
    memory(containers, row, START, 100)
    assert containers.window_end[row] == START + DAY // 24
    assert containers.oom_need(row, 0) == 300 * MIB


def test_many_samples_of_one_container_in_one_batch_are_taken_in_order() -> None:
    aggregates, containers, slot, row = table()
    times = START + np.arange(5) * MINUTE
    accepted = containers.add_cpu(np.full(5, row), times[[0, 2, 1, 3, 3]], np.full(5, 100))
    assert accepted.tolist() == [True, True, False, True, False]
    accepted = containers.add_memory(np.full(3, row), times[[0, 1, 2]], np.array([10, 30, 20]) * MIB)
    assert accepted.tolist() == [True] * 3
    assert peak(containers, row) == 30 * MIB
    assert peaks(aggregates, slot) == 1


def test_a_freed_row_comes_back_blank() -> None:
    _, containers, slot, row = table()
    memory(containers, row, START, 100)
    containers.free(row)
    again = containers.allocate(slot)
    assert again == row
    assert peak(containers, again) == 0.0
    assert containers.window_end[again] == ZERO_TIME


def test_every_cpu_sample_weighs_the_same() -> None:
    aggregates, containers, slot, row = table()
    midnight = START - START % DAY + DAY
    for step, millis in enumerate((1, 100, 64_000)):
        assert cpu(containers, row, midnight + step, millis)
    block = aggregates.cpu.select(np.array([slot]))
    assert block.reference[0] == midnight
    assert sorted(round(float(weight), 6) for weight in block.weights[:, 0] if weight) == [0.1, 0.1, 0.1]


def test_a_window_that_opens_with_nothing_stays_at_nothing() -> None:
    """As in the original: a peak of zero is not replaced, so growth and kills of that window are not seen."""
    _, containers, _, row = table()
    assert memory(containers, row, START, 0)
    assert memory(containers, row, START + MINUTE, 500)
    assert containers.add_oom(row, START + 2 * MINUTE, 500 * MIB)
    assert peak(containers, row) == 0
    assert memory(containers, row, START + DAY, 500)
    assert peak(containers, row) == 500 * MIB


def test_an_oom_kill_may_turn_the_clock_of_memory_back() -> None:
    _, containers, _, row = table()
    assert memory(containers, row, START, 100)
    assert memory(containers, row, START + 10 * MINUTE, 100)
    assert not memory(containers, row, START + 5 * MINUTE, 100)
    assert containers.add_oom(row, START + MINUTE, 64 * MIB)
    assert memory(containers, row, START + 5 * MINUTE, 100)
