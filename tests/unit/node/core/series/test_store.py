"""The store of samples: what it drops, what it forgets."""

from datetime import UTC, datetime, timedelta

from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Ring
from kubetide.node.core.series.store import SeriesStore, key_of

START = datetime(2026, 1, 5, tzinfo=UTC)


def test_a_sample_that_is_no_number_costs_only_itself() -> None:
    store = SeriesStore(Ring())
    good = store.append("node", 1.0, START, [(key_of(kinds.NODE_CPU), float("nan")), (key_of(kinds.NODE_MEMORY), 5.0)])
    assert (good, store.dropped) == (1, 1)


def test_identities_go_with_the_series_they_name() -> None:
    key_of.cache_clear()
    store = SeriesStore(Ring(retention_seconds=16))
    for second in range(40):
        uid = (kinds.POD_UID, f"pod-{second}")
        store.append("pods", 1.0, START + timedelta(seconds=second), [(key_of(kinds.POD_CPU, uid), 1.0)])
        if second % 10 == 9:
            store.expire()
    assert store.ring.series_count <= 26
    assert key_of.cache_info().currsize <= 26
