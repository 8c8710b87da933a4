"""Which fields two versions of an object differ in, as people read them."""

from typing import Any

import pytest

from kubetide.api.values.changes import FieldChange, field_changes


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param({"a": 1}, {"a": 1}, [], id="the-same"),
        pytest.param({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b 1 → 2"], id="a-path"),
        pytest.param({}, {"a": {"b": 2}}, ["a.b none → 2"], id="added"),
        pytest.param({"a": {"b": True}}, {}, ["a.b true → none"], id="removed"),
        pytest.param({"a": [1, 2]}, {"a": [1]}, ["a [1, 2] → [1]"], id="a-list-of-values-is-one-field"),
        pytest.param(
            {"c": [{"name": "x", "v": 1}, {"name": "y", "v": 1}]},
            {"c": [{"name": "y", "v": 2}, {"name": "x", "v": 1}]},
            ["c.y.v 1 → 2"],
            id="items-are-told-apart-by-name",
        ),
        pytest.param({"c": [{"v": 1}]}, {"c": [{"v": 2}]}, ["c.0.v 1 → 2"], id="else-by-position"),
        pytest.param({"a": {"b": 1}}, {"a": 1}, ["a {'b': 1} → 1"], id="another-shape"),
        pytest.param({"c memory": "476450463"}, {}, ["c memory 454Mi → none"], id="bytes-are-readable"),
        pytest.param({}, {"kind": "Node", "metadata": {"name": "x"}, "a": 1}, ["a none → 1"], id="who-it-is-is-known"),
        pytest.param(
            {"metadata": {"resourceVersion": "1"}}, {"metadata": {"resourceVersion": "2"}}, [], id="noise-is-left-out"
        ),
    ],
)
def test_what_differs_is_told_leaf_by_leaf(before: Any, after: Any, told: list[str]) -> None:
    assert [str(change) for change in field_changes(before, after)] == told


def test_a_long_value_is_cut() -> None:
    assert len(str(FieldChange("a", "x" * 500, None))) < 100
