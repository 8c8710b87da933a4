"""Another CPU, as far as arithmetic goes: every function that IEEE 754 leaves open answers one last bit off.

NumPy and the C library may return either neighbour of the nearest float from `exp`, `log`, `pow` and their kin, and do
so differently on different CPUs. `another_cpu` makes all of them wrong at once, in one direction. What comes out the
same in both directions does not depend on them.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

MATH = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "dist", "erf", "erfc", "exp",
    "exp2", "expm1", "gamma", "hypot", "lgamma", "log", "log10", "log1p", "log2", "pow", "sin", "sinh", "tan", "tanh",
)  # fmt: skip
NUMPY = (
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cbrt", "convolve", "correlate", "cos",
    "cosh", "dot", "einsum", "exp", "exp2", "expm1", "float_power", "geomspace", "hypot", "inner", "log", "log10",
    "log1p", "log2", "logaddexp", "logaddexp2", "logspace", "matmul", "power", "sin", "sinc", "sinh", "tan", "tanh",
    "tensordot", "vdot",
)  # fmt: skip


@contextmanager
def another_cpu(direction: int) -> Iterator[None]:
    """Be one unit in the last place higher (+1) or lower (−1) wherever a CPU may be; 0 changes nothing."""
    originals: list[tuple[Any, str, Any]] = [
        (module, name, getattr(module, name))
        for module, names in ((math, MATH), (np, NUMPY))
        for name in names
        if direction and hasattr(module, name)
    ]
    try:
        for module, name, original in originals:
            setattr(module, name, _off(original, direction * math.inf))
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)


def _off(original: Callable[..., Any], toward: float) -> Callable[..., Any]:
    def off(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if isinstance(result, float):
            return math.nextafter(result, toward)
        return np.nextafter(result, toward) if np.asarray(result).dtype.kind == "f" else result

    return off
