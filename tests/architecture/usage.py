"""Which names of the product its own code uses, read from the syntax trees.

A module's name counts as used when another function, class or module refers to it: by an import, as an attribute of
its imported module, or inside its own module but outside its own definition. Methods are told by name alone, because
a tree does not say of which class a value is.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Symbol = tuple[str, str]
"""A module and a name at its top level."""


@dataclass(slots=True)
class Usage:
    """What is defined and what is referred to."""

    defined: set[Symbol] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)
    """Names of methods and properties."""
    used: set[Symbol] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    """Names that stand behind a dot."""


def usage_of(root: Path, package: str) -> Usage:
    """Return what a package defines and what it refers to itself."""
    found = Usage()
    trees = dict(_trees(root, package))
    for module, tree in trees.items():
        found.defined |= {(module, name) for name in _top_level(tree)}
        found.methods |= {name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for name in _methods(node)}
    for module, tree in trees.items():
        found.used |= references(tree, module, set(trees))
        for statement in tree.body:
            found.attributes |= _attributes(statement)
    return found


def modules_of(usage: Usage) -> set[str]:
    """Return the modules that define anything."""
    return {module for module, _ in usage.defined}


def references(tree: ast.Module, module: str, modules: set[str]) -> set[Symbol]:
    """Return the top-level names of modules that a tree refers to."""
    found: set[Symbol] = set()
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in modules:
                    aliases[alias.asname or alias.name] = whole
                else:
                    found.add((node.module, alias.name))
    for statement in tree.body:
        own = getattr(statement, "name", None)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id != own:
                found.add((module, node.id))
            elif isinstance(node, ast.Attribute) and (dotted := _dotted(node.value)) in aliases:
                found.add((aliases[dotted], node.attr))
    return found


def attributes_of(tree: ast.Module) -> set[str]:
    """Return the names behind dots in a tree."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _attributes(statement: ast.stmt) -> set[str]:
    """Return the names behind dots, those in a definition of the same name left out: recursion is no use."""
    found: set[str] = set()
    stack: list[tuple[ast.AST, frozenset[str]]] = [(statement, frozenset())]
    while stack:
        node, inside = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside |= {node.name}
        if isinstance(node, ast.Attribute) and node.attr not in inside:
            found.add(node.attr)
        stack += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found


def _top_level(body: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in body.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def _methods(body: ast.ClassDef) -> Iterator[str]:
    yield from (node.name for node in body.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def _trees(root: Path, package: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(root.rglob("*.py")):
        parts = [package, *path.relative_to(root).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        yield ".".join(parts), ast.parse(path.read_text(encoding="utf-8"))
