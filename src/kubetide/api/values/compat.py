"""Which release a component behaves like: an ordered version, and the rules that hold from a version on.

Every component has one table of rules. `--compat` names the version, decisions get it as a value, and the reference
page `docs/reference/compat.md` is made from the same rows that the code asks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubetide.errors import InvalidInput


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A release by its major and minor number; patch releases do not change behaviour."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One behaviour, and the release that brought it."""

    id: str
    since: Version
    meaning: str
    gate: str = ""
    """The feature gate that must be on as well."""
    always: bool = False
    """kubetide follows it whatever the version: the older behaviour was a defect, or nobody knows."""
    fix: bool = False
    """Of a rule that always holds: the older behaviour was a defect, which whoever compares releases may want back."""


@dataclass(frozen=True, slots=True)
class Compat:
    """The release that is followed; `exactly` takes back the fixes of later ones."""

    version: Version
    exactly: bool = False

    def has(self, rule: Rule) -> bool:
        """Return whether a rule holds."""
        if rule.always and not (rule.fix and self.exactly):
            return True
        return self.version >= rule.since

    def __str__(self) -> str:
        return str(self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A feature gate by release: where it exists, is on by default, and can no longer be changed."""

    name: str
    since: Version
    on_since: Version
    locked_since: Version | None = None
    meaning: str

    def default(self, version: Version) -> bool:
        """Return whether the gate is on in a release unless it is set."""
        return version >= self.on_since

    def locked(self, version: Version) -> bool:
        """Return whether the release has made the gate's default final."""
        return self.locked_since is not None and version >= self.locked_since


def rule_rows(rules: Iterable[Rule]) -> list[tuple[str, str, str, str]]:
    """Return a table of rules for people: rule, release, when it holds, meaning."""
    return [(rule.id, str(rule.since), _when(rule), rule.meaning) for rule in rules]


def _when(rule: Rule) -> str:
    if rule.always:
        return "always (fix)" if rule.fix else "always"
    return f"with `{rule.gate}`" if rule.gate else "from its release"


def parse_version(text: str, accepted: Sequence[Version]) -> Version:
    """Return one of the accepted versions; a leading `v` and a patch number are allowed."""
    parts = text.strip().removeprefix("v").split(".")
    if len(parts) in (2, 3) and all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts):
        version = Version(int(parts[0]), int(parts[1]))
        if version in accepted:
            return version
    raise InvalidInput(f"{text[:40]!r} is no version to be compatible with ({', '.join(map(str, accepted))})")
