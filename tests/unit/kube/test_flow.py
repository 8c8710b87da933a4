"""The token bucket: a burst at once, then the rate."""

from kubetide.kube.pacing import TokenBucket


def test_a_burst_passes_at_once_and_the_rest_at_the_rate() -> None:
    bucket = TokenBucket(qps=10, burst=3)
    assert [bucket.reserve(0) for _ in range(3)] == [0, 0, 0]
    assert [round(bucket.reserve(0), 6) for _ in range(3)] == [0.1, 0.2, 0.3]


def test_a_pause_fills_the_bucket_up_to_its_size() -> None:
    bucket = TokenBucket(qps=10, burst=3)
    for _ in range(3):
        bucket.reserve(0)
    assert [bucket.reserve(1000) for _ in range(3)] == [0, 0, 0]
    assert bucket.reserve(1000) > 0


def test_what_is_not_allowed_costs_nothing() -> None:
    bucket = TokenBucket(qps=1, burst=1)
    assert bucket.allow(0)
    assert not any(bucket.allow(0.5) for _ in range(10))
    assert bucket.allow(1.0)


def test_a_clock_that_goes_back_gives_no_tokens() -> None:
    bucket = TokenBucket(qps=1, burst=1)
    assert bucket.allow(10)
    assert not bucket.allow(5)
    assert not bucket.allow(10.5)
