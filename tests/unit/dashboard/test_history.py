"""What was seen stays within its bounds, from the beginning, without losing a peak of memory."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.objects.meta import ObjectKey
from kubetide.dashboard.core.history import FIELDS, MOST_LINES, MOST_SPACING, History, Series, joined
from kubetide.dashboard.core.looks import results
from unit.verdicts.town import NOW, Town

WEB = ("Deployment", ObjectKey("shop", "web"))


def filled(history: History, memories: list[int], *, step: float = 15.0) -> History:
    """Add a sample per value, `step` seconds apart, of two pods that use so many MiB each."""
    town = Town()
    for number, memory in enumerate(memories):
        for one in town.all("PodMetrics"):
            one["containers"][0]["usage"]["memory"] = f"{memory}Mi"
        view = replace(town.view(), now=NOW + timedelta(seconds=number * step))
        history.add(view, results(view).rows)
    return history


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 4000), min_size=1, max_size=24))
def test_however_long_it_lasts_it_begins_at_the_beginning_and_keeps_the_peak_of_memory(memories: list[int]) -> None:
    history = filled(History(steps=8), memories)
    series = history.of(WEB)
    assert series is not None
    assert len(series.times) <= 8
    assert series.times[0] - NOW.timestamp() <= history.spacing
    # Samples that came before the spacing had passed were not taken; what was taken keeps its peak.
    taken = {2 * memory * 2**20 for memory in memories}
    assert float(np.nanmax(series["memory_used"])) in taken
    assert np.all(np.diff(series.times) > 0)


def test_folding_takes_the_peak_of_memory_and_the_mean_of_cpu() -> None:
    history = filled(History(steps=4), [100, 900, 100, 100, 100])
    series = history.of(WEB)
    assert series is not None
    assert history.spacing == 30.0
    assert series["memory_used"].tolist() == [2 * 900 * 2**20, 2 * 100 * 2**20, 2 * 100 * 2**20]
    assert np.allclose(series["cpu_used"], 0.486)


def test_a_sample_before_its_time_is_not_taken() -> None:
    assert len(filled(History(), [1, 2, 3], step=5.0).times) == 1


def test_from_ten_minutes_on_the_oldest_half_goes() -> None:
    history = filled(History(steps=4, spacing=MOST_SPACING), [1, 2, 3, 4, 5], step=MOST_SPACING)
    assert history.spacing == MOST_SPACING
    series = history.of(WEB)
    assert series is not None
    assert (series["memory_used"] / 2**21).tolist() == [3.0, 4.0, 5.0]


def test_the_sum_counts_what_is_asked_for_where_nothing_is_recommended() -> None:
    fleet = filled(History(), [100]).fleet()
    assert fleet is not None
    assert fleet["cpu_best"].tolist() == [1.0]  # no recommendation of CPU: the request
    assert fleet["memory_best"].tolist() == [2 * 128 * 2**20]


def test_usage_of_a_container_is_on_an_even_grid_with_gaps_where_nothing_was_measured() -> None:
    history, town = History(), Town()
    for number in (0, 1, 2, 3, 5, 100):
        view = replace(town.view(), now=NOW + timedelta(seconds=number * 20))
        history.add(view, results(view).rows)
    usage = history.usage(WEB, "main")
    assert usage is not None
    assert usage.pods == ("web-1a-x", "web-1a-y")
    measured = np.isfinite(usage.cpu).all(axis=1)
    # The look that was late leaves no hole; a value counts for two minutes at most, then nothing is known.
    first = int(NOW.timestamp() - usage.start) // usage.step
    assert np.flatnonzero(measured).tolist() == [first + place for place in (*range(12), 100)]
    assert history.usage(WEB, "other") is None


def test_the_grid_of_usage_stays_bounded_however_long_nobody_looked() -> None:
    history, town = History(), Town()
    for seconds in (0, 15, 30, 45, 90 * 86400):
        view = replace(town.view(), now=NOW + timedelta(seconds=seconds))
        history.add(view, results(view).rows)
    usage = history.usage(WEB, "main")
    assert usage is not None
    assert len(usage.cpu) <= MOST_LINES + 2


def test_a_pod_that_is_long_gone_leaves_no_column_behind() -> None:
    history, town = History(steps=4), Town()
    for number in range(40):
        for one in (*town.all("Pod"), *town.all("PodMetrics")):
            one["metadata"]["name"] = f"web-{number}-{one['metadata']['name'][-1]}"
        view = replace(town.view(), now=NOW + timedelta(seconds=number * MOST_SPACING))
        history.add(view, results(view).rows)
    usage = history.usage(WEB, "main")
    assert usage is not None
    assert len(usage.pods) <= 8


def test_what_another_source_knows_comes_before_what_was_seen() -> None:
    seen = filled(History(), [100, 200]).of(WEB)
    assert seen is not None
    begin = seen.times[0]
    times = np.array([begin - 60, begin - 30, begin, begin + 60])
    past = Series(times, {name: np.full(4, 7.0) for name in FIELDS})
    both = joined(past, seen)
    assert both is not None
    assert both.times.tolist() == [begin - 60, begin - 30, *seen.times]
    assert both["memory_used"].tolist() == [7.0, 7.0, *seen["memory_used"]]
    assert joined(None, seen) is seen
    assert joined(past, None) is past
    assert joined(None, None) is None
