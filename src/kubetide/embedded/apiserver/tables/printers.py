"""The columns of each kind of object, and how its cells are read from it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import ResourceKey

Cell = str | int | float | bool | None
Cells = Callable[[Raw, datetime | None], list[Cell]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; a priority above 0 is shown with `-o wide` only."""

    name: str
    type: str = "string"
    priority: int = 0
    description: str = ""


NAME = Column("Name")
AGE = Column("Age")


def name_of(obj: Raw) -> str:
    """Return the name of an object, empty if it has none."""
    return str(obj["metadata"].get("name", ""))


def part_of(obj: Raw, name: str) -> Raw:
    """Return a part of an object, empty if there is none or it is no mapping."""
    part = obj.get(name)
    return part if isinstance(part, dict) else {}


def text_columns(*names: str, wide: tuple[str, ...] = ()) -> tuple[Column, ...]:
    """Return a name column, the given ones, an age column and those for wide output."""
    return (NAME, *(Column(name) for name in names), AGE, *(Column(name, priority=1) for name in wide))


def age(obj: Raw, now: datetime | None) -> str:
    """Return how long ago an object was created, as kubectl writes it."""
    return since(obj["metadata"].get("creationTimestamp"), now)


def since(moment: Any, now: datetime | None) -> str:
    """Return the time between a timestamp and now in at most two units."""
    if not isinstance(moment, str) or now is None:
        return "<unknown>"
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return "<invalid>"
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return duration_text((now - then).total_seconds())


def duration_text(seconds: float) -> str:
    """Return a duration the way kubectl rounds it: precise when short, coarse when long."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 10:
        rest = whole % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if years < 8 and rest else f"{years}y"


_GENERIC = (NAME, Column("Age"))


def _generic(obj: Raw, now: datetime | None) -> list[Cell]:
    return [obj["metadata"].get("name", ""), age(obj, now)]


_PRINTERS: dict[ResourceKey, tuple[tuple[Column, ...], Cells]] = {}


def register(group: str, plural: str, columns: tuple[Column, ...], cells: Cells) -> None:
    """Register how the objects of a resource are printed."""
    _PRINTERS[ResourceKey(group, plural)] = (columns, cells)


def printer_for(resource: ApiResource) -> tuple[tuple[Column, ...], Cells]:
    """Return the columns of a resource and the function that fills them."""
    if resource.crd is not None:
        return _custom(resource.crd.columns)
    return _PRINTERS.get(resource.storage, (_GENERIC, _generic))


def _custom(declared: tuple[Raw, ...]) -> tuple[tuple[Column, ...], Cells]:
    if not declared:
        return _GENERIC, _generic
    columns = [
        NAME,
        *(
            Column(
                str(item.get("name", "")),
                str(item.get("type", "string")),
                int(item.get("priority") or 0),
                str(item.get("description") or ""),
            )
            for item in declared
        ),
    ]

    def cells(obj: Raw, now: datetime | None) -> list[Cell]:
        found: list[Cell] = [obj["metadata"].get("name", "")]
        for item in declared:
            value = path_value(obj, str(item.get("jsonPath", "")))
            if item.get("type") == "date":
                found.append(since(value, now) if value is not None else None)
            elif value is None:
                found.append("")
            elif item.get("type") in ("integer", "number", "boolean") and not isinstance(value, (dict, list)):
                found.append(value)
            else:
                found.append(_text(value))
        return found

    return tuple(columns), cells


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + " ".join(_text(item) for item in value) + "]"
    return str(value)


def path_value(obj: Any, path: str) -> Any:
    """Return the first value at a JSONPath of the kind CRDs use: members, indexes, `[*]` and `[?(@.a=="b")]`."""
    values = [obj]
    for token in re.findall(r"\.[A-Za-z0-9_\-/$]+|\[[^\]]*\]|\.\*", path):
        values = [below for value in values for below in _step(value, token)]
    return values[0] if values else None


def _step(value: Any, token: str) -> list[Any]:
    if token.startswith("."):
        name = token[1:]
        if name == "*":
            return list(value.values()) if isinstance(value, dict) else []
        return [value[name]] if isinstance(value, dict) and value.get(name) is not None else []
    inner = token[1:-1].strip()
    if inner == "*":
        return value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    if inner.startswith(("'", '"')):
        name = inner[1:-1]
        return [value[name]] if isinstance(value, dict) and value.get(name) is not None else []
    match = re.fullmatch(r"\?\(\s*@\.([\w.\-]+)\s*==\s*[\"']([^\"']*)[\"']\s*\)", inner)
    if match and isinstance(value, list):
        return [item for item in value if isinstance(item, dict) and str(item.get(match.group(1))) == match.group(2)]
    if re.fullmatch(r"-?\d+", inner) and isinstance(value, list):
        index = int(inner)
        return [value[index]] if -len(value) <= index < len(value) else []
    return []
