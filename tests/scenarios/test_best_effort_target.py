"""Some time on a shared node with bursts: a target for the latency-sensitive pod beside the fixed threshold."""

from benchmarks.best_effort_agent import play, policies

HOURS = 0.25
BURSTS = 2.0
SEED = 3


def test_a_target_gives_best_effort_work_its_cpu_without_hurting_its_neighbour() -> None:
    target = "pressure=5"
    alone, unlimited, fixed, controlled = (play(HOURS, BURSTS, target, (SEED, name)) for name in policies(target))
    assert alone.best_effort_percent == 0.0
    assert alone.slower_p999 == 1.0, "the node alone has room for its pod"
    assert unlimited.over_percent > 5.0, "the bursts are such that a neighbour hurts"
    assert controlled.best_effort_percent > 0.9 * fixed.best_effort_percent
    assert fixed.over_percent < unlimited.over_percent / 10
    assert controlled.over_percent < unlimited.over_percent / 10
