"""Tasks live in a TaskGroup, however they are made: one that nobody waits for hides its errors."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src" / "kubetide"
MAKERS = {"create_task", "ensure_future", "run_coroutine_threadsafe"}


def stray_tasks(code: str) -> Iterator[int]:
    """Return the lines that make a task outside a group."""
    tree = ast.parse(code)
    groups = {name for node in ast.walk(tree) for name in _groups(node)}
    for node in ast.walk(tree):
        # A mere mention counts too: `make = loop.create_task` is the same in other words.
        match node:
            case ast.Attribute(value=owner, attr=name) if name in MAKERS and ast.unparse(owner) not in groups:
                yield node.lineno
            case ast.Name(id=name) | ast.Constant(value=name) if name in MAKERS:
                yield node.lineno
            case ast.ImportFrom(names=names) if any(alias.name in MAKERS for alias in names):
                yield node.lineno


def _groups(node: ast.AST) -> Iterator[str]:
    """Return the names that a statement binds to a TaskGroup."""
    if isinstance(node, ast.AsyncWith):
        for item in node.items:
            if _is_group(item.context_expr) and item.optional_vars is not None:
                yield ast.unparse(item.optional_vars)
    elif isinstance(node, ast.Assign) and _is_group(node.value):
        yield from (ast.unparse(target) for target in node.targets)
    elif isinstance(node, ast.arg) and node.annotation is not None and "TaskGroup" in ast.unparse(node.annotation):
        yield node.arg


def _is_group(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("asyncio.TaskGroup", "TaskGroup")


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("asyncio.create_task(work())", id="module"),
        pytest.param("asyncio.get_running_loop().create_task(work())", id="loop"),
        pytest.param("asyncio.ensure_future(work())", id="future"),
        pytest.param("from asyncio import create_task as go\ngo(work())", id="import"),
        pytest.param("make = loop.create_task\nmake(work())", id="alias"),
        pytest.param("getattr(loop, 'create_task')(work())", id="getattr"),
        pytest.param("group = Pool()\ngroup.create_task(work())", id="only-called-group"),
    ],
)
def test_every_spelling_is_found(code: str) -> None:
    assert list(stray_tasks(code))


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            "async def f():\n async with asyncio.TaskGroup() as group:\n  group.create_task(work())", id="context"
        ),
        pytest.param("def f(group: asyncio.TaskGroup):\n group.create_task(work())", id="argument"),
        pytest.param("self._group = asyncio.TaskGroup()\nself._group.create_task(work())", id="attribute"),
    ],
)
def test_a_group_may(code: str) -> None:
    assert not list(stray_tasks(code))


def test_no_task_is_made_outside_a_group() -> None:
    found = {
        f"{path.relative_to(SOURCES).as_posix()}:{line}"
        for path in SOURCES.rglob("*.py")
        for line in stray_tasks(path.read_text())
    }
    assert found == set()
