"""The table of sizes in the architecture page is near the truth: it is a picture of the tree, not a ledger."""

import re
from pathlib import Path

from tools.code_size import Size

ROOT = Path(__file__).resolve().parents[2]
NEAR = 0.15
ROW = re.compile(r"^\| `(\w+)` \|(.*)\|$", re.MULTILINE)


def test_the_table_of_sizes_is_near_the_truth() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    size = Size(ROOT)
    rows = {
        name: [int(cell) for cell in cells.split("|")] for name, cells in ROW.findall(page) if cells.count("|") == 9
    }
    assert {"api", "kube", "hpa", "vpa", "slo", "node", "embedded"} <= rows.keys()
    for name, (_, modules, _, small, _, fullest, _, same, added, code) in rows.items():
        for shown, real in ((modules, size.modules[name]), (code, size.code[name]), (fullest, size.fullest(name))):
            assert abs(shown - real) <= max(2, NEAR * real), f"{name}: {shown} is {real} (tests/tools/code_size.py)"
        assert small <= modules
        assert same + added == code
