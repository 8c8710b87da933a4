"""Scenarios that come with kubetide."""

from importlib.resources import files

from kubetide.embedded.sim.load.scenario import Scenario, ScenarioError
from kubetide.embedded.sim.load.scenario_file import parse_scenario


def names() -> tuple[str, ...]:
    """Return the names of all scenarios."""
    found = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


def load(name: str) -> Scenario:
    """Return one of the scenarios that come with kubetide."""
    if name not in names():
        raise ScenarioError(f"no scenario of that name; there are {', '.join(names())}", subject=name)
    text = files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return parse_scenario(text, subject=f"{name}.yaml")
