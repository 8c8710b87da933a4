"""Half an hour of churn, virtual time: nothing that the agent holds grows with the pods that were."""

from datetime import timedelta
from pathlib import Path

from soak.churn import PODS_AT_ONCE, soak


def test_half_an_hour_of_churn_leaves_nothing_behind(tmp_path: Path) -> None:
    measures = soak(timedelta(minutes=30), tmp_path, every=timedelta(minutes=10))
    first, last = measures[0], measures[-1]
    assert last.pods_seen == 180
    assert last.restarts == 0
    assert last.known_pods <= PODS_AT_ONCE + 2
    assert last.descriptors <= first.descriptors
    assert last.agent_objects - last.series <= (first.agent_objects - first.series) * 1.5
    assert last.executor_entries <= first.executor_entries * 1.5 + 50
    assert last.telemetry_lines <= first.telemetry_lines * 1.5
