"""The line protocol on standard input and output: one JSON object per line, an answer where one is due.

A tool that judges policies tells a period, waits for the decision, and only then tells the next one: looking ahead is
impossible. A line that cannot be understood ends the run with its number; nothing is guessed.
"""

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Protocol

import msgspec

from kubetide.errors import InvalidInput

SESSIONS: Mapping[str, tuple[str, str]] = {
    "usage": ("kubetide.replay.usage", "UsageSession"),
    "load": ("kubetide.replay.load", "LoadSession"),
}
"""What can be replayed; a kind is imported when it is asked for."""


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
