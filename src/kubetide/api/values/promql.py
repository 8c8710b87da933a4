"""PromQL from what callers ask: label matchers in which no value can become anything but a value.

A selector of Kubernetes becomes matchers, one per requirement:

    app=web            app="web"            app in (a,b)      app=~"a|b"        app        app!=""
    app!=web           app!="web"           app notin (a,b)   app!~"a|b"        !app       app=""

Values are quoted as strings of PromQL, and inside of a regular expression every character that means something is
escaped first. A key that is not a label name of Prometheus is refused, for it could not be quoted.
"""

import re
from collections.abc import Iterable

from kubetide.api.values.selectors import Operator, Requirement, Selector
from kubetide.errors import InvalidInput

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$\-])")


def matcher(label: str, values: Iterable[str], *, negated: bool = False) -> str:
    """Return the matcher for a label that has one of the values, or none of them."""
    if _LABEL.fullmatch(label) is None:
        raise InvalidInput(f"{label!r} is not a label name of Prometheus")
    found = sorted(set(values))
    if len(found) == 1:
        return f"{label}{'!=' if negated else '='}{quoted(found[0])}"
    return f"{label}{'!~' if negated else '=~'}{quoted('|'.join(map(literal, found)))}"


def selector_matchers(selector: Selector) -> list[str]:
    """Return the matchers of a label selector; raises InvalidInput for what Prometheus cannot compare."""
    return [_matcher(requirement) for requirement in selector.requirements]


def quoted(text: str) -> str:
    """Return a text as a string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def literal(text: str) -> str:
    """Return the regular expression that matches this text alone."""
    return _SPECIAL.sub(r"\\\1", text)


def _matcher(requirement: Requirement) -> str:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case Operator.EQUALS | Operator.DOUBLE_EQUALS | Operator.IN:
            return matcher(key, values)
        case Operator.NOT_EQUALS | Operator.NOT_IN:
            return matcher(key, values, negated=True)
        case Operator.EXISTS:
            return matcher(key, ("",), negated=True)
        case Operator.NOT_EXISTS:
            return matcher(key, ("",))
    raise InvalidInput(f"{requirement} cannot be asked of Prometheus")
