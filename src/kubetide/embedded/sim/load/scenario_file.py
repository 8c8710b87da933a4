"""Scenarios from YAML. A mistake is refused with the file, the place it stands in, and the values that are valid there.

shop.yaml workloads[0].load.curve: 'sawtooth' is none of constant, step, ramp, diurnal, weekly, spike, trace
"""

import re
import types
import typing
from datetime import UTC
from pathlib import Path
from typing import Any

import msgspec

from kubetide.api.values.codec import parse_yaml
from kubetide.embedded.sim.load.scenario import Raw, Scenario, ScenarioError
from kubetide.embedded.sim.load.scenario_checks import check
from kubetide.errors import DecodeError

_WRONG_VALUE = re.compile(r"Invalid enum value ('.*')", re.DOTALL)
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file; traces it names lie beside it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ScenarioError(f"cannot be read: {error.strerror}", subject=str(path)) from error
    return parse_scenario(data, subject=path.name, directory=path.parent)


def parse_scenario(text: str | bytes, *, subject: str = "scenario", directory: Path | None = None) -> Scenario:
    """Return the scenario a YAML text describes; raise ScenarioError naming the field that is wrong."""
    try:
        raw = parse_yaml(text, what=subject)
    except DecodeError as error:
        raise ScenarioError(error.message, subject=error.subject, field=error.field) from error
    if not isinstance(raw, dict):
        raise ScenarioError("is no scenario: it must be a mapping", subject=subject)
    if "source" in raw:
        raise ScenarioError(_unknown("source", Scenario), subject=subject)
    for load, place in _loads(raw):
        _inline_trace(load, f"{place}.file", subject, directory)
    try:
        scenario = msgspec.convert(raw, Scenario, strict=True)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        place = where.rstrip("`").lstrip(".")
        raise ScenarioError(with_valid_values(message, place), subject=subject, field=place) from error
    if scenario.start.tzinfo is None:
        scenario = msgspec.structs.replace(scenario, start=scenario.start.replace(tzinfo=UTC))
    scenario = msgspec.structs.replace(scenario, source=subject)
    check(scenario, subject)
    return scenario


def _loads(raw: Raw) -> list[tuple[Raw, str]]:
    """Return every load in a scenario as it was written, with its place."""
    found: list[tuple[Any, str]] = []
    for part in ("workloads", "events"):
        entries = raw.get(part)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                found.append((entry.get("load"), f"{part}[{index}].load"))
    metrics = raw.get("metrics")
    external = metrics.get("external") if isinstance(metrics, dict) else None
    for name, load in (external if isinstance(external, dict) else {}).items():
        found.append((load, f"metrics.external.{name}"))
    return [(load, place) for load, place in found if isinstance(load, dict)]


def _inline_trace(load: Raw, place: str, subject: str, directory: Path | None) -> None:
    """Replace the file name of a trace by its text, so that a scenario is complete in itself."""
    name = load.get("file")
    if load.get("curve") != "trace" or not isinstance(name, str) or "\n" in name:
        return
    try:
        load["file"] = ((directory or Path()) / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ScenarioError(f"the trace {name} cannot be read: {why}", subject=subject, field=place) from error


def with_valid_values(message: str, place: str) -> str:
    """Return what is wrong at a place, with what would be right there."""
    kind = _type_at(place)
    if (wrong := _WRONG_VALUE.search(message)) and (values := _choices(kind)):
        return f"{wrong[1]} is none of {', '.join(values)}"
    if (unknown := _UNKNOWN_FIELD.search(message)) and _is_struct(kind):
        return _unknown(unknown[1], kind)
    return message


def _unknown(name: str, kind: Any) -> str:
    names = [field.encode_name for field in msgspec.structs.fields(kind) if field.encode_name != "source"]
    return f"there is no field {name!r}; there are {', '.join(names)}"


def _type_at(place: str) -> Any:
    """Return the type that a scenario has at a place such as `workloads[0].load.curve`."""
    kind: Any = Scenario
    for name in re.findall(r"\[[^\]]*\]|[^.\[\]]+", place):
        kind = _plain(kind)
        if typing.get_origin(kind) in (list, dict, tuple):
            arguments = typing.get_args(kind)
            kind = arguments[-1] if typing.get_origin(kind) is dict else arguments[0]
        elif _is_struct(kind):
            kind = next((f.type for f in msgspec.structs.fields(kind) if f.encode_name == name), None)
    return _plain(kind)


def _plain(kind: Any) -> Any:
    """Return a type without the None that it also takes."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        rest = [each for each in typing.get_args(kind) if each is not type(None)]
        return rest[0] if len(rest) == 1 else kind
    return kind


def _choices(kind: Any) -> list[str]:
    return [str(value) for value in typing.get_args(kind)] if typing.get_origin(kind) is typing.Literal else []


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
