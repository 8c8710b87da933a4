"""How large the source is: `python tests/tools/code_size.py [TREE …]` prints modules and code lines by folder.

Code lines are lines with code on them: comments, docstrings and blank lines do not count, nor do generated protobuf
modules. This is where the table of `docs/architecture.md` comes from.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

SMALL = 40
_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(text: str) -> int:
    """Return how many lines have code on them."""
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - prose)


def main() -> None:
    """Print one table per tree."""
    for tree in [Path(argument) for argument in sys.argv[1:]] or [Path(__file__).resolve().parents[2]]:
        root = tree / "src" / "kubetide"
        code: Counter[str] = Counter()
        modules: Counter[str] = Counter()
        small: Counter[str] = Counter()
        folders: Counter[Path] = Counter()
        for path in root.rglob("*.py"):
            if path.name.endswith("_pb2.py"):
                continue
            place = path.relative_to(root)
            top = place.parts[0] if len(place.parts) > 1 else "."
            text = path.read_text()
            code[top] += code_lines(text)
            folders[place.parent] += 1
            if path.name != "__init__.py":
                modules[top] += 1
                small[top] += text.count("\n") < SMALL
        print(f"{tree}\n{'':12s} {'modules':>8s} {'small':>6s} {'fullest':>8s} {'code':>7s}")
        for top in sorted(code):
            fullest = max(size for folder, size in folders.items() if (folder.parts or (".",))[0] == top)
            print(f"{top:12s} {modules[top]:8d} {small[top]:6d} {fullest:8d} {code[top]:7d}")


if __name__ == "__main__":
    main()
