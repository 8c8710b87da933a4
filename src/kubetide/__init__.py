"""kubetide keeps Kubernetes workloads the right size.

What is meant for users of the library is in `kubetide.testing`, `kubetide.hpa`, `kubetide.vpa`, `kubetide.node`,
`kubetide.recommend`, `kubetide.replay` and `kubetide.simulate`, each with its `__all__` (docs/library); all else
may change with any release. They are imported when first used.
"""

from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"
__all__ = ["__version__", "hpa", "node", "recommend", "replay", "simulate", "testing", "vpa"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
