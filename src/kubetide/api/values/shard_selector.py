"""Shard selectors: one more filter of LIST and WATCH, by ranges of the hash of an object's uid or namespace.

    shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000') || shardRange(…)

The text is a CEL expression in which nothing but `shardRange` and `||` may occur. An object belongs to a selector
when `start <= FNV-1a(field) < end` for one of the ranges. A server without the feature ignores the parameter, so a
client filters by itself as well. By the name of objects (`NAME`) only a client can filter: that is never sent.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kubetide.errors import SelectorError

UID = "object.metadata.uid"
NAMESPACE = "object.metadata.namespace"
FIELDS = (UID, NAMESPACE)
NAME = "object.metadata.name"
HASHES = 2**64
_OFFSET_BASIS, _PRIME = 14695981039346656037, 1099511628211
_MAX_TEXT = 64 * 1024
_MOST_REMEMBERED = 10_000
_HEX = re.compile(r"0x[0-9a-f]{16}")
_END_OF_HASHES = f"{HASHES:#x}"


@dataclass(frozen=True, slots=True)
class ShardRange:
    """One range of hashes of a field, its end excluded."""

    field: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"shardRange({self.field}, '{_hex(self.start)}', '{_hex(self.end)}')"


@dataclass(frozen=True, slots=True)
class ShardSelector:
    """Ranges of one field; any of them may hold an object. Without ranges nothing matches, and nobody need ask."""

    ranges: tuple[ShardRange, ...]
    _namespaces: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Namespaces that were looked at: many objects share one, and a share may have a hundred ranges."""

    @property
    def field(self) -> str:
        """The field whose hash is looked at."""
        return self.ranges[0].field

    @property
    def query(self) -> str:
        """The selector as it is sent to an API server; empty where only the client can filter."""
        return "" if self.ranges and self.field == NAME else str(self)

    def matches(self, uid: str, namespace: str, name: str = "") -> bool:
        """Return whether an object belongs to the shard; cluster-scoped objects have the empty namespace."""
        if not self.ranges:
            return False
        if self.field != NAMESPACE:
            return self._holds(uid if self.field == UID else name)
        known = self._namespaces.get(namespace)
        if known is None:
            if len(self._namespaces) >= _MOST_REMEMBERED:
                self._namespaces.clear()
            known = self._namespaces[namespace] = self._holds(namespace)
        return known

    def _holds(self, value: str) -> bool:
        found = shard_hash(value)
        return any(one.start <= found < one.end for one in self.ranges)

    def covers(self, other: "ShardSelector") -> bool:
        """Return whether each range of another selector lies in a range of this one."""
        return all(
            any(mine.field == one.field and mine.start <= one.start and one.end <= mine.end for mine in self.ranges)
            for one in other.ranges
        )

    def __str__(self) -> str:
        return " || ".join(map(str, self.ranges))


def shard_hash(value: str) -> int:
    """Return the FNV-1a hash of a text, 64 bits."""
    found = _OFFSET_BASIS
    for byte in value.encode("utf-8", "surrogatepass"):
        found = (found ^ byte) * _PRIME % HASHES
    return found


