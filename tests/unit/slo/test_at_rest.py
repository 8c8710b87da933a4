"""Which nodes need no look."""

from datetime import UTC, datetime, timedelta

import pytest

from kubetide.slo.at_rest import AtRest, Basis

NOW = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NODE, REPORT = {"name": "node"}, {"report": 1}


@pytest.mark.parametrize(
    ("basis", "later", "expected"),
    [
        pytest.param((NODE, 1000, REPORT), MINUTE, True, id="the-very-same-objects"),
        pytest.param((NODE, 1000, REPORT), 2 * MINUTE, False, id="steady-no-longer"),
        pytest.param((dict(NODE), 1000, REPORT), MINUTE, False, id="an-equal-object-is-another-version"),
        pytest.param((NODE, 1001, REPORT), MINUTE, False, id="a-pod-changed"),
        pytest.param((NODE, 1000, None), MINUTE, False, id="the-report-is-gone"),
    ],
)
def test_a_node_rests_while_what_it_was_decided_on_stays(basis: Basis, later: timedelta, expected: bool) -> None:
    rest = AtRest()
    rest.settle("resource", "a", (NODE, int("1000"), REPORT), NOW, 1.5 * MINUTE)
    assert rest.holds("resource", "a", basis, NOW + later) == expected
    assert not rest.holds("slo", "a", basis, NOW + later)


def test_a_node_that_is_woken_or_forgotten_does_not_rest() -> None:
    rest = AtRest()

    def wake() -> None:
        rest.wake("slo", "a")

    def drop() -> None:
        rest.forget("a")

    for forget in (wake, drop):
        rest.settle("slo", "a", (NODE,), NOW)
        assert rest.holds("slo", "a", (NODE,), NOW + 1000 * MINUTE)
        forget()
        assert not rest.holds("slo", "a", (NODE,), NOW)
