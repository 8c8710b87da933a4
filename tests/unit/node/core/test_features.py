"""Feature gates as the flag writes them."""

import pytest

from kubetide.errors import SettingsError
from kubetide.node.core.features import GATES, HOOK_GATES, parse_gates


def test_defaults_are_those_of_the_table() -> None:
    gates = parse_gates("")
    assert gates["CPUBurst"]
    assert gates["AuditEvents"]
    assert not gates["CPICollector"]


def test_a_named_gate_wins_over_its_group() -> None:
    gates = parse_gates("AllAlpha=true, CPICollector=false")
    assert gates["PSICollector"]
    assert not gates["CPICollector"]


def test_a_group_can_be_switched_off() -> None:
    gates = parse_gates("AllBeta=false")
    assert not any(gates[name] for name, gate in GATES.items() if gate.stage == "beta")


@pytest.mark.parametrize("text", ["Nonsense=true", "CPUBurst", "CPUBurst=perhaps"])
def test_what_is_no_gate_is_an_error(text: str) -> None:
    with pytest.raises(SettingsError):
        parse_gates(text)


def test_hooks_have_gates_of_their_own() -> None:
    assert parse_gates("CoreSched=true", HOOK_GATES)["CoreSched"]
