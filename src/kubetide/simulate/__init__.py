"""The closed loop: whole controllers on the simulated cluster, one policy beside the other.

`run` is the library's door to it; docs/library/simulate.md has examples.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubetide.embedded.sim.load.scenario_file import load_scenario as load_scenario
    from kubetide.simulate.runs import Options as Options
    from kubetide.simulate.runs import Simulated as Simulated
    from kubetide.simulate.runs import run as run
    from kubetide.simulate.variants import Variant as Variant

_HOMES = {
    "Options": "kubetide.simulate.runs",
    "Simulated": "kubetide.simulate.runs",
    "Variant": "kubetide.simulate.variants",
    "load_scenario": "kubetide.embedded.sim.load.scenario_file",
    "run": "kubetide.simulate.runs",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
