"""Vectors prove the product: an adapter asks what production asks, and no function lives on for tests alone."""

import ast
from pathlib import Path

import pytest

from architecture.usage import Usage, attributes_of, modules_of, references, usage_of

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = sorted((ROOT / "tests" / "conformance" / "adapters").glob("*.py"))


@pytest.fixture(scope="module")
def product() -> Usage:
    return usage_of(ROOT / "src" / "kubetide", "kubetide")


def unused(tree: ast.Module, product: Usage) -> list[str]:
    """Return the names of the product in a tree that nothing in the product uses."""
    named = references(tree, "adapter", modules_of(product))
    alone = [f"{module}.{name}" for module, name in (named & product.defined) - product.used]
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    methods = [f".{name}" for name in (attributes_of(tree) & product.methods) - product.attributes - own]
    return sorted(alone + methods)


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.stem)
def test_an_adapter_names_only_what_the_product_uses(path: Path, product: Usage) -> None:
    assert unused(ast.parse(path.read_text(encoding="utf-8")), product) == []


PACKAGE = {
    "__init__.py": "",
    "used.py": "def shared():\n    return 1\n\ndef alone():\n    return alone()\n\nclass Thing:\n"
    "    def asked(self):\n        return 1\n\n    def forgotten(self):\n        return self.forgotten()\n",
    "caller.py": "from package import used\n\nVALUE = used.shared() + used.Thing().asked()\n",
}


@pytest.mark.parametrize(
    ("adapter", "expected"),
    [
        pytest.param("from package.used import shared\n", [], id="what-production-calls"),
        pytest.param("from package.used import alone\n", ["package.used.alone"], id="by-import"),
        pytest.param("from package import used\nused.alone()\n", ["package.used.alone"], id="by-module"),
        pytest.param("import package.used as u\nu.alone()\n", ["package.used.alone"], id="by-alias"),
        pytest.param("thing.asked()\n", [], id="a-method-that-production-calls"),
        pytest.param("thing.forgotten()\n", [".forgotten"], id="a-method"),
    ],
)
def test_the_rule_bites(adapter: str, expected: list[str], tmp_path: Path) -> None:
    for name, text in PACKAGE.items():
        (tmp_path / name).write_text(text)
    assert unused(ast.parse(adapter), usage_of(tmp_path, "package")) == expected
