"""Half an hour of churn, virtual time: nothing that the agent holds grows with the pods that were."""

from datetime import timedelta
from pathlib import Path

from soak.churn import PODS_AT_ONCE, grown, soak


def test_half_an_hour_of_churn_leaves_nothing_behind(tmp_path: Path) -> None:
    minute = timedelta(minutes=1)
    measures = soak(30 * minute, tmp_path, every=2 * minute, keep=5 * minute)
    last = measures[-1]
    assert last.pods_seen == 180
    assert last.known_pods <= PODS_AT_ONCE + 2
    # All is full twelve minutes after the start; from then on it must stay as it was in the six minutes after.
    settled = [one for one in measures if 12 <= round(one.hours * 60) <= 18]
    assert len(settled) == 4
    assert grown(settled, last) == []
