"""CPU requests follow each container at the cadence that pays for it."""

import numpy as np

from kubetide.stats.buckets import Floats
from kubetide.vpa.recommender.core.adaptive.cpu import LEAST_CORES, PERCENTILES, PRICE, CpuSizer
from kubetide.vpa.recommender.core.adaptive.hour import cpu_hour


def hour(*rows: float) -> Floats:
    """Twelve samples of each container."""
    return np.tile(np.array(rows), (12, 1))


def percentiles(value: float, size: int = 1) -> Floats:
    return np.full((len(PERCENTILES), size), value)


def run(samples: Floats, histogram: float, every: int = 1) -> tuple[Floats, Floats]:
    """Feed hours (hours, samples, containers); return the requests in force and what they cost."""
    sizer = CpuSizer(samples.shape[2])
    requests = np.full((samples.shape[0], samples.shape[2]), np.nan)
    for number, one in enumerate(samples):
        sizer.observe(cpu_hour(one, sizer.columns["request"][0]), day_ends=number % 24 == 23)
        if (number + 1) % every == 0:
            requests[number + 1 : number + 1 + every] = sizer.decide(percentiles(histogram, samples.shape[2]))
    have = requests[:, None, :]
    return requests, np.nansum(have + PRICE * np.maximum(samples - have, 0.0), axis=(0, 1))


def test_a_container_never_seen_gets_the_least() -> None:
    sizer = CpuSizer(2)
    sizer.observe(cpu_hour(hour(1.0, np.nan), sizer.columns["request"][0]), day_ends=False)
    request = sizer.decide(np.array([[1.0, 0.0]] * len(PERCENTILES)))
    assert request[1] == LEAST_CORES
    assert request[0] == 1.0


def test_constant_load_is_requested_exactly() -> None:
    requests, _ = run(np.full((72, 12, 1), 0.5), histogram=0.5)
    assert abs(requests[-1, 0] - 0.5) < 0.01


def test_lasting_peaks_are_followed_within_hours_both_ways() -> None:
    # Two days of work, five of rest: what a histogram calls p98 is wrong most of the time.
    hours = np.where(np.arange(24 * 21) % 168 < 48, 2.0, 0.1)
    samples = np.repeat(hours[:, None, None], 12, axis=1)
    requests, cost = run(samples, histogram=2.0)
    last_week = requests[-168:, 0]
    assert last_week[-24:].max() < 0.5
    assert last_week[24] > 1.9
    always_high = 2.0 * 12 * (len(hours) - 1)
    assert cost[0] < 0.75 * always_high


def test_noise_is_not_chased() -> None:
    # One sample in a hundred is a spike that never lasts: the percentile that ignores it is cheapest.
    rng = np.random.default_rng(7)
    samples = np.where(rng.random((24 * 14, 12, 1)) < 0.01, 4.0, 0.5)
    requests, _ = run(samples, histogram=0.5)
    assert np.median(requests[-48:, 0]) < 1.0


def test_rules_that_hold_for_an_hour_have_no_say_in_decisions_of_a_day() -> None:
    # Every day ends with a quiet hour, which short windows would take for the whole next day.
    hours = np.where(np.arange(24 * 10) % 24 == 23, 0.05, 0.5)
    requests, _ = run(np.repeat(hours[:, None, None], 12, axis=1), histogram=0.5, every=24)
    assert (requests[24:] >= 0.5).all()


def test_a_gap_keeps_the_last_proposals() -> None:
    sizer = CpuSizer(1)
    sizer.observe(cpu_hour(hour(1.0), sizer.columns["request"][0]), day_ends=False)
    before = sizer.decide(percentiles(1.0))
    for _ in range(30):
        sizer.observe(cpu_hour(hour(np.nan), sizer.columns["request"][0]), day_ends=False)
        after = sizer.decide(percentiles(1.0))
    assert after == before
