"""CEL counts by size: a short expression cannot take the server's time or memory."""

from typing import Any

import pytest

from kubetide.embedded.apiserver.cel.evaluate import CelCostExceeded, evaluate
from kubetide.embedded.apiserver.cel.rules import broken_rules, evaluate_conditions
from kubetide.embedded.apiserver.cel.values import CelError
from kubetide.embedded.apiserver.validation.budget import CannotJudge

Raw = dict[str, Any]
DOUBLED_TEXT = "['aaaaaaaa']" + ".map(x, x + x)" * 40
DOUBLED_LIST = "[[1]]" + ".map(x, [x, x])" * 40
GROWN_LIST = "[[1, 2]]" + ".map(x, x + x)" * 40


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(DOUBLED_TEXT, id="texts-that-double"),
        pytest.param(GROWN_LIST, id="lists-that-double"),
        pytest.param(f"{DOUBLED_LIST} == {DOUBLED_LIST}", id="shared-lists-compared"),
        pytest.param(f"{DOUBLED_LIST}[0] in {DOUBLED_LIST}", id="shared-lists-looked-for"),
        pytest.param("big.map(x, big).map(x, x.map(y, y))", id="nested-macros"),
        pytest.param("big.map(x, text).join('')", id="join"),
        pytest.param("text.replace('x', text)", id="replace"),
        pytest.param("big.all(x, text.contains('nowhere'))", id="searches"),
        pytest.param("big.all(x, text == text + '')", id="copies"),
        pytest.param("big.map(x, text).max() == text", id="orders"),
        pytest.param(f"{DOUBLED_TEXT} == ['a'] || true", id="not-forgiven-by-or"),
        pytest.param(f"!({DOUBLED_TEXT} == ['a'] && false)", id="not-forgiven-by-and"),
    ],
)
def test_what_grows_or_walks_too_far_is_cut_off(expression: str) -> None:
    with pytest.raises(CelCostExceeded, match="takes too many steps"):
        evaluate(expression, {"big": list(range(5000)), "text": "x" * 100_000})


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("'a' * 1000000000", id="texts-are-not-multiplied"),
        pytest.param("[3]" + ".map(x, x * x)" * 10, id="integers-have-64-bits"),
        pytest.param("-9223372036854775807 - 2", id="overflow"),
        pytest.param("99999999999999999999 + 1", id="literal"),
        pytest.param("int('99999999999999999999')", id="conversion"),
        pytest.param(f"string({DOUBLED_LIST})", id="lists-are-not-written-out"),
        pytest.param(f"[1][{DOUBLED_LIST}]", id="nor-in-an-error"),
        pytest.param(f"{DOUBLED_LIST}.contains({DOUBLED_LIST})", id="nor-searched"),
        pytest.param(f"{DOUBLED_LIST} < {DOUBLED_LIST}", id="nor-ordered"),
        pytest.param("'abc'.map(x, x)", id="texts-are-no-lists"),
        pytest.param("size(1)", id="no-size"),
        pytest.param("1.startsWith('a')", id="no-text"),
        pytest.param("int(1e400)", id="infinity"),
    ],
)
def test_what_cel_has_no_overload_for_is_an_error(expression: str) -> None:
    with pytest.raises(CelError):
        evaluate(expression, {})


def test_a_long_expression_is_read_in_time_linear_in_its_length() -> None:
    assert evaluate("1" + " + 1" * 100 + " " * 1_000_000, {}) == 101


def items(count: int) -> list[Raw]:
    return [{"name": f"n{number}", "value": "x" * 50} for number in range(count)]


SCHEMA: Raw = {
    "type": "array",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {"x-kubernetes-validations": [{"rule": "self.value == oldSelf.value", "message": "must not change"}]},
}


def test_all_rules_of_an_object_share_a_budget() -> None:
    costly = {
        "type": "array",
        "items": {"x-kubernetes-validations": [{"rule": "self.value.matches('(a|b)*a(a|b){99}')"}]},
    }
    assert len(list(broken_rules(items(10), costly))) == 10
    with pytest.raises(CannotJudge, match="takes too many steps"):
        list(broken_rules(items(20_000), costly))


def test_items_are_compared_with_their_former_selves() -> None:
    before = items(2000)
    after = [*reversed(before[:-1]), {"name": "n1999", "value": "y"}, {"name": "new", "value": "y"}]
    assert [cause.field for cause in broken_rules(after, SCHEMA, "spec", before)] == ["spec[1999]"]


def test_conditions_of_a_webhook_share_a_budget_too() -> None:
    condition = {"expression": "object.list.all(x, x == x)"}
    request = {"object": {"list": list(range(30_000))}}
    assert evaluate_conditions((condition,), {"object": {"list": [1, 2]}})
    with pytest.raises(CelError):
        evaluate_conditions((condition,) * 20, request)