def shard_of(index: int, count: int, field: str) -> ShardSelector:
    """Return shard `index` of `count` that together hold every object exactly once."""
    if not 0 <= index < count:
        raise SelectorError(f"shard {index} of {count} does not exist: the first is 0, the last {count - 1}")
    return ShardSelector((ShardRange(field, index * HASHES // count, (index + 1) * HASHES // count),))


def parse_shard_selector(text: str) -> ShardSelector:
    """Parse a selector; SelectorError says what is wrong with it."""
    if not text.strip():
        raise SelectorError("an empty shard selector is not allowed: leave the parameter out")
    if len(text) > _MAX_TEXT:
        raise SelectorError(f"a shard selector may have {_MAX_TEXT} characters")
    parser = _Parser(_tokens(text))
    ranges = parser.alternatives()
    parser.expect("")
    if len({one.field for one in ranges}) > 1:
        raise SelectorError("all ranges of a shard selector must be of the same field")
    return ShardSelector(tuple(ranges))


def _hex(number: int) -> str:
    return f"0x{number:016x}"


@dataclass(frozen=True, slots=True)
class _Token:
    """A piece of the text: an operator as itself, a name (`name`), or a string literal (`string`) with its value."""

    kind: str
    value: str = ""


_BLANK = re.compile(r"(?:[ \t\r\n\f]|//[^\n]*)+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r"\|\||[().,]")
_QUOTED = re.compile(
    r"""(?P<long>\"{3}|'{3})(?P<many>(?:\\.|(?!(?P=long))[^\\])*)(?P=long)
      | (?P<short>["'])(?P<one>(?:\\[^\n\r]|(?!(?P=short))[^\\\n\r])*)(?P=short)""",
    re.DOTALL | re.VERBOSE,
)
_RAW = re.compile(
    r"""[rR](?:(?P<long>\"{3}|'{3})(?P<many>.*?)(?P=long)|(?P<short>["'])(?P<one>[^\n\r]*?)(?P=short))""", re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {c: c for c in "\\?\"'`"}


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
        elif string := _RAW.match(text, at) or _QUOTED.match(text, at):
            inner = string["many"] if string["long"] else string["one"]
            found.append(_Token("string", inner if string.re is _RAW else _unescaped(inner)))
            at = string.end()
        elif name := _NAME.match(text, at):
            at = name.end()
            if text[at : at + 1] in ("'", '"'):
                raise SelectorError(f"{name[0]}'…' is no string literal")
            found.append(_Token("name", name[0]))
        elif operator := _OPERATOR.match(text, at):
            found.append(_Token(operator[0]))
            at = operator.end()
        else:
            raise SelectorError(f"unexpected {text[at : at + 12]!r} at position {at}")
    found.append(_Token(""))
    return found


def _unescaped(text: str) -> str:
    def value(escape: re.Match[str]) -> str:
        x, u, long, octal, simple = escape.groups()
        if code := x or u or long:
            number = int(code, 16)
        elif octal:
            number = int(octal, 8)
        elif simple in _SIMPLE:
            return _SIMPLE[simple]
        else:
            raise SelectorError(f"{escape[0]!r} is no escape sequence")
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise SelectorError(f"{escape[0]!r} is no character")
        return chr(number)

    return _ESCAPE.sub(value, text)


class _Parser:
    """Recursive descent over the tokens; parentheses may stand around anything."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def expect(self, kind: str) -> _Token:
        token = self._tokens[self._at]
        if token.kind != kind:
            raise SelectorError(f"expected {kind or 'the end'}, found {token.value or token.kind or 'the end'}")
        self._at += 1
        return token

    def alternatives(self) -> list[ShardRange]:
        found = self._term()
        while self._accept("||"):
            found += self._term()
        return found

    def _accept(self, kind: str) -> bool:
        if self._tokens[self._at].kind != kind:
            return False
        self._at += 1
        return True

    def _term(self) -> list[ShardRange]:
        if self._tokens[self._at].kind == "(" and not self._starts_receiver():
            self._enter()
            found = self.alternatives()
            self._leave()
            return found
        path = self._path()
        if path[-1] != "shardRange":
            raise SelectorError(f"{'.'.join(path)}: only shardRange() and || are allowed")
        self.expect("(")
        field = ".".join(self._path())
        if field not in FIELDS:
            raise SelectorError(f"field {field} is not supported ({', '.join(FIELDS)})")
        self.expect(",")
        start = self._hash("start")
        self.expect(",")
        end = self._hash("end")
        self.expect(")")
        if start >= end:
            raise SelectorError(f"the start {_hex(start)} of a range must be below its end {_hex(end)}")
        return [ShardRange(field, start, end)]

    def _starts_receiver(self) -> bool:
        """Return whether the parenthesis belongs to what stands before `.shardRange`, which is ignored."""
        depth = 0
        for position in range(self._at, len(self._tokens)):
            kind = self._tokens[position].kind
            depth += (kind == "(") - (kind == ")")
            if depth == 0:
                return self._tokens[position + 1].kind == "." if kind == ")" else False
        return False

    def _path(self) -> list[str]:
        if self._tokens[self._at].kind == "(":
            self._enter()
            found = self._path()
            self._leave()
        else:
            found = [self.expect("name").value]
        while self._accept("."):
            found.append(self.expect("name").value)
        return found

    def _hash(self, which: str) -> int:
        if self._tokens[self._at].kind == "(":
            self._enter()
            found = self._hash(which)
            self._leave()
            return found
        text = self.expect("string").value
        if _HEX.fullmatch(text) is None and text != _END_OF_HASHES:
            raise SelectorError(f"the {which} {text[:40]!r} must be 0x and 16 digits 0-9a-f, or {_END_OF_HASHES}")
        return int(text, 16)

    def _enter(self) -> None:
        self.expect("(")
        self._depth += 1
        if self._depth > 100:
            raise SelectorError("parentheses are nested too deeply")

    def _leave(self) -> None:
        self.expect(")")
        self._depth -= 1
