"""What arrives in the body of a request: how deep it may be."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.embedded.apiserver.rest.bodies import DEEPEST, decode_body
from kubetide.embedded.apiserver.rest.requests import Request
from kubetide.embedded.apiserver.rest.status import StatusError


def decoded(body: str, media: str = "application/json") -> dict[str, Any]:
    return decode_body(Request("POST", "/", body=body.encode(), content_type=media))


def nested(depth: int, start: str = '{"a":', end: str = "}") -> str:
    return '{"x":' + start * (depth - 1) + "1" + end * (depth - 1) + "}"


@pytest.mark.parametrize("media", ["application/json", "application/yaml"])
@pytest.mark.parametrize(
    ("start", "end"), [('{"a":', "}"), ("[", "]"), ('{"a":[', "]}")], ids=["maps", "lists", "both"]
)
def test_an_object_may_be_deep_but_not_bottomless(media: str, start: str, end: str) -> None:
    levels = 1 if len(start) < 6 else 2
    deep = DEEPEST // levels
    assert decoded(nested(deep, start, end), media)
    with pytest.raises(StatusError, match="deeper than") as refused:
        decoded(nested(deep + 2, start, end), media)
    assert refused.value.code == 400


def test_brackets_in_texts_and_beside_each_other_do_not_count() -> None:
    assert decoded(json.dumps({"a": "[{" * 1000, '{"[\\': '\\"{[' * 500}))
    assert decoded(json.dumps({"a": [{}] * 1000}))


def values() -> st.SearchStrategy[Any]:
    leaves = st.text(max_size=5) | st.integers()
    return st.recursive(
        leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=8
    )


@given(st.dictionaries(st.text(max_size=5), values(), max_size=5))
def test_ordinary_objects_come_through(value: dict[str, Any]) -> None:
    assert decoded(json.dumps(value)) == value
