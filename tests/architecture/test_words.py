"""Kubernetes' own words: what a controller does, where a rule comes from and who reports has one name each.

Read are docstrings, comments and names of the source, and test names. A word is banned by meaning: the pattern catches
the use that must not come back, and `ALLOWED` names the places where it means something else.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "kubetide"

BANNED = {
    r"\b(?:a|this|every|each|last|next|first|in one|per) (?:turn|round)\b(?! into)": "reconcile, loop or sync",
    r"\brounds? of (?:the )?(?:strategies|collectors?|controller)": "sync",
    r"\bthe originals?(?:'s)?\b(?! (?:quota|object|text|document|name|value))": "upstream",
    r"\b[Tt]he reference (?:measures|does|has it|implementation)|\bthe reference's (?!group)": "upstream",
    r"(?<!OOM )(?<!OOM-)\bkills? (?:counts?|is counted|found|of a container|that happened)": "OOM kill",
    r"\bkilled for (?:its )?memory": "OOM killed",
    r"\b(?:access|RBAC|missing|the) rights\b": "permissions",
    r"\b(?:lends?|lent) (?:\w+ )?(?:to batch|to best-effort|by LSR|CPU|memory)": "overcommits",
    r"\baskers?\b|\bhappenings?\b|\bwishes\b": "request, scenario event, overrides",
    r"\b(?:is|are) well\b(?!-)|\ball is well\b": "healthy",
    r"\bcopies are complete\b": "caches are synced",
    r"\bbegan to act\b": "started leading",
    r"^(?:Tell|Say)s? (?:whether|what|how|why|which|that|people|of)\b": "Return, or Report",
    r"\b(?:agent|kubelet|API server|controller|recommender|updater|webhook|lease) (?:tells|says)\b": "reports",
}
NAMES = {r"(?:^|_)(?:askers?|happenings?|wishes|lent|lends)(?:_|$)": "request, scenario event, overrides, overcommits"}
ELSEWHERE = ("cli/", "replay/", "node/runtime/protos/")
ALLOWED = {
    "JSON pointers (RFC 6901)": "the original of a document that is changed in a copy",
    "CPU normalization: a faster CPU": "the original quota, before it is scaled",
    "Powers, and a cosine": "a turn of a circle",
    "cos a = 1": "a turn of a circle",
}
"""Texts, by their beginning, in which a banned word has another meaning, and which."""


def prose(code: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings and comments with their lines."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, " ".join(node.value.value.split())
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def banned(text: str) -> Iterator[str]:
    """Yield what is banned in a text, and the word to use."""
    for pattern, word in BANNED.items():
        if (found := re.search(pattern, text)) is not None and not text.startswith(tuple(ALLOWED)):
            yield f"{found[0]!r}: {word}"


@pytest.mark.parametrize(
    "text",
    [
        "Decide whether to act in this turn.",
        "Pause between rounds of the strategies.",
        "Flags of the original are kept.",
        "As the reference does.",
        "A container killed for its memory.",
        "Tell whether a gate is on.",
        "What the kubelet says about a resize.",
        "Empty while all is well.",
    ],
)
def test_banned_words_are_found(text: str) -> None:
    assert list(banned(text))


@pytest.mark.parametrize(
    "text",
    [
        "Rounds up to a replica count.",
        "What a label says counts.",
        "Counts references to an object.",
        "Must not turn into a call for every autoscaler.",
        "Every OOM kill is counted once.",
        "A peer that never says goodbye.",
    ],
)
def test_other_meanings_pass(text: str) -> None:
    assert not list(banned(text))


def modules() -> list[Path]:
    return [
        path for path in sorted(SOURCES.rglob("*.py")) if not path.relative_to(SOURCES).as_posix().startswith(ELSEWHERE)
    ]


def test_docstrings_and_comments_use_kubernetes_words() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{line} {problem}"
        for path in modules()
        for line, text in prose(path.read_text())
        for problem in banned(text)
    ]
    assert found == []


def test_names_use_kubernetes_words() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{node.lineno} {name}: {word}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.arg | ast.Name)
        for name in (str(getattr(node, "name", "") or getattr(node, "arg", "") or getattr(node, "id", "")),)
        for pattern, word in NAMES.items()
        if re.search(pattern, name.lower())
    ]
    assert found == []


def test_documentation_uses_kubernetes_words() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    found = [
        f"{page.relative_to(ROOT)}:{number} {problem}"
        for page in pages
        for number, line in enumerate(page.read_text().splitlines(), 1)
        for problem in banned(line)
    ]
    assert found == []


def test_names_that_once_stood_for_several_things_stand_for_one() -> None:
    once = ("Audit", "Faults", "Outcome", "Target", "Verdict", "World")
    defined = [
        node.name for path in modules() for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)
    ]
    assert [name for name in once if defined.count(name) > 1] == []
