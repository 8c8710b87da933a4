"""How large the source is: `python tests/tools/code_size.py [TREE …]` prints modules and code lines by folder.

Code lines are lines with code on them: comments, docstrings and blank lines do not count, nor do generated protobuf
modules. `added` are the lines of modules that hold nothing but a feature of `ADDED`, which the tree before the core
folders did not have; what is left serves the features of then, with whatever newer releases and repairs changed in
them. This is where the tables of `docs/architecture.md` come from.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

SMALL = 40
ADDED = {
    "rules of newer releases": (
        "api/values/compat.py", "api/objects/hpa_compat.py", "api/objects/hpa_status_validation.py", "hpa/core/zero.py",
        "hpa/pod_owners.py", "hpa/own_writes.py", "*/core/compat.py", "vpa/core/sidecars.py",
        "node/core/hooks/network.py", "node/core/hooks/oom_score.py", "node/core/qos/pod_resctrl.py",
        "node/runtime/terway.py", "slo/core/amplify.py", "slo/core/network_qos.py", "api/values/shard_selector.py",
    ),
    "colocation profiles": ("slo/colocation/*",),
    "learned headroom": ("hpa/core/headroom/*", "hpa/headroom_store.py", "stats/forecast*.py"),
    "replay and learned sizes": ("replay/*", "vpa/recommender/core/adaptive/*"),
    "verdicts, charts, dashboard": ("verdicts/*", "charts/*", "dashboard/*"),
    "plans, policies, reports": ("plan/*", "recommend/*", "simulate/*", "metrics/*", "vpa/policies/*"),
    "doubtful input": (
        "api/objects/capacity.py", "kube/cache/nodes.py", "vpa/recommender/core/plausible.py",
        "vpa/recommender/core/history/healing.py", "kube/cache/consistency.py", "kube/client/answers.py",
    ),
    "hostile clients": (
        "kube/connections.py", "embedded/apiserver/auth/escalation.py", "embedded/apiserver/storage/datadir.py",
        "embedded/apiserver/validation/budget.py", "embedded/apiserver/validation/patterns.py",
    ),
    "a host that hangs, effects that are known": (
        "node/host/worker.py", "node/core/outcomes.py", "node/core/kernel_values.py", "node/kernel_reader.py",
        "node/state/audit_writer.py",
    ),
    "the same numbers on every CPU": ("stats/powers.py",),
    "public modules": ("*/__init__.py", "vpa/recommender/core/recommender.py", "testing/virtual.py"),
}  # fmt: skip
"""Features that the tree before the core folders did not have, and the modules that hold nothing else."""
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


def feature_of(place: str) -> str:
    """Return which added feature a module is all about; empty if none."""
    for feature, patterns in ADDED.items():
        if any(fnmatch(place, pattern) for pattern in patterns):
            return feature
    return ""


class Size:
    """The size of a tree, by the folders below the package."""

    def __init__(self, tree: Path) -> None:
        root = tree / "src" / "kubetide"
        self.code: Counter[str] = Counter()
        self.added: Counter[str] = Counter()
        self.features: Counter[str] = Counter()
        self.modules: Counter[str] = Counter()
        self.small: Counter[str] = Counter()
        self._folders: Counter[Path] = Counter()
        for path in root.rglob("*.py"):
            if not path.name.endswith("_pb2.py"):
                self._count(path.relative_to(root), path.read_text())

    def _count(self, place: Path, text: str) -> None:
        top = place.parts[0] if len(place.parts) > 1 else "."
        lines = code_lines(text)
        self.code[top] += lines
        self._folders[place.parent] += 1
        if feature := feature_of(place.as_posix()):
            self.added[top] += lines
            self.features[feature] += lines
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
        print(f"{tree}\n{'':12s} {'modules':>8s} {'small':>6s} {'fullest':>8s} {'code':>7s} {'added':>7s} {'left':>7s}")
        for top in sorted(size.code):
            code, added = size.code[top], size.added[top]
            print(f"{top:12s} {size.modules[top]:8d} {size.small[top]:6d} {size.fullest(top):8d}", end="")
            print(f" {code:7d} {added:7d} {code - added:7d}")
        for feature, lines in size.features.items():
            print(f"{lines:7d} {feature}")


if __name__ == "__main__":
    main()
