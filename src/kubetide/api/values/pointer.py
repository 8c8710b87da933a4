"""JSON pointers (RFC 6901): address a place inside a document, and change it without touching the original."""

from typing import Any

from kubetide.errors import PatchError

_MOST_STEPS = 500
"""More than any object is deep."""


def parse_pointer(text: str) -> tuple[str, ...]:
    """Split a pointer into its unescaped steps; the empty pointer is the whole document."""
    if not text:
        return ()
    if not text.startswith("/"):
        raise PatchError(f"{text!r} is not a JSON pointer: it must begin with '/'")
    if text.count("/") > _MOST_STEPS:
        raise PatchError(f"a JSON pointer of more than {_MOST_STEPS} steps")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))


def escape_step(step: str) -> str:
    """Escape one step of a pointer, such as an annotation key."""
    return step.replace("~", "~0").replace("/", "~1")


def value_at(document: Any, path: tuple[str, ...]) -> Any:
    """Return the value at `path`."""
    found = document
    for step in path:
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list):
            found = found[_index(step, len(found))]
        else:
            raise PatchError(f"nothing at {_text(path)}")
    return found


def add_at(document: Any, path: tuple[str, ...], value: Any) -> Any:
    """Return the document with `value` added: a member set, or an element inserted (`-` appends)."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(document, dict):
        if rest and step not in document:
            raise PatchError(f"nothing at /{step}")
        return {**document, step: add_at(document[step], rest, value) if rest else value}
    if isinstance(document, list):
        if rest:
            index = _index(step, len(document))
            return [*document[:index], add_at(document[index], rest, value), *document[index + 1 :]]
        index = len(document) if step == "-" else _index(step, len(document) + 1)
        return [*document[:index], value, *document[index:]]
    raise PatchError(f"cannot step into {type(document).__name__} with {step!r}")


def remove_at(document: Any, path: tuple[str, ...]) -> Any:
    """Return the document without the value at `path`."""
    if not path:
        raise PatchError("cannot remove the whole document")
    step, rest = path[0], path[1:]
    if isinstance(document, dict) and step in document:
        if rest:
            return {**document, step: remove_at(document[step], rest)}
        return {key: value for key, value in document.items() if key != step}
    if isinstance(document, list):
        index = _index(step, len(document))
        if rest:
            return [*document[:index], remove_at(document[index], rest), *document[index + 1 :]]
        return [*document[:index], *document[index + 1 :]]
    raise PatchError(f"nothing at {_text(path)}")


def _index(step: str, length: int) -> int:
    if not (step.isascii() and step.isdigit()) or (len(step) > 1 and step[0] == "0"):
        raise PatchError(f"{step!r} is not a list index")
    if len(step) > 9 or int(step) >= length:
        raise PatchError(f"index {step} is beyond the end of the list")
    return int(step)


def _text(path: tuple[str, ...]) -> str:
    return "/" + "/".join(escape_step(step) for step in path)
