"""Shard selectors: how they are spelt, and that shards together hold everything once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.values.shard_selector import (
    NAMESPACE,
    UID,
    ShardRange,
    parse_shard_selector,
    shard_hash,
    shard_of,
)
from kubetide.errors import SelectorError

LOW, HIGH = "0x0000000000000000", "0x8000000000000000"
HALF = f"shardRange({UID}, '{LOW}', '{HIGH}')"


@pytest.mark.parametrize(
    "text",
    [
        HALF,
        f"  ({HALF})  // the lower half",
        f'shardRange(object . metadata\n. uid, "{LOW}", "{HIGH}")',
        f"shardRange((object.metadata).uid, r'{LOW}', '''{HIGH}''')",
        f"shardRange({UID}, '\\x30x0000000000000000', '{HIGH}')",
        f"x.{HALF}",
        f"(x).{HALF}",
    ],
)
def test_one_range_has_many_spellings_and_one_canonical_form(text: str) -> None:
    assert str(parse_shard_selector(text)) == HALF


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(" ", "empty", id="blank"),
        pytest.param(f"!{HALF}", "unexpected", id="negated"),
        pytest.param(f"{HALF} && {HALF}", "unexpected", id="and"),
        pytest.param(f"{HALF} ||", "expected name", id="half-an-alternative"),
        pytest.param(f"{HALF} || {HALF.replace('uid', 'namespace')}", "same field", id="two-fields"),
        pytest.param(HALF.replace("uid", "name"), "not supported", id="another-field"),
        pytest.param(HALF.replace(LOW, "0x0"), "16 digits", id="short-number"),
        pytest.param(HALF.replace(LOW, HIGH), "below its end", id="empty-range"),
        pytest.param(HALF.replace("'", "b'", 1), "no string literal", id="bytes"),
        pytest.param("(" * 500 + HALF + ")" * 500, "nested", id="deep"),
        pytest.param("'" + "\\" * 20_001, "unexpected", id="endless-string"),
    ],
)
def test_anything_else_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(SelectorError, match=message):
        parse_shard_selector(text)


@given(st.integers(1, 50), st.text(), st.text())
def test_every_object_is_in_exactly_one_shard(count: int, uid: str, namespace: str) -> None:
    for field in (UID, NAMESPACE):
        shards = [shard_of(index, count, field) for index in range(count)]
        assert sum(shard.matches(uid, namespace) for shard in shards) == 1
        assert all(parse_shard_selector(str(shard)) == shard for shard in shards)


def test_an_absent_value_hashes_as_the_empty_text() -> None:
    assert f"{shard_hash(''):016x}" == "cbf29ce484222325"


def test_a_shard_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SelectorError, match="the first is 0, the last 3"):
        shard_of(4, 4, UID)


def test_the_last_shard_ends_beyond_the_last_hash() -> None:
    assert shard_of(1, 2, UID).ranges == (ShardRange(UID, 2**63, 2**64),)


@given(st.lists(st.text(max_size=8), max_size=40), st.integers(0, 3))
def test_a_namespace_that_was_looked_at_before_is_answered_the_same(namespaces: list[str], index: int) -> None:
    selector = shard_of(index, 4, NAMESPACE)
    answers = [selector.matches("", namespace) for namespace in (*namespaces, *namespaces)]
    assert answers == [shard_of(index, 4, NAMESPACE).matches("", namespace) for namespace in namespaces] * 2
    assert selector == shard_of(index, 4, NAMESPACE)
