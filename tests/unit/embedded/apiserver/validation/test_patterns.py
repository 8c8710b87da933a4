"""Regular expressions of users: RE2's dialect, in time linear in the text, checked when the CRD is created."""

import json
from typing import Any

import pytest

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.cel.evaluate import evaluate
from kubetide.embedded.apiserver.cel.values import CelError
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.validation.budget import CannotJudge
from kubetide.embedded.apiserver.validation.patterns import PatternError, compile_pattern
from kubetide.embedded.apiserver.validation.schema import patterns, problems

Raw = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"
BACKTRACKING = "^(a+)+$"
NEARLY = "a" * 100_000 + "!"


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^a+$", "aaa", True),
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^a$", "a\n", False),
        (r"^\d+$", "١", False),
        (r"^\pL+$", "é", True),
        ("^.$", "é", True),
        ("(?i)^web$", "WEB", True),
        ("", "anything", True),
    ],
)
def test_the_dialect_is_the_one_of_re2(pattern: str, text: str, found: bool) -> None:
    assert compile_pattern(pattern).found_in(text) is found


@pytest.mark.parametrize("pattern", ["(", "(?=a)b", r"(a)\1", "a{2000}", "[z-a]", "(?P<x"])
def test_what_re2_does_not_understand_is_an_error(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


def test_a_pattern_that_backtracks_elsewhere_takes_no_time() -> None:
    schema = {"type": "string", "pattern": BACKTRACKING}
    assert [cause.reason for cause in problems(NEARLY, schema, "spec")] == ["FieldValueInvalid"]
    assert evaluate(f"self.matches('{BACKTRACKING}')", {"self": NEARLY}) is False


def test_what_costs_too_much_is_refused_before_it_is_tried() -> None:
    costly = "(a|b)*a(a|b){1000}"
    value = ["ab" * 1000] * 1000
    schema = {"type": "array", "items": {"type": "string", "pattern": costly}}
    with pytest.raises(CannotJudge, match="too much text to be matched"):
        list(problems(value, schema, "spec"))
    with pytest.raises(CannotJudge):  # what cannot be judged does not pass as "not that"
        list(problems(value, {"not": {"type": "array", "items": {"type": "string", "pattern": costly}}}, "spec"))
    with pytest.raises(CelError, match="too many steps"):
        evaluate(f"self.all(x, x.matches('{costly}'))", {"self": value})


def test_patterns_are_found_wherever_a_schema_may_have_one() -> None:
    schema: Raw = {
        "pattern": "0",
        "default": {"pattern": "("},
        "properties": {"pattern": {"pattern": "1"}, "list": {"items": {"pattern": "2"}}},
        "additionalProperties": {"pattern": "3"},
        "anyOf": [{"not": {"pattern": "4"}}],
    }
    assert dict(patterns(schema, "at")) == {
        "at.pattern": "0",
        "at.properties[pattern].pattern": "1",
        "at.properties[list].items.pattern": "2",
        "at.additionalProperties.pattern": "3",
        "at.anyOf[0].not.pattern": "4",
    }


def definition(**name: Any) -> Raw:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"name": {"type": "string", **name}}}},
    }
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


async def post(api: ApiServer, path: str, body: Raw) -> tuple[int, Raw]:
    answer = await api.handle(Request("POST", path, body=json.dumps(body).encode()))
    assert isinstance(answer, Answer)
    return answer.status, json.loads(answer.body)


def rules(*texts: str) -> list[Raw]:
    return [{"rule": text} for text in texts]


@pytest.mark.parametrize(
    ("name", "where"),
    [
        pytest.param({"pattern": "(?=x)"}, "pattern", id="schema"),
        pytest.param(
            {"x-kubernetes-validations": rules("true", "self.matches('(?=x)')")},
            "x-kubernetes-validations[1].rule",
            id="rule",
        ),
    ],
)
async def test_a_pattern_is_checked_when_the_definition_is_created(name: Raw, where: str) -> None:
    api = ApiServer(clock=SystemClock())
    status, told = await post(api, CRDS, definition(**name))
    assert (status, told["reason"]) == (422, "Invalid")
    cause = told["details"]["causes"][0]
    assert cause["field"] == f"spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[name].{where}"
    assert "must be a valid regular expression (RE2): " in cause["message"]
    assert (await post(api, CRDS, definition(pattern="^x")))[0] == 201


async def test_a_stored_definition_with_an_invalid_pattern_lets_nothing_in() -> None:
    api = ApiServer(clock=SystemClock())
    api.insert(
        {**definition(pattern="(?=x)"), "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    )
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {"name": "x"}}
    status, told = await post(api, THINGS, thing)
    assert status == 422
    assert "the pattern '(?=x)' of the schema is not valid" in told["message"]
