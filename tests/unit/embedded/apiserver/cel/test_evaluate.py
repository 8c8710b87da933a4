"""CEL: what expressions evaluate to, and what CRD rules make of it."""

from typing import Any

import pytest

from kubetide.embedded.apiserver.cel.evaluate import evaluate, mentions
from kubetide.embedded.apiserver.cel.rules import broken_rules, evaluate_conditions
from kubetide.embedded.apiserver.cel.values import CelError

VARIABLES = {"self": {"a": 1, "b": [1, 2, 3], "name": "web-1", "labels": {"x": "y"}, "empty": ""}}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("1.5 + 1.0", 2.5),
        ("'a' + \"b\"", "ab"),
        ("self.a == 1 && self.b.size() == 3", True),
        ("self.b[1]", 2),
        ("self.labels['x']", "y"),
        ("2 in self.b", True),
        ("'x' in self.labels", True),
        ("has(self.a)", True),
        ("has(self.missing)", False),
        ("!has(self.missing) || self.missing > 3", True),
        ("self.missing > 3 || true", True),
        ("false && self.missing", False),
        ("self.b.all(x, x > 0)", True),
        ("self.b.exists(x, x > 2)", True),
        ("self.b.exists_one(x, x > 1)", False),
        ("self.b.filter(x, x > 1)", [2, 3]),
        ("self.b.map(x, x * 2)", [2, 4, 6]),
        ("self.name.startsWith('web') ? 'yes' : 'no'", "yes"),
        ("self.name.matches('^web-[0-9]+$')", True),
        ("size(self.empty) == 0", True),
        ("self.labels.all(k, k == 'x')", True),
        ("{'a': 1}['a']", 1),
        ("[1, 2] + [3]", [1, 2, 3]),
        ("true == 1", False),
        ("r'a\\d'", "a\\d"),
        ("null == null", True),
        ("string(self.a) + '!'", "1!"),
    ],
)
def test_expressions(expression: str, value: Any) -> None:
    assert evaluate(expression, VARIABLES) == value


@pytest.mark.parametrize(
    "expression",
    ["", "1 +", "self.missing", "1 && true", "'a' + 1", "nope(1)", "other", "self.b[7]", "1 / 0", "@", "((("],
)
def test_what_makes_no_sense_is_an_error(expression: str) -> None:
    with pytest.raises(CelError):
        evaluate(expression, VARIABLES)


def test_an_expression_may_not_run_for_ever() -> None:
    many = {"self": list(range(2000))}
    with pytest.raises(CelError, match="too many steps"):
        evaluate("self.all(a, self.all(b, a + b >= 0))", many)


def test_mentions_looks_inside() -> None:
    assert mentions("self.all(x, x in [oldSelf.a])", "oldSelf")
    assert not mentions("self.oldSelf", "oldSelf")


SCHEMA = {
    "type": "object",
    "x-kubernetes-validations": [{"rule": "self.min <= self.max", "message": "min must not exceed max"}],
    "properties": {
        "max": {"type": "integer"},
        "min": {"type": "integer"},
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is fixed"}]},
    },
}


def test_rules_of_a_schema_hold_at_their_level() -> None:
    assert list(broken_rules({"min": 1, "max": 2}, SCHEMA, "spec")) == []
    (cause,) = broken_rules({"min": 3, "max": 2}, SCHEMA, "spec")
    assert (cause.field, cause.message) == ("spec", "Invalid value: min must not exceed max")


def test_rules_about_changes_are_asked_only_when_there_was_a_value() -> None:
    value = {"min": 1, "max": 2, "fixed": "b"}
    assert list(broken_rules(value, SCHEMA, "spec")) == []
    (cause,) = broken_rules(value, SCHEMA, "spec", {"fixed": "a"})
    assert cause.field == "spec.fixed"


def test_a_false_condition_decides_over_one_that_fails() -> None:
    request = {"object": {"kind": "Pod"}, "operation": "CREATE"}
    broken = {"name": "broken", "expression": "object.missing == 1"}
    false = {"name": "false", "expression": "request.operation == 'DELETE'"}
    assert evaluate_conditions((broken, false), request) is False
    assert evaluate_conditions(({"name": "true", "expression": "object.kind == 'Pod'"},), request) is True
    with pytest.raises(CelError):
        evaluate_conditions((broken,), request)
