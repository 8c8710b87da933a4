"""Regular expressions that users write, in CRD schemas and CEL rules: RE2's dialect, which is the one Kubernetes means.

RE2 never backtracks: a match takes at most time in proportion to the size of the compiled pattern times the length of
the text, so that what a match can cost is known before it begins.
"""

from functools import lru_cache

import re2

from kubetide.errors import InvalidInput

_MEMORY = 2 * 1024 * 1024
_SHORT = 64


class PatternError(InvalidInput):
    """A text is not a regular expression that RE2 understands."""


class Pattern:
    """A compiled regular expression."""

    __slots__ = ("_expression", "_size")

    def __init__(self, text: str) -> None:
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = _MEMORY
        try:
            self._expression = re2.compile(text.encode("utf-8", "surrogatepass"), options)
        except re2.error as error:
            raise PatternError(_reason(error)) from error
        self._size = int(self._expression.programsize)

    def found_in(self, text: str) -> bool:
        """Whether any part of a text matches."""
        # Short values, such as quantities, come again and again, and asking RE2 costs more than a lookup.
        return _found_short(self, text) if len(text) <= _SHORT else self.search(text)

    def search(self, text: str) -> bool:
        """Ask RE2."""
        return self._expression.search(text.encode("utf-8", "surrogatepass")) is not None

    def cost(self, text: str) -> int:
        """Return how many steps a match can take at most, a few nanoseconds each."""
        return self._size * (len(text) + 1)


@lru_cache(maxsize=8192)
def _found_short(pattern: Pattern, text: str) -> bool:
    return pattern.search(text)


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Return a compiled pattern; raise PatternError if it is not one."""
    return Pattern(text)


def _reason(error: Exception) -> str:
    detail = error.args[0] if error.args else ""
    return detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
