"""Delays grow, stop growing, and are spread."""

import random

from kubetide.kube.pacing import Backoff, Retry


def test_delays_double_up_to_the_cap() -> None:
    backoff = Backoff(base=1, factor=2, cap=10, jitter=0)
    assert [backoff.delay(n) for n in range(6)] == [1, 2, 4, 8, 10, 10]


def test_the_hundredth_failure_does_not_overflow() -> None:
    assert Backoff(base=1, factor=10, cap=30, jitter=0).delay(100_000) == 30


def test_jitter_only_adds_and_at_most_its_share() -> None:
    backoff = Backoff(base=2, cap=2, jitter=0.5)
    rng = random.Random(1)
    delays = [backoff.delay(0, rng) for _ in range(200)]
    assert all(2 <= each < 3 for each in delays)
    assert len(set(delays)) > 100


def test_the_same_seed_gives_the_same_delays() -> None:
    first, second = (Retry(Backoff(), random.Random(7)) for _ in range(2))
    assert [first.next_delay() for _ in range(5)] == [second.next_delay() for _ in range(5)]


def test_a_success_starts_over() -> None:
    retry = Retry(Backoff(base=1, jitter=0), random.Random(0))
    assert [retry.next_delay(), retry.next_delay()] == [1, 2]
    retry.succeeded()
    assert retry.next_delay() == 1
