"""Numbers do not depend on the CPU: nothing computes with functions whose last bit IEEE 754 leaves open.

`exp`, `log`, `pow` and their kin, and products of vectors and matrices, have other last bits on other CPUs, and one bit
moves a sample into another bucket. `kubetide.stats.powers` has what is needed instead. The syntax trees of all modules
are read; what may stay is listed with its reason.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastbit import MATH, NUMPY

SOURCE = Path(__file__).resolve().parents[2] / "src" / "kubetide"

BANNED = {
    "math": frozenset(MATH),
    "cmath": None,
    "statistics": None,
    "numpy": frozenset((*NUMPY, "interp", "linalg", "fft", "polynomial", "random", "cov", "corrcoef", "polyfit")),
}
"""Banned names by module; None bans them all. `numpy.interp` fuses its multiplication and addition on some CPUs."""
METHODS = frozenset(
    (
        "betavariate", "binomialvariate", "dot", "exp", "expovariate", "gammavariate", "gauss", "ln", "log10",
        "lognormvariate", "matmul", "normalvariate", "paretovariate", "vonmisesvariate", "weibullvariate",
    )
)  # fmt: skip
"""Of decimals, arrays and random generators, whatever these are called."""

EXCEPTIONS = {
    "buckets.py: _DECIMAL.ln": "decimal arithmetic is made of integers and rounds correctly",
    "buckets.py: _DECIMAL.exp": "decimal arithmetic is made of integers and rounds correctly",
    "quantity.py: 10 ** (-9 - exponent)": "integers",
    "quantity.py: 10 ** shift": "integers",
    "quantity.py: 10 ** (-shift)": "integers",
    "recommend.py: 1024 ** power": "integers, for people to read",
    "pacing.py: self.factor ** min(failures, 64)": "small whole factors: exact until the cap is reached",
    "config.py: 2 ** (bits - 1)": "integers",
    "metric.py: 5 ** attempt": "integers",
    "leader_election.py: 2 ** min(self._refused, 10)": "integers",
    "topology.py: 5 ** attempt": "integers",
    "powers.py: 2 ** (bits - 52)": "integers",
    "powers.py: (-1) ** k": "integers",
    "quality.py: 2.0 ** k": "powers of two, exact; edges of a metric",
    "telemetry.py: 2 ** i": "integers; edges of a metric",
    "telemetry.py: 10.0 ** i": "edges of a metric, which nothing decides on",
}


def inexact(tree: ast.Module) -> Iterator[str]:
    """Yield what a module computes with that may differ between CPUs."""
    modules, names = _imported(tree)
    yield from names
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=short), attr=name) if short in modules:
                banned = BANNED[modules[short]]
                if banned is None or name in banned:
                    yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
                yield ast.unparse(node.func)
            case ast.Call(func=ast.Name(id="pow")):
                yield ast.unparse(node)
            case ast.BinOp(op=ast.Pow(), right=power) | ast.AugAssign(op=ast.Pow(), value=power):
                if not _is_whole(power):
                    yield ast.unparse(node)
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
                yield ast.unparse(node)


def _imported(tree: ast.Module) -> tuple[dict[str, str], list[str]]:
    """Return by which names the modules are known, and what is imported from them that is banned."""
    modules: dict[str, str] = {}
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {one.asname or one.name: one.name for one in node.names if one.name in BANNED}
            found += [one.name for one in node.names if one.name.startswith(("numpy.linalg", "numpy.fft", "scipy"))]
        elif isinstance(node, ast.ImportFrom) and node.module in BANNED:
            banned = BANNED[node.module]
            found += [f"{node.module}.{one.name}" for one in node.names if banned is None or one.name in banned]
    return modules, found


def _is_whole(power: ast.expr) -> bool:
    if isinstance(power, ast.UnaryOp):
        return _is_whole(power.operand)
    return isinstance(power, ast.Constant) and isinstance(power.value, int)


def test_nothing_computes_with_what_differs_between_cpus() -> None:
    found = {
        f"{path.name}: {what}"
        for path in SOURCE.rglob("*.py")
        if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))
        for what in inexact(ast.parse(path.read_text()))
    }
    assert sorted(found - EXCEPTIONS.keys()) == [], "use kubetide.stats.powers, or list it with a reason"
    assert sorted(EXCEPTIONS.keys() - found) == [], "these exceptions are not needed any more"


@pytest.mark.parametrize(
    "code",
    [
        "import numpy as np\ny = np.exp(x)",
        "import numpy as np\ny = np.exp2(x)",
        "import numpy as np\ny = np.log1p(x)",
        "import numpy\ny = numpy.power(x, 2)",
        "import numpy as np\ny = np.dot(a, b)",
        "import numpy as np\ny = np.linalg.norm(a)",
        "from numpy import log",
        "import numpy.linalg",
        "import math\ny = math.exp2(x)",
        "import math as m\ny = m.log(x)",
        "import math\ny = math.pow(x, 2)",
        "import math\ny = list(map(math.cos, x))",
        "from math import expm1 as quick",
        "import statistics\ny = statistics.stdev(x)",
        "y = x ** 0.5",
        "y = x ** n",
        "y = 2.0 ** -(t / half_life)",
        "x **= n",
        "y = pow(x, n)",
        "y = a @ b",
        "a @= b",
        "y = a.dot(b)",
        "y = Decimal(x).ln()",
        "y = rng.gauss(0, 1)",
    ],
)
def test_what_differs_is_found(code: str) -> None:
    assert list(inexact(ast.parse(code))) != []


@pytest.mark.parametrize(
    "code",
    [
        "import numpy as np\ny = np.ldexp(x, n) + np.floor(x) * np.sqrt(x)",
        "import math\ny = math.ldexp(1.0, n) + math.ceil(x) + math.sqrt(x)",
        "y = 2**20 + x**2 + 10**-3",
        "@decorator\ndef f(): ...",
        "y = f(**options)",
        "log.info('scaled')",
    ],
)
def test_what_is_exact_passes(code: str) -> None:
    assert list(inexact(ast.parse(code))) == []
