"""Label and field selectors."""

import pytest

from kubetide.api.values.selectors import (
    EVERYTHING,
    NOTHING,
    LabelSelector,
    LabelSelectorRequirement,
    parse_field_selector,
    parse_selector,
    selector_from,
)
from kubetide.errors import SelectorError


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        pytest.param("", {}, True, id="empty-selects-everything"),
        pytest.param("app=web", {"app": "web"}, True, id="equals"),
        pytest.param("app==web", {"app": "api"}, False, id="double-equals"),
        pytest.param("app!=web", {}, True, id="absent-is-not-equal"),
        pytest.param("app in (web, api)", {"app": "api"}, True, id="in"),
        pytest.param("app notin (web)", {}, True, id="absent-is-not-in"),
        pytest.param("app", {"app": ""}, True, id="exists"),
        pytest.param("!app", {"app": ""}, False, id="does-not-exist"),
        pytest.param("n>5", {"n": "6"}, True, id="greater"),
        pytest.param("n<5", {"n": "abc"}, False, id="no-number"),
        pytest.param("app=", {"app": ""}, True, id="empty-value"),
        pytest.param("a=1,b=2", {"a": "1"}, False, id="all-must-hold"),
    ],
)
def test_text_selectors_match(text: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_selector(text).matches(labels) is matches


@pytest.mark.parametrize(("text", "canonical"), [("b,a in (y,x)", "a in (x,y),b"), ("n > 5", "n>5"), ("! x", "!x")])
def test_equal_selectors_print_alike(text: str, canonical: str) -> None:
    assert str(parse_selector(text)) == canonical


@pytest.mark.parametrize(
    "text", ["a in x", "a=b,", ",a", "a in (", "n>x", "-a=b", "a=b c", "a in ()x", "a=" + "x" * 64]
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_selector(text)


def test_object_form_equals_text_form() -> None:
    selector = LabelSelector(
        match_labels={"app": "web"},
        match_expressions=(
            LabelSelectorRequirement(key="tier", operator="In", values=("b", "a")),
            LabelSelectorRequirement(key="legacy", operator="DoesNotExist"),
        ),
    )
    assert str(selector_from(selector)) == "app=web,!legacy,tier in (a,b)"


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert selector_from(None) == NOTHING
    assert selector_from(LabelSelector()) == EVERYTHING
    assert not NOTHING.matches({})
    assert EVERYTHING.matches(None)


@pytest.mark.parametrize(
    "requirement",
    [
        LabelSelectorRequirement(key="a", operator="Like", values=("x",)),
        LabelSelectorRequirement(key="a", operator="In"),
        LabelSelectorRequirement(key="a", operator="Exists", values=("x",)),
        LabelSelectorRequirement(key="a b", operator="Exists"),
    ],
    ids=lambda r: f"{r.key}-{r.operator}",
)
def test_bad_object_requirements_are_refused(requirement: LabelSelectorRequirement) -> None:
    with pytest.raises(SelectorError):
        selector_from(LabelSelector(match_expressions=(requirement,)))


def test_field_selectors_are_read_term_by_term() -> None:
    assert parse_field_selector(r"spec.nodeName=n1,status.phase!=Failed,x==a\,b") == (
        ("spec.nodeName", True, "n1"),
        ("status.phase", False, "Failed"),
        ("x", True, "a,b"),
    )
    with pytest.raises(SelectorError):
        parse_field_selector("spec.nodeName")
