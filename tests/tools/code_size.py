"""How large the source is: `python tests/tools/code_size.py [TREE …]` prints modules and code lines by folder.

Code lines are lines with code on them: comments, docstrings and blank lines do not count, nor do generated protobuf
modules. The table of `docs/architecture.md` comes from here, and from `code_growth` what the same features take.
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


class Size:
    """The size of a tree, by the folders below the package."""

    def __init__(self, tree: Path) -> None:
        root = tree / "src" / "kubetide"
        self.code: Counter[str] = Counter()
        self.modules: Counter[str] = Counter()
        self.small: Counter[str] = Counter()
        self._folders: Counter[Path] = Counter()
        for path in root.rglob("*.py"):
            if not path.name.endswith("_pb2.py"):
                self._count(path.relative_to(root), path.read_text())

    def _count(self, place: Path, text: str) -> None:
        top = place.parts[0] if len(place.parts) > 1 else "."
        self.code[top] += code_lines(text)
        self._folders[place.parent] += 1
        if place.name != "__init__.py":
            self.modules[top] += 1
            self.small[top] += text.count("\n") < SMALL

    def fullest(self, top: str) -> int:
        """Return how many modules the fullest folder below one has."""
        return max(size for folder, size in self._folders.items() if (folder.parts or (".",))[0] == top)


def main() -> None:
    """Print the tables of each tree."""
    for tree in [Path(argument) for argument in sys.argv[1:]] or [Path(__file__).resolve().parents[2]]:
        size = Size(tree)
        print(f"{tree}\n{'':12s} {'modules':>8s} {'small':>6s} {'fullest':>8s} {'code':>7s}")
        for top in sorted(size.code):
            print(f"{top:12s} {size.modules[top]:8d} {size.small[top]:6d} {size.fullest(top):8d} {size.code[top]:7d}")


if __name__ == "__main__":
    main()
