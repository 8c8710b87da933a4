"""The list of metrics is complete and current, and dashboards and alerts are about what is on it."""

import re
from collections import defaultdict
from pathlib import Path

import yaml

from kubetide.install.grafana import DASHBOARDS
from tools.metrics_page import declared, page

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "helm" / "kubetide" / "rules"
_WORD = re.compile(
    r"\b(?:kubetide|koordlet|slo_controller|vpa|kube|horizontal|leader|rest_client|workqueue|controller)_\w+"
)


def series() -> set[str]:
    """Return the names under which Prometheus has the metrics."""
    names: set[str] = set()
    for each in declared():
        names |= (
            {each.name} if each.type != "histogram" else {f"{each.name}_{end}" for end in ("bucket", "sum", "count")}
        )
    return names


def labels() -> set[str]:
    return {label for each in declared() for label in each.labels}


def test_the_page_is_what_the_code_declares() -> None:
    assert (ROOT / "docs" / "reference" / "metrics.md").read_text() == page(), "run `make docs`"


def test_a_name_means_one_thing() -> None:
    by_name: dict[str, set[tuple[str, tuple[str, ...]]]] = defaultdict(set)
    for each in declared():
        by_name[each.name].add((each.type, each.labels))
    assert {name: found for name, found in by_name.items() if len(found) > 1} == {}


def test_every_panel_is_about_metrics_on_the_page() -> None:
    queries = [query for board in DASHBOARDS.values() for panel in board.panels for query in panel.queries.values()]
    queries += [query for board in DASHBOARDS.values() for query in board.variables.values()]
    named = {word for query in queries for word in _WORD.findall(query)}
    assert named
    assert named - series() - labels() == set()


def test_every_alert_is_about_metrics_on_the_page() -> None:
    groups = [group for path in RULES.glob("*.yaml") for group in yaml.safe_load(path.read_text())["groups"]]
    expressions = [rule["expr"] for group in groups for rule in group["rules"]]
    assert expressions
    named = {word for expression in expressions for word in _WORD.findall(expression)}
    assert named - series() - labels() == set()
