"""The ring of recent samples: windows, churn, bounded memory."""

import numpy as np
import pytest

from kubetide.node.core.series import kinds
from kubetide.node.core.series.kinds import SeriesError
from kubetide.node.core.series.ring import CHUNK_ROWS, Ring, series_key

NODE = series_key(kinds.NODE_CPU)


def pod(uid: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return series_key(kinds.POD_CPU, {kinds.POD_UID: uid})


def test_a_window_is_closed_at_both_ends() -> None:
    ring = Ring()
    for second in range(10):
        ring.append("node", 1.0, second * 1000, [(NODE, float(second))])
    points = ring.query(kinds.NODE_CPU, None, 2000, 5000)
    assert points.values.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert points.span_millis == 3000


def test_the_ring_forgets_what_is_older_than_its_length() -> None:
    ring = Ring(retention_seconds=20)
    for second in range(50):
        ring.append("node", 1.0, second * 1000, [(NODE, float(second))])
    assert ring.query(kinds.NODE_CPU, None, 0, 10**9).values.tolist() == [float(n) for n in range(30, 50)]


def test_a_missing_sample_is_not_zero() -> None:
    ring = Ring()
    ring.append("pods", 1.0, 1000, [(pod("a"), 1.0), (pod("b"), 5.0)])
    ring.append("pods", 1.0, 2000, [(pod("a"), 2.0)])
    assert ring.query(kinds.POD_CPU, {kinds.POD_UID: "b"}, 0, 9000).values.tolist() == [5.0]


def test_a_query_without_properties_covers_all_series() -> None:
    ring = Ring()
    ring.append("pods", 1.0, 1000, [(pod("a"), 1.0), (pod("b"), 5.0)])
    ring.append("pods", 1.0, 4000, [(pod("b"), 6.0)])
    points = ring.query(kinds.POD_CPU, None, 0, 9000)
    assert sorted(points.values.tolist()) == [1.0, 5.0, 6.0]
    assert points.span_millis == 3000, "the span is that of the last series read"


def test_rows_come_back_when_pods_are_gone() -> None:
    ring = Ring(retention_seconds=20)
    for generation in range(100):
        names = [f"{generation}-{number}" for number in range(20)]
        for tick in range(5):
            at = (generation * 5 + tick) * 1000
            ring.append("pods", 1.0, at, [(pod(name), float(tick)) for name in names])
        ring.expire()
    assert ring.series_count <= 20 * 6
    assert ring.nbytes <= (20 * 6 / CHUNK_ROWS + 2) * CHUNK_ROWS * 20 * 8


def test_a_reused_row_starts_empty() -> None:
    ring = Ring(retention_seconds=16)
    ring.append("pods", 1.0, 0, [(pod("old"), 1.0)])
    for second in range(1, 40):
        ring.append("pods", 1.0, second * 1000, [])
    ring.expire()
    ring.append("pods", 1.0, 40_000, [(pod("new"), 7.0)])
    assert ring.query(kinds.POD_CPU, {kinds.POD_UID: "new"}, 0, 10**9).values.tolist() == [7.0]
    assert len(ring.query(kinds.POD_CPU, {kinds.POD_UID: "old"}, 0, 10**9)) == 0


def test_series_of_a_kind_are_found_by_one_property() -> None:
    ring = Ring()
    ring.append("pods", 1.0, 1000, [(pod("a"), 1.0), (pod("b"), 5.0)])
    found = ring.query_each(kinds.POD_CPU, kinds.POD_UID, 0, 9000)
    assert {name: points.values.tolist() for name, points in found.items()} == {"a": [1.0], "b": [5.0]}


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        pytest.param("nonsense", {}, id="unknown-kind"),
        pytest.param(kinds.POD_CPU, {}, id="missing-property"),
        pytest.param(kinds.NODE_CPU, {"pod_uid": "a"}, id="foreign-property"),
    ],
)
def test_samples_must_fit_their_kind(kind: str, properties: dict[str, str]) -> None:
    with pytest.raises(SeriesError):
        series_key(kind, properties)


def test_last_is_by_time_and_not_by_order() -> None:
    ring = Ring()
    ring.append("node", 1.0, 5000, [(NODE, 5.0)])
    ring.append("node", 1.0, 3000, [(NODE, 3.0)])
    assert ring.query(kinds.NODE_CPU, None, 0, 9000).aggregate("last") == 5.0


def test_aggregates_match_a_plain_calculation() -> None:
    ring = Ring()
    values = np.random.default_rng(7).random(500)
    for second, value in enumerate(values):
        ring.append("node", 1.0, second * 1000, [(NODE, float(value))])
    points = ring.query(kinds.NODE_CPU, None, 0, 10**9)
    assert points.aggregate("avg") == pytest.approx(values.mean())
    assert points.aggregate("p50") == np.sort(values)[249]
    assert points.aggregate("count") == 500
