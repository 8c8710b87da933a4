"""Schemata texts of resctrl."""

import pytest

from kubetide.node.core.qos.l3_cache import check_root, parse_schemata


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("L3:0=f;1=7\n", {"L3": {"0": "f", "1": "7"}}, id="a-line-per-resource"),
        pytest.param(
            "L3CODE:0=f\nL3DATA:0=f\nL2:0=3\nSMBA:0=2048\n",
            {"L3CODE": {"0": "f"}, "L3DATA": {"0": "f"}, "L2": {"0": "3"}, "SMBA": {"0": "2048"}},
            id="everything-that-the-kernel-divides",
        ),
        pytest.param("L3:0=f\nL9:0=1\nfoo:0=2\n", {"L3": {"0": "f"}}, id="unknown-keys-are-ignored"),
        pytest.param("L3:0=f;bad;1=7\nnothing\n", {"L3": {"0": "f", "1": "7"}}, id="other-shapes-are-skipped"),
        pytest.param("", {}, id="empty"),
    ],
)
def test_schemata_are_read_by_resource(text: str, expected: dict[str, dict[str, str]]) -> None:
    assert parse_schemata(text) == expected


def test_an_unknown_line_does_not_disturb_the_root_check() -> None:
    assert check_root("NEW:0=1;1=1;2=1\n    MB:0=100;1=100\n    L3:0=fff;1=fff\n") == [0, 1]
