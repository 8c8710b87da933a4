"""The version that the agent follows."""

import pytest

from kubetide.errors import SettingsError
from kubetide.node.core import compat
from kubetide.node.core.compat import RULES, parse_compat
from kubetide.node.core.features import HOOK_GATES, parse_gates


@pytest.mark.parametrize("text", ["1.3", "1.9", "main", ""])
def test_a_version_that_is_not_supported_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match=r"1\.4, 1\.5"):
        parse_compat(text)


def test_rules_hold_from_their_version_on() -> None:
    assert not any(parse_compat("1.4").has(rule) for rule in RULES)
    assert all(parse_compat("1.8").has(rule) for rule in RULES)
    assert not parse_compat("1.6").has(compat.SUPPRESS_MINIMUM)
    assert parse_compat("1.7").has(compat.SUPPRESS_MINIMUM)


def test_rule_ids_are_unique() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_a_group_reaches_only_the_gates_of_the_version() -> None:
    old, new = (parse_gates("AllAlpha=true", compat=parse_compat(text)) for text in ("1.4", "1.8"))
    assert old["PSICollector"]
    assert not old["CPUEvict"]
    assert new["CPUEvict"]
    assert not parse_gates("AllAlpha=true", HOOK_GATES)["OOMScoreAdj"]


def test_a_gate_that_is_named_counts_under_every_version() -> None:
    assert parse_gates("CPUEvict=true", compat=parse_compat("1.4"))["CPUEvict"]
    assert parse_gates("OOMScoreAdj=true", HOOK_GATES)["OOMScoreAdj"]
