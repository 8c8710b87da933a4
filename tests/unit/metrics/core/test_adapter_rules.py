"""Rules of prometheus-adapter: which metrics series become, and which queries they are asked with."""

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.values.promql import literal, matcher, quoted, selector_matchers
from kubetide.api.values.selectors import parse_selector
from kubetide.errors import InvalidInput
from kubetide.metrics.core.adapter_rules import catalog, external_query, object_query, read_rules
from kubetide.metrics.core.backends import read_backends

CONFIG = """
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  seriesFilters: [{isNot: ".*_test_total$"}]
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
- seriesQuery: '{__name__=~"^kube_.*"}'
  resources: {template: "kube_<<.Group>>_<<.Resource>>"}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue_length'
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""
SERIES = {
    'http_requests_total{namespace!="",pod!=""}': [
        {"__name__": "http_requests_total", "namespace": "shop", "pod": "web-1"},
        {"__name__": "http_test_total", "namespace": "shop", "pod": "web-1"},
    ],
    '{__name__=~"^kube_.*"}': [{"__name__": "kube_load", "kube_apps_deployment": "web", "kube__namespace": "shop"}],
    "queue_length": [{"__name__": "queue_length", "queue": "orders"}],
}


def test_series_become_metrics_of_the_objects_that_their_labels_name() -> None:
    found = catalog(read_rules(CONFIG), SERIES)
    assert set(found.custom) == {
        ("pods", "http_requests_per_second"),
        ("namespaces", "http_requests_per_second"),
        ("deployments.apps", "kube_load"),
        ("namespaces", "kube_load"),
    }
    assert set(found.external) == {"queue_length"}


def test_queries_name_objects_by_their_labels() -> None:
    found = catalog(read_rules(CONFIG), SERIES)
    source = found.custom["pods", "http_requests_per_second"]
    assert object_query(source, "pods", "shop", ["web-1", "web-2"], ['code="200"']) == (
        r'sum(rate(http_requests_total{namespace="shop",pod=~"web\\-1|web\\-2",code="200"}[2m])) by (pod)'
    )
    assert external_query(found.external["queue_length"], "shop", ['queue="orders"'], ["queue"]) == (
        'max(queue_length{queue="orders"}) by (queue)'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("app=web", ['app="web"']),
        ("app!=web", ['app!="web"']),
        ("app in (a,b)", ['app=~"a|b"']),
        ("app notin (a,b)", ['app!~"a|b"']),
        ("app", ['app!=""']),
        ("!app", ['app=""']),
    ],
)
def test_selectors_become_matchers(text: str, expected: list[str]) -> None:
    assert selector_matchers(parse_selector(text)) == expected


@pytest.mark.parametrize("text", ["app.kubernetes.io/name=x", "a-b=x", "size>3"])
def test_what_prometheus_cannot_compare_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        selector_matchers(parse_selector(text))


@given(st.text())
def test_no_value_ends_its_quotes(text: str) -> None:
    inside = quoted(text)[1:-1]
    assert "\n" not in inside
    assert inside.replace("\\\\", "").replace('\\"', "").count('"') == 0


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), st.text(st.characters(codec="utf-8"))
)
def test_a_literal_matches_itself_and_nothing_else(text: str, other: str) -> None:
    pattern = re2.compile(f"(?s){literal(text)}")
    assert pattern.fullmatch(text)
    assert bool(pattern.fullmatch(other)) == (other == text)


def test_injection_through_a_value_stays_a_value() -> None:
    assert matcher("pod", ['x"} or vector(1) #']) == r'pod="x\"} or vector(1) #"'


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        pytest.param("[1]", "is not a mapping", id="no-mapping"),
        pytest.param("[{metricsQuery: x}]", "needs a seriesQuery", id="no-series"),
        pytest.param("[{seriesQuery: x, metricsQuery: '<<.Foo>>'}]", "other places", id="unknown-place"),
        pytest.param(
            "[{seriesQuery: x, metricsQuery: y, name: {matches: '('}}]", "no regular expression", id="bad-pattern"
        ),
    ],
)
def test_a_rule_that_cannot_be_used_is_named_and_leaves_the_others(rule: str, problem: str) -> None:
    rules = read_rules(f"rules: {rule}\nexternalRules: [{{seriesQuery: q, metricsQuery: q}}]")
    assert (rules.custom, len(rules.external)) == ((), 1)
    assert "rules[0]" in rules.problems[0]
    assert problem in rules.problems[0]


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        pytest.param("{url: https://a}", "backends[0] name", id="no-name"),
        pytest.param("{name: a, url: http://a}", "backends[0] url", id="not-over-tls"),
        pytest.param("{name: a, url: https://a, groups: [apps]}", "backends[0] groups", id="another-group"),
        pytest.param("{name: a, url: https://a, timeout: 1h}", "backends[0] timeout", id="too-patient"),
        pytest.param("{name: a, url: https://a, caBundle: '%'}", "backends[0] caBundle", id="no-ca"),
    ],
)
def test_a_backend_that_cannot_be_used_is_named(declared: str, problem: str) -> None:
    found = read_backends(f"backends: [{declared}, {{name: b, url: 'https://b'}}]")
    assert [backend.name for backend in found.usable] == ["b"]
    assert found.problems[0].startswith(problem)
