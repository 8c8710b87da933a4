"""Label and field selectors: parse, print canonically, match.

A selector is a list of requirements that must all hold. Two spellings exist: the text form
(`app=web,tier in (a,b),!legacy,n>5`) and the object form (`matchLabels`, `matchExpressions`). Both become one
`Selector`. The canonical text sorts requirements by key and values by text, so that equal selectors print alike.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum

import msgspec

from kubetide.api.objects.meta import ApiObject
from kubetide.errors import SelectorError


class Operator(Enum):
    """How a requirement looks at a label."""

    EXISTS = "exists"
    NOT_EXISTS = "!"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    IN = "in"
    NOT_IN = "notin"
    GREATER = "gt"
    LESS = "lt"


_EQUALS = Operator.EQUALS


class Requirement(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        operator = self.operator
        if operator is _EQUALS:
            return value in self.values
        match operator:
            case Operator.EXISTS:
                return value is not None
            case Operator.NOT_EXISTS:
                return value is None
            case Operator.EQUALS | Operator.DOUBLE_EQUALS | Operator.IN:
                return value in self.values
            case Operator.NOT_EQUALS | Operator.NOT_IN:
                # A label that is not there is not equal to anything.
                return value is None or value not in self.values
            case Operator.GREATER | Operator.LESS:
                return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        number, bound = parse_int64(value), parse_int64(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if self.operator is Operator.GREATER else number < bound

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.NOT_EXISTS:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator.value} ({','.join(sorted(self.values))})"
            case Operator.GREATER | Operator.LESS:
                sign = ">" if self.operator is Operator.GREATER else "<"
                return f"{self.key}{sign}{self.values[0]}"
            case _:
                return f"{self.key}{self.operator.value}{self.values[0]}"


class Selector(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """Requirements that must all hold. No requirement selects everything; `nothing` selects nothing.

    Selectors are keys of many tables, so the hash is computed once.
    """

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        if self.nothing:
            return False
        found = labels or {}
        for requirement in self.requirements:  # noqa: SIM110 - a generator would cost more than it does
            if not requirement.matches(found):
                return False
        return True

    @property
    def is_everything(self) -> bool:
        return not self.requirements and not self.nothing

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


class LabelSelectorRequirement(ApiObject, frozen=True, kw_only=True, gc=False):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(ApiObject, frozen=True, kw_only=True, gc=False):
    """The object form."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None


_EXPRESSION_OPERATORS = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.NOT_EXISTS,
}

