"""The line protocol on standard input and output: one JSON object per line, an answer where one is due.

A tool that judges policies tells a period, waits for the decision, and only then tells the next one: looking ahead is
impossible. A line that cannot be understood ends the run with its number; nothing is guessed. JSON has one kind of
number, so `3`, `3.0` and `3e0` are the same count and `1.7e9` is a second.
"""

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Final, Protocol

import msgspec

from kubetide.errors import InvalidInput

SESSIONS: Mapping[str, tuple[str, str]] = {
    "usage": ("kubetide.replay.usage", "UsageSession"),
    "load": ("kubetide.replay.load", "LoadSession"),
}
"""What can be replayed; a kind is imported when it is asked for."""
_LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999."""


class Session(Protocol):
    """One run of one policy."""

    def handle(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Take in one message; return the answer where one is due."""


def make_session(kind: str, policy: str) -> Session:
    """Return a session of its own: nothing carries over from one run to the next."""
    module, name = SESSIONS[kind]
    session: Session = getattr(importlib.import_module(module), name)(policy)
    return session


def serve(session: Session, lines: Iterable[bytes], answers: BinaryIO) -> None:
    """Answer lines until `end` or the end of input."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            message = msgspec.json.decode(line)
            if not isinstance(message, dict):
                raise InvalidInput("must be a JSON object")
            answer = session.handle(message)
        except (msgspec.DecodeError, InvalidInput) as error:
            raise InvalidInput(str(error), subject=f"line {number}") from error
        if answer is not None:
            answers.write(msgspec.json.encode(answer) + b"\n")
            answers.flush()
        if message.get("type") == "end":
            return


def with_whole(message: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Return a message whose fields of these names are integers where they are whole numbers."""
    return {name: whole(value) if name in names else value for name, value in message.items()}


def whole(value: Any) -> Any:
    """Return a whole number as an integer, anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_second(second: int, subject: str, field: str = "time") -> None:
    """Refuse what is no UTC second from 1970 to 9999."""
    if not 0 <= second <= _LAST_SECOND:
        raise InvalidInput(f"{second} is not a second from 1970 to 9999", subject=subject, field=field)
