"""Every line of the threat model names the tests that hold it, and they are there."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "reference" / "security.md").read_text()


def rows() -> list[list[str]]:
    """Return the cells of the lines of the threat model."""
    text = PAGE.partition("## Threat model")[2].partition("\n## ")[0].partition("\nNot held")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_every_threat_names_tests_that_are_there() -> None:
    assert len(rows()) >= 15
    for row in rows():
        named = re.findall(r"`([^`]+)`", row[-1])
        assert named, row
        for name in named:
            path = TESTS.parent / name if "/" in name else TESTS / "security" / f"{name}.py"
            assert path.is_file(), f"{name} of {row[1]!r}"
            assert "def test_" in path.read_text(), name
