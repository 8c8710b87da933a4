"""How settings are declared: once, with their meaning, and everything else follows from the declaration.

    class HpaSettings(Settings):
        section = "hpa"
        sync_period: Annotated[timedelta, Doc("How often …", flag="horizontal-pod-autoscaler-sync-period")] = …

From this come the command line flag (upstream's name where there is one), the environment variable
(`KUBETIDE_HPA_SYNC_PERIOD`), the key in a YAML file (`hpa: {sync_period: 30s}`) and the reference page. A flag beats
the environment, the environment beats the file, the file beats the default. A value that cannot be used raises
`SettingsError` and names the setting and where it came from.
"""

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from kubetide.durations import format_duration, parse_duration
from kubetide.errors import InvalidInput, SettingsError

ENV_PREFIX = "KUBETIDE_"


@dataclass(frozen=True, slots=True)
class Doc:
    """What a setting means and costs, for people; `flag` where upstream has a name of its own.

    The range is part of the declaration. Numbers and durations are finite and not negative unless `minimum` says
    otherwise (None: any). `choices` are the values that a text, or each item of a list, may have.
    """

    text: str
    flag: str = ""
    aliases: tuple[str, ...] = ()
    minimum: float | None = 0.0
    maximum: float | None = None
    choices: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all settings: immutable, every field with a default."""

    section: ClassVar[str] = ""
    """The name of this group in the environment, in YAML and as a flag prefix."""

    def __repr__(self) -> str:
        """Show every value but tokens and passwords: settings end up in logs and in bug reports."""
        shown = (
            f"{name}={'<hidden>' if name.endswith(('token', 'password')) and value else repr(value)}"
            for name, value in msgspec.structs.asdict(self).items()
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def selection(*names: str) -> tuple[str, ...]:
    """Return the choices of a list in the grammar of Go's controllers: a name, `*` for all, `-name` for all but it."""
    return ("*", *names, *(f"-{name}" for name in names))


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Option:
    """One setting, read off its declaration."""

    name: str
    section: str
    flag: str
    aliases: tuple[str, ...]
    type: Any
    default: Any
    doc: str
    minimum: float | None = 0.0
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def env(self) -> str:
        """The environment variable."""
        section = f"{self.section.upper().replace('-', '_')}_" if self.section else ""
        return f"{ENV_PREFIX}{section}{self.name.upper()}"

    @property
    def is_bool(self) -> bool:
        """A flag that may stand without a value."""
        return self.type is bool

    def parse(self, text: str) -> Any:
        """Turn text from a flag or the environment into the value, which lies in the declared range."""
        return self.check(_parse(text, self.type))

    def check(self, value: Any) -> Any:
        """Return the value, or raise InvalidInput for one that cannot be meant."""
        if self.choices:
            unknown = [each for each in (value if isinstance(value, tuple) else (value,)) if each not in self.choices]
            if unknown:
                known = ", ".join(choice or "nothing" for choice in self.choices)
                raise InvalidInput(f"unknown {unknown[0]!r}; must be one of {known}")
        number = value.total_seconds() if isinstance(value, timedelta) else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            return value
        below = self.minimum is not None and number < self.minimum
        above = self.maximum is not None and number > self.maximum
        if below or above or not math.isfinite(number):
            raise InvalidInput(f"must be {self.range or 'a finite number'}")
        return value

    @property
    def range(self) -> str:
        """The range in words; empty where there is none."""
        unit = " seconds" if self.type is timedelta else ""
        low, high = self.minimum, self.maximum
        if low is not None and high is not None:
            return f"between {low:g} and {high:g}{unit}"
        if low is not None:
            return f"{low:g}{unit.rstrip('s') if low == 1 else unit} or more"
        return f"{high:g}{unit} or less" if high is not None else ""

    def show(self, value: Any) -> str:
        """Return the text that would parse to `value`."""
        return _show(value)


def options(kind: type[Settings]) -> tuple[Option, ...]:
    """Read the settings off a class, in the order of declaration."""
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        doc = Doc("")
        if get_origin(hint) is Annotated:
            hint, *extras = get_args(hint)
            doc = next((extra for extra in extras if isinstance(extra, Doc)), doc)
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        flag = doc.flag or field.name.replace("_", "-")
        own = field.name.replace("_", "-")
        aliases = doc.aliases if own == flag else (*doc.aliases, own)
        found.append(
            Option(
                field.name,
                kind.section,
                flag,
                aliases,
                hint,
                default,
                doc.text,
                minimum=doc.minimum,
                maximum=doc.maximum,
                choices=doc.choices,
            )
        )
    return tuple(found)


def load(
    kind: type[S],
    *,
    flags: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    file: Mapping[str, Any] | None = None,
) -> S:
    """Build settings from flags (by flag name), the environment and one section of a YAML file."""
    values: dict[str, Any] = {}
    unused = {str(key).replace("-", "_"): value for key, value in (file or {}).items()}
    for option in options(kind):
        if option.name in unused:
            values[option.name] = _from_file(option, unused.pop(option.name))
        if env and option.env in env:
            values[option.name] = _named(option.parse, env[option.env], f"environment variable {option.env}")
        for name in (option.flag, *option.aliases):
            if flags and name in flags:
                values[option.name] = _named(option.parse, flags[name], f"flag --{name}")
    if unused:
        raise SettingsError(_unknown(sorted(unused)[0], kind), subject=kind.section, field=sorted(unused)[0])
    return kind(**values)


def _unknown(name: str, kind: type[Settings]) -> str:
    import difflib  # only for the error: it takes long to import

    close = difflib.get_close_matches(name, [option.name for option in options(kind)], n=1)
    hint = f"did you mean {close[0]}?" if close else f"`kubetide settings {kind.section}` lists all"
    return f"unknown setting; {hint}"


def _from_file(option: Option, value: Any) -> Any:
    where = f"setting {option.section}.{option.name}" if option.section else f"setting {option.name}"
    if isinstance(value, list) and _is_tuple(option.type):
        return _named(option.parse, ",".join(str(item) for item in value), where)
    if isinstance(value, bool):
        value = "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise SettingsError(f"cannot use {value!r}", field=where)
    return _named(option.parse, str(value), where)


def _named(parse: Callable[[str], Any], text: str, where: str) -> Any:
    try:
        return parse(text)
    except (InvalidInput, ValueError) as error:
        raise SettingsError(f"cannot use {text!r}: {error}", field=where) from error


def _parse(text: str, kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        members = [member for member in get_args(kind) if member is not type(None)]
        if text == "" and type(None) in get_args(kind):
            return None
        return _parse(text, members[0])
    if _is_tuple(kind):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind is bool:
        return _parse_bool(text)
    if kind is timedelta:
        return parse_duration(text)
    if kind is int:
        return int(text.strip())
    if kind is float:
        return float(text)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _parse_enum(text, kind)
    if kind is Path:
        return Path(text)
    return text


def _parse_bool(text: str) -> bool:
    # The spellings that Go's flag package accepts.
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise InvalidInput("must be true or false")


def _parse_enum(text: str, kind: type[Enum]) -> Enum:
    for member in kind:
        if str(member.value).lower() == text.lower():
            return member
    raise InvalidInput(f"must be one of {', '.join(str(member.value) for member in kind)}")


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _show(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    if isinstance(value, Enum):
        return str(value.value)
    return str(value)
