"""What both sides of the line protocol read alike: numbers that are whole, and times that can be.

JSON knows one kind of number, so `3`, `3.0` and `3e0` are the same count and `1.7e9` is a second.
"""

from collections.abc import Mapping
from typing import Any, Final

from kubetide.errors import InvalidInput

_LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999."""


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
