"""The grammar of CEL: text to a tree of tuples, the operator first.

("literal", value) ("name", text) ("member", node, text) ("index", node, node) ("list", nodes) ("map", pairs)
("not", node) ("negative", node) ("binary", operator, left, right) ("and"|"or", left, right)
("choose", condition, yes, no) ("call", name, target or None, nodes)
"""

import re
from typing import Any

Node = tuple[Any, ...]

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|0x[0-9a-fA-F]+u?|\d+u?)
  | (?P<string>r?"(?:\\.|[^"\\])*"|r?'(?:\\.|[^'\\])*')
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<operator>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`"}
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("<", "<=", ">", ">=", "==", "!=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)


def parse(text: str) -> Node:
    """Return the tree of an expression; raise ValueError where it is not one."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def whole(self) -> Node:
        node = self._choice()
        if self._at != len(self._tokens):
            raise ValueError(f"unexpected {self._tokens[self._at][1]!r}")
        return node

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _kind(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _take(self, text: str = "") -> str:
        found = self._peek()
        if not found and self._at >= len(self._tokens):
            raise ValueError("the expression ends too early")
        if text and found != text:
            raise ValueError(f"expected {text!r}, found {found!r}")
        self._at += 1
        return found

    def _is(self, *texts: str) -> bool:
        return self._kind() in ("operator", "name") and self._peek() in texts

    def _choice(self) -> Node:
        condition = self._or()
        if not self._is("?"):
            return condition
        self._take("?")
        yes = self._or()
        self._take(":")
        return ("choose", condition, yes, self._choice())

    def _or(self) -> Node:
        left = self._and()
        while self._is("||"):
            self._take()
            left = ("or", left, self._and())
        return left

    def _and(self) -> Node:
        left = self._level(0)
        while self._is("&&"):
            self._take()
            left = ("and", left, self._level(0))
        return left

    def _level(self, number: int) -> Node:
        if number == len(_LEVELS):
            return self._unary()
        left = self._level(number + 1)
        while self._is(*_LEVELS[number]):
            operator = self._take()
            left = ("binary", operator, left, self._level(number + 1))
        return left

    def _unary(self) -> Node:
        if self._is("!"):
            self._take()
            return ("not", self._unary())
        if self._is("-"):
            self._take()
            return ("negative", self._unary())
        return self._postfix(self._primary())

    def _postfix(self, node: Node) -> Node:
        while self._is(".", "["):
            if self._take() == "[":
                node = ("index", node, self._choice())
                self._take("]")
                continue
            if self._kind() != "name":
                raise ValueError(f"expected a member, found {self._peek()!r}")
            name = self._take()
            if self._is("("):
                node = ("call", name, node, self._arguments())
            else:
                # A member that is a keyword in some languages is spelled with underscores around it.
                node = ("member", node, re.sub(r"^__(\w+)__$", r"\1", name))
        return node

    def _primary(self) -> Node:
        kind = self._kind()
        if kind == "number":
            return ("literal", _number(self._take()))
        if kind == "string":
            return ("literal", _string(self._take()))
        if kind == "name":
            return self._named()
        opened = self._take()
        if opened == "(":
            node = self._choice()
            self._take(")")
            return node
        if opened == "[":
            return ("list", self._sequence("]"))
        if opened == "{":
            return ("map", self._pairs())
        raise ValueError(f"unexpected {opened!r}")

    def _named(self) -> Node:
        name = self._take()
        constants = {"true": True, "false": False, "null": None}
        if name in constants:
            return ("literal", constants[name])
        if self._is("("):
            return ("call", name, None, self._arguments())
        return ("name", name)

    def _arguments(self) -> list[Node]:
        self._take("(")
        return self._sequence(")")

    def _sequence(self, end: str) -> list[Node]:
        items: list[Node] = []
        while not self._is(end):
            items.append(self._choice())
            if not self._is(end):
                self._take(",")
        self._take(end)
        return items

    def _pairs(self) -> list[tuple[Node, Node]]:
        pairs: list[tuple[Node, Node]] = []
        while not self._is("}"):
            key = self._choice()
            self._take(":")
            pairs.append((key, self._choice()))
            if not self._is("}"):
                self._take(",")
        self._take("}")
        return pairs


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    text = text.rstrip()
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ValueError(f"cannot read {text[position : position + 20]!r}")
        found.append((match.lastgroup, match.group(match.lastgroup)))
        position = match.end()
    return found


def _number(text: str) -> int | float:
    if text.startswith("0x"):
        return int(text.rstrip("u"), 16)
    if any(mark in text for mark in ".eE"):
        return float(text)
    return int(text.rstrip("u"))


def _string(text: str) -> str:
    if text.startswith("r"):
        return text[2:-1]
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match.group(1), match.group(1)), text[1:-1])
