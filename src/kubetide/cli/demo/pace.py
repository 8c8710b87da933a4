"""How fast a showing goes, and what a key does to it.

`+` doubles the speed, `-` halves it, space stops time and lets it go on, `q` ends. The arrows up and down do what `+`
and `-` do. A change of speed while time stands still is kept for when it goes on. What other keys do is for others to
say (`cli.demo.controls`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

SLOWEST = 1 / 16
FASTEST = 1_000_000.0
"""Beyond these a key changes nothing; a start value may lie outside and can be brought back."""

FASTER, SLOWER, PAUSE, END = "+", "-", " ", "q"

_MEANINGS = {"+": FASTER, "=": FASTER, "-": SLOWER, "_": SLOWER, " ": PAUSE, "q": END, "Q": END}
_MEANINGS |= {key: key for key in "\tls123"} | {"L": "l", "S": "s"}
_SEQUENCES = {"A": FASTER, "B": SLOWER, "Z": "\x1b[Z"}
"""The arrows up and down, and Shift-Tab."""
_ESCAPE = "\x1b"


@dataclass(frozen=True, slots=True)
class Pace:
    """Virtual seconds per real second, and whether time stands still."""

    speed: float
    paused: bool = False
    ended: bool = False

    @property
    def effective(self) -> float:
        """What the loop is told: zero while time stands still."""
        return 0.0 if self.paused else self.speed

    def press(self, key: str) -> "Pace":
        """Return the pace after a key; one without a meaning changes nothing."""
        match key:
            case "+" if self.speed < FASTEST:
                return replace(self, speed=self.speed * 2)
            case "-" if self.speed > SLOWEST:
                return replace(self, speed=self.speed / 2)
            case " ":
                return replace(self, paused=not self.paused)
            case "q":
                return replace(self, ended=True)
        return self

    def text(self) -> str:
        """Return how fast it goes."""
        return f"paused at {self.speed:g}x" if self.paused else f"{self.speed:g}x"

    def hint(self) -> str:
        """Return the line that says how fast it goes and which keys change that."""
        return f"{self.text()}   + faster   - slower   space {'go on' if self.paused else 'pause'}   q end"


def keys_in(data: bytes) -> Iterator[str]:
    """Yield the keys with a meaning among what a terminal sent; other keys and their escape sequences are left out."""
    text = data.decode("ascii", "replace")
    position = 0
    while position < len(text):
        if text[position] == _ESCAPE and text[position + 1 : position + 2] in ("[", "O"):
            end = position + 2
            while end < len(text) and not text[end].isalpha() and text[end] != "~":
                end += 1
            if end == position + 2 and text[end : end + 1] in _SEQUENCES:
                yield _SEQUENCES[text[end]]
            position = end + 1
            continue
        meaning = _MEANINGS.get(text[position])
        if meaning is not None:
            yield meaning
        position += 1
