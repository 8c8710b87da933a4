"""What ScaledObjects ask for, and which external scalers are declared."""

import pytest

from kubetide.errors import KubetideError
from kubetide.metrics.core.scaler_triggers import read_scalers, read_trigger

GOOD = {"signal": "cpu_throttled_ratio", "selector": "app=web", "target": "0.2"}


@pytest.mark.parametrize(("aggregate", "value"), [("", 0.2), ("average", 0.2), ("max", 0.3), ("sum", 0.4)])
def test_the_value_over_pods(aggregate: str, value: float) -> None:
    trigger = read_trigger({**GOOD, "aggregate": aggregate})
    assert trigger.value([0.1, 0.3]) == pytest.approx(value)
    assert trigger.value([]) is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"signal": "cpu"}, "signal"),
        ({"aggregate": "median"}, "aggregate"),
        ({"target": "0"}, "target"),
        ({"target": "nan"}, "target"),
        ({"target": "much"}, "target"),
        ({"activation": "x"}, "activation"),
        ({"selector": "=="}, "=="),
    ],
)
def test_what_cannot_be_meant_is_named(changes: dict[str, str], field: str) -> None:
    with pytest.raises(KubetideError, match=field):
        read_trigger({**GOOD, **changes})


@pytest.mark.parametrize(
    ("declared", "field"),
    [
        pytest.param("{address: 'a:1'}", "metric", id="no-metric"),
        pytest.param("{metric: m, address: a}", "address", id="no-port"),
        pytest.param("{metric: m, address: 'a:1', metadata: x}", "metadata", id="metadata-is-no-mapping"),
        pytest.param("{metric: m, address: 'a:1', timeout: 5m}", "timeout", id="too-patient"),
    ],
)
def test_a_scaler_that_cannot_be_used_is_named_and_leaves_the_others(declared: str, field: str) -> None:
    found = read_scalers(f"scalers: [{declared}, {{metric: good, address: 'b:1'}}]")
    assert list(found.by_metric) == ["good"]
    assert found.problems[0].startswith(f"scalers[0] {field}")
