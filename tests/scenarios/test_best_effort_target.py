"""Some time on a shared node with bursts: a target for the latency-sensitive pod beside the fixed threshold."""

from benchmarks.best_effort_agent import play, policies

MINUTES = 15


def test_a_target_gives_best_effort_work_its_cpu_without_hurting_its_neighbour() -> None:
    target = "pressure=5"
    alone, fixed, controlled = (play(MINUTES * 60, target, (1, name))[2] for name in policies(target))
    assert alone.best_effort_percent == 0.0
    assert controlled.best_effort_percent > 0.9 * fixed.best_effort_percent
    assert alone.slower_p99 <= fixed.slower_p99
    assert controlled.slower_p99 < 1.25 * fixed.slower_p99
