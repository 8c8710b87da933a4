"""Structural schemas: pruning, defaults, and what breaks them."""

from typing import Any

import pytest

from kubetide.embedded.apiserver.validation import schema

Raw = dict[str, Any]

SIZE: Raw = {"type": "integer", "minimum": 1, "maximum": 9}
PORT: Raw = {"port": {"type": "integer"}, "proto": {"type": "string", "default": "TCP"}}
OBJECT: Raw = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": SIZE,
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "x-kubernetes-list-type": "set"},
        "ports": {
            "type": "array",
            "items": {"type": "object", "properties": PORT},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port"],
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "limits": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
        "maybe": {"type": "string", "nullable": True, "default": "x"},
    },
}  # fmt: skip


def test_pruning_drops_what_is_not_named_and_says_where() -> None:
    value = {"size": 1, "typo": 1, "ports": [{"port": 1, "bad": 2}], "free": {"any": {"thing": 1}}, "limits": {"a": 1}}
    assert schema.prune(value, OBJECT) == ["typo", "ports[0].bad"]
    assert value == {"size": 1, "ports": [{"port": 1}], "free": {"any": {"thing": 1}}, "limits": {"a": 1}}


def test_the_root_keeps_type_and_metadata() -> None:
    value = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}, "spec": {}}
    assert schema.prune(value, {"type": "object"}, root=True) == ["spec"]
    assert set(value) == {"apiVersion", "kind", "metadata"}


def test_defaults_reach_into_lists_and_replace_null_where_null_is_not_allowed() -> None:
    value: Raw = {"size": 1, "color": None, "maybe": None, "ports": [{"port": 1}]}
    schema.default(value, OBJECT)
    assert value == {"size": 1, "color": "red", "maybe": None, "ports": [{"port": 1, "proto": "TCP"}]}


def test_a_null_that_is_not_allowed_goes_but_an_item_of_a_list_stays_to_be_refused() -> None:
    value: Raw = {"size": None, "tags": [None, "a"], "limits": {"cpu": None, "memory": 1}, "free": {"any": None}}
    schema.default(value, OBJECT)
    assert "size" not in value
    assert (value["tags"], value["limits"], value["free"]) == ([None, "a"], {"memory": 1}, {"any": None})
    rule = {"type": "array", "items": {"type": "object", "default": {"x": 1}}}
    items: list[Any] = [None, {}]
    schema.default(items, rule)
    assert items == [{"x": 1}, {}]


def test_a_default_is_a_copy_for_each_object() -> None:
    rule = {"type": "object", "properties": {"a": {"type": "object", "default": {"x": 1}}}}
    one: Raw = {}
    two: Raw = {}
    schema.default(one, rule)
    schema.default(two, rule)
    one["a"]["x"] = 2
    assert two["a"]["x"] == 1


@pytest.mark.parametrize(
    ("value", "field", "kind"),
    [
        pytest.param({}, "size", "Required", id="missing"),
        pytest.param({"size": 0}, "size", "Invalid", id="too-small"),
        pytest.param({"size": 10}, "size", "Invalid", id="too-big"),
        pytest.param({"size": "1"}, "size", "TypeInvalid", id="wrong-type"),
        pytest.param({"size": True}, "size", "TypeInvalid", id="a-boolean-is-no-number"),
        pytest.param({"size": None}, "size", "TypeInvalid", id="null"),
        pytest.param({"size": 1, "color": "green"}, "color", "NotSupported", id="not-in-the-list"),
        pytest.param({"size": 1, "tags": ["long-one"]}, "tags[0]", "TooLong", id="too-long"),
        pytest.param({"size": 1, "tags": ["a", "a"]}, "tags[1]", "Duplicate", id="twice-in-a-set"),
        pytest.param({"size": 1, "ports": [{"port": 1}, {"port": 1}]}, "ports[1]", "Duplicate", id="same-key"),
        pytest.param({"size": 1, "limits": {"a": 1.5}}, "limits.a", "TypeInvalid", id="neither-int-nor-string"),
    ],
)
def test_what_breaks_the_schema_is_named(value: Raw, field: str, kind: str) -> None:
    found = [(cause.field, cause.reason.removeprefix("FieldValue")) for cause in schema.problems(value, OBJECT)]
    assert found == [(field, kind)]


@pytest.mark.parametrize(
    "value", [{"size": 5}, {"size": 1, "limits": {"cpu": "1", "n": 2}}, {"size": 2.0, "maybe": None}]
)
def test_what_fits_has_no_problems(value: Raw) -> None:
    assert list(schema.problems(value, OBJECT)) == []


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        pytest.param({"anyOf": [{"minimum": 5}, {"maximum": 1}]}, 7, 3, id="any-of"),
        pytest.param({"oneOf": [{"minimum": 5}, {"multipleOf": 2}]}, 7, 6, id="one-of"),
        pytest.param({"not": {"enum": [3]}}, 4, 3, id="not"),
        pytest.param({"allOf": [{"minimum": 2}, {"maximum": 4}]}, 3, 5, id="all-of"),
        pytest.param({"type": "string", "pattern": "^a+$"}, "aa", "b", id="pattern"),
        pytest.param({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00Z", "today", id="date-time"),
        pytest.param({"type": "number", "exclusiveMinimum": True, "minimum": 0}, 0.1, 0, id="exclusive"),
    ],
)
def test_keywords(rule: Raw, good: Any, bad: Any) -> None:
    assert list(schema.problems(good, rule)) == []
    assert list(schema.problems(bad, rule)) != []
