"""Half an hour of churn under the whole recommender: nothing grows with the pods that were."""

from datetime import timedelta

from soak.recommender_churn import ALIVE, CONTAINERS, REPLACED, soak


def test_half_an_hour_of_churn_leaves_nothing_behind_in_the_recommender() -> None:
    minute = timedelta(minutes=1)
    measures = soak(30 * minute, every=10 * minute)
    settled, last = measures[1], measures[-1]
    assert last.pods_seen == ALIVE + 60 * REPLACED
    # A loop that falls into the moment of a replacement may see a pod less.
    assert ALIVE - REPLACED <= last.pods <= ALIVE
    assert last.containers == last.pods * len(CONTAINERS)
    # Pods of Jobs had 2,000 label sets of their own by now; those that left count as one for each workload.
    assert last.aggregates <= settled.aggregates + 20
    assert last.objects <= settled.objects * 1.03
    assert last.memory_blocks <= settled.memory_blocks * 1.03
    assert last.resident_mib - settled.resident_mib < 5
    # What the pods that left have used is still known.
    assert last.samples > 2.5 * measures[0].samples
