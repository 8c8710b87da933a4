"""What the vertical side announced beside what the metrics ask for."""

import pytest

from kubetide.hpa.core.choice import ANNOUNCED, Choice, with_announced


def choice(replicas: int, *, active: bool = True) -> Choice:
    return Choice(active=active, replicas=replicas, reason="ValidMetricFound", message="", description="cpu")


@pytest.mark.parametrize(
    ("before", "announced", "replicas", "described"),
    [
        pytest.param(choice(3), 0, 3, "cpu", id="nothing-is-announced"),
        pytest.param(choice(3), 5, 5, ANNOUNCED, id="smaller-pods-are-waited-for"),
        pytest.param(choice(7), 5, 7, "cpu", id="load-that-takes-more-is-answered"),
        pytest.param(choice(5), 5, 5, "cpu", id="there-are-enough"),
        pytest.param(choice(0), 5, 0, "cpu", id="zero-stays-zero"),
        pytest.param(choice(3, active=False), 5, 3, "cpu", id="unknown-metrics-change-nothing"),
    ],
)
def test_a_count_is_at_least_what_was_announced(before: Choice, announced: int, replicas: int, described: str) -> None:
    found = with_announced(before, announced)
    assert (found.replicas, found.description) == (replicas, described)
    assert found.active == before.active