_TOKEN = re.compile(r"\s*(?:(?P<symbol>!=|==|[!=<>(),])|(?P<word>[^\s!=<>(),]+))", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_INTEGER = re.compile(r"[+-]?0*[0-9]{1,19}", re.ASCII)


def parse_selector(text: str) -> Selector:
    """Parse the text form; raise SelectorError naming the text."""
    return Selector(tuple(sorted(_Parser(text).requirements(), key=lambda requirement: requirement.key)))


def selector_from(selector: LabelSelector | None) -> Selector:
    """Turn the object form into a Selector. No selector selects nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    found = [_requirement(key, Operator.EQUALS, (value,)) for key, value in (selector.match_labels or {}).items()]
    for expression in selector.match_expressions or ():
        operator = _EXPRESSION_OPERATORS.get(expression.operator)
        if operator is None:
            raise SelectorError(f"{expression.operator!r} is not a valid label selector operator")
        found.append(_requirement(expression.key, operator, tuple(expression.values or ())))
    return Selector(tuple(sorted(found, key=lambda requirement: requirement.key)))


def parse_field_selector(text: str) -> tuple[tuple[str, bool, str], ...]:
    """Parse a field selector into (path, must equal, value). Backslash escapes `,`, `=` and itself."""
    terms = []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        match = re.fullmatch(r"([^=!]+)(!=|==|=)(.*)", part, re.DOTALL)
        if match is None:
            raise SelectorError(f"{text!r} is not a field selector: cannot understand {part!r}")
        value = re.sub(r"\\([\\,=])", r"\1", match[3])
        terms.append((match[1], match[2] != "!=", value))
    return tuple(terms)


def parse_int64(text: str) -> int | None:
    """Return the integer that `text` spells, or None if it spells none or does not fit 64 bits."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def label_key_problem(key: str) -> str | None:
    """Return what is wrong with a label key, or None."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not _PREFIX.fullmatch(prefix)):
        return "the part before the slash must be a DNS subdomain"
    if not name or len(name) > 63 or not _NAME.fullmatch(name):
        return "the name must be 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit"
    return None


def label_value_problem(value: str) -> str | None:
    """Return what is wrong with a label value, or None."""
    if value and (len(value) > 63 or not _NAME.fullmatch(value)):
        return "must be at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit"
    return None


def _requirement(key: str, operator: Operator, values: Iterable[str]) -> Requirement:
    """Build a requirement, refusing what Kubernetes refuses."""
    if problem := label_key_problem(key):
        raise SelectorError(f"{key!r} is not a label key: {problem}")
    found = tuple(values)
    match operator:
        case Operator.IN | Operator.NOT_IN if not found:
            raise SelectorError(f"{key!r}: at least one value is needed for {operator.value!r}")
        case Operator.EXISTS | Operator.NOT_EXISTS if found:
            raise SelectorError(f"{key!r}: no value may stand with {operator.value!r}")
        case Operator.GREATER | Operator.LESS:
            if len(found) != 1 or parse_int64(found[0]) is None:
                raise SelectorError(f"{key!r}: an integer must stand after {operator.value!r}")
        case _:
            pass
    for value in found:
        if problem := label_value_problem(value):
            raise SelectorError(f"{value!r} is not a label value: {problem}")
    return Requirement(key, operator, tuple(sorted(set(found))))


class _Parser:
    """Reads the text form from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split(text))
        self._at = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if self._peek() is None:
            return found
        while True:
            found.append(self._one())
            token = self._next()
            if token is None:
                return found
            if token != ",":
                raise self._error(f"expected ',' before {token!r}")
            if self._peek() is None:
                raise self._error("nothing follows the last ','")

    def _one(self) -> Requirement:
        token = self._next()
        if token == "!":
            return _requirement(self._word(), Operator.NOT_EXISTS, ())
        if token is None or not self._is_word(token):
            raise self._error(f"expected a label key, found {token!r}")
        following = self._peek()
        if following in (None, ","):
            return _requirement(token, Operator.EXISTS, ())
        self._at += 1
        match following:
            case "=":
                return _requirement(token, Operator.EQUALS, (self._exact(),))
            case "==":
                return _requirement(token, Operator.DOUBLE_EQUALS, (self._exact(),))
            case "!=":
                return _requirement(token, Operator.NOT_EQUALS, (self._exact(),))
            case ">":
                return _requirement(token, Operator.GREATER, (self._exact(),))
            case "<":
                return _requirement(token, Operator.LESS, (self._exact(),))
            case "in":
                return _requirement(token, Operator.IN, self._values())
            case "notin":
                return _requirement(token, Operator.NOT_IN, self._values())
            case _:
                raise self._error(f"{following!r} is not an operator")

    def _exact(self) -> str:
        """Read one value; nothing at all means the empty value."""
        token = self._peek()
        if token in (None, ","):
            return ""
        return self._word()

    def _values(self) -> list[str]:
        if self._next() != "(":
            raise self._error("expected '(' after the set operator")
        values: list[str] = []
        expect_value = True
        while True:
            token = self._next()
            if token == ")":
                # An empty place before the closing bracket stands for the empty value.
                if expect_value:
                    values.append("")
                return values
            if token == ",":
                if expect_value:
                    values.append("")
                expect_value = True
            elif token is not None and self._is_word(token) and expect_value:
                values.append(token)
                expect_value = False
            else:
                found = "the brackets are not closed" if token is None else f"found {token!r} inside the brackets"
                raise self._error(found)

    def _word(self) -> str:
        token = self._next()
        if token is None or not self._is_word(token):
            raise self._error(f"expected a word, found {token!r}")
        return token

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str | None:
        token = self._peek()
        self._at += 1
        return token

    def _error(self, message: str) -> SelectorError:
        return SelectorError(f"{self._text!r} is not a label selector: {message}")

    @staticmethod
    def _is_word(token: str) -> bool:
        return token[0] not in "!=<>(),"

    @staticmethod
    def _split(text: str) -> Iterable[str]:
        position = 0
        while match := _TOKEN.match(text, position):
            yield match["symbol"] or match["word"]
            position = match.end()
