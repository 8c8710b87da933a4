"""What a runtime adds about a container is its own JSON: it is understood, or left out."""

from typing import Any

import pytest

from kubetide.api.values.codec import decode_raw
from kubetide.node.runtime.cri import resources_of, variables_of


def test_resources_are_read_and_what_is_null_or_missing_is_not_set() -> None:
    found = resources_of({"cpu": {"shares": 2, "quota": 50_000, "cpus": "0-1", "mems": None}, "memory": {"limit": 1}})
    assert found is not None
    assert (found.cpu_shares, found.cpu_quota, found.cpuset_cpus, found.cpuset_mems) == (2, 50_000, "0-1", "")
    assert (found.cpu_period, found.memory_limit_in_bytes) == (0, 1)
    nothing = resources_of({"cpu": None, "memory": None, "pids": 5})
    assert nothing is not None
    assert not nothing.ListFields()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b'{"cpu": {"period": "0"}}', id="a-number-as-text"),
        pytest.param(b'{"cpu": {"quota": 1e308}}', id="a-number-beyond-all"),
        pytest.param(b'{"memory": {"limit": 99999999999999999999}}', id="more-than-64-bits"),
        pytest.param(b'{"cpu": {"cpus": [0, 1]}}', id="a-list-as-text"),
        pytest.param(b'{"cpu": [1]}', id="a-list-as-an-object"),
        pytest.param(b"[]", id="no-object"),
    ],
)
def test_resources_that_cannot_be_understood_are_none(text: bytes) -> None:
    assert resources_of(decode_raw(text)) is None


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param([{"key": "A", "value": "1"}, {"key": "B"}], {"A": "1", "B": ""}, id="as-containerd-has-it"),
        pytest.param([{"key": ["A"]}, {"key": "B", "value": 3}, 5, {"key": "C"}], {"C": ""}, id="one-of-four"),
        pytest.param({"A": "1"}, {}, id="no-list"),
        pytest.param(7, {}, id="a-number"),
        pytest.param(None, {}, id="nothing"),
    ],
)
def test_variables_that_cannot_be_understood_are_left_out(raw: Any, expected: dict[str, str]) -> None:
    assert variables_of(raw) == expected
