"""Command lines as Go programs take them, so that existing manifests keep working.

`-flag=x`, `--flag=x`, `--flag x`, `--flag` and `--flag=true` for switches, `_` for `-`. A name that several
components share may be prefixed by one of them (`--recommender.kube-api-qps=50`). Flags of klog that only say how to
log are accepted and passed over; `--v` sets the verbosity.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kubetide.config import Option
from kubetide.errors import SettingsError

_KLOG_SWITCHES = frozenset(
    {"add-dir-header", "alsologtostderr", "logtostderr", "one-output", "skip-headers", "skip-log-headers"}
)
KLOG_FLAGS = _KLOG_SWITCHES | {
    "log-backtrace-at",
    "log-dir",
    "log-file",
    "log-file-max-size",
    "log-flush-frequency",
    "stderrthreshold",
    "vmodule",
}


_LONGEST_VERBOSITY = 9


@dataclass(slots=True)
class ParsedFlags:
    """What a command line said: values by flag name for each section, and the words that were no flags."""

    by_section: dict[str, dict[str, str]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    verbosity: int | None = None


def parse_flags(arguments: Sequence[str], known: Mapping[str, Iterable[Option]]) -> ParsedFlags:
    """Sort `arguments` by section. `known` maps each section to its options."""
    table: dict[str, list[tuple[str, str, bool]]] = {}
    for section, found in known.items():
        for option in found:
            for name in (option.flag, *option.aliases):
                for spelling in (name, f"{section}.{name}"):
                    table.setdefault(spelling, []).append((section, name, option.is_bool))
    parsed = ParsedFlags(by_section={section: {} for section in known})
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            parsed.words.extend(rest)
            break
        if not word.startswith("-") or word == "-":
            parsed.words.append(word)
            continue
        _take(word, rest, table, parsed)
    return parsed


def _take(word: str, rest: list[str], table: Mapping[str, list[tuple[str, str, bool]]], parsed: ParsedFlags) -> None:
    name, equals, value = word.lstrip("-").partition("=")
    name = name.replace("_", "-")
    if name == "v":
        text = value if equals else _next(rest, name)
        if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_VERBOSITY:
            raise SettingsError(f"cannot use {text!r}: must be a whole number", field="flag --v")
        parsed.verbosity = int(text)
        return
    if name in KLOG_FLAGS and name not in table:
        if not equals and name not in _KLOG_SWITCHES:
            _next(rest, name)
        return
    targets = table.get(name)
    if targets is None:
        close = difflib.get_close_matches(name, table, n=1)
        hint = f"; did you mean --{close[0]}?" if close else ""
        raise SettingsError(f"unknown flag{hint}", field=f"--{name}")
    if not equals:
        value = "true" if targets[0][2] else _next(rest, name)
    for section, flag, _ in targets:
        parsed.by_section[section][flag] = value


def _next(rest: list[str], name: str) -> str:
    if not rest:
        raise SettingsError("a value must follow", field=f"flag --{name}")
    return rest.pop(0)
