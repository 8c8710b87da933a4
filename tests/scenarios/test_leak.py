"""Pods that leak towards limits of 512Mi: who is OOM killed, and how soon memory that runs out is raised."""

from simulated.leak import measure


def test_pods_that_leak_are_given_more_before_they_are_oom_killed() -> None:
    """The fastest leaks, of workloads with one replica, which are left alone by default."""
    with_it, without = (measure(pods=10, hours=1.1, slowest=450, resize=on) for on in (True, False))
    assert without.oom_kills >= 10
    assert (with_it.oom_kills, with_it.evictions) == (0, 0)
    assert len(with_it.latencies) >= 10
    assert with_it.latency(0.99) <= 2.0
