"""Where a showing is seen: plain lines, or a screen that is drawn anew a few times a second."""

from collections.abc import Callable
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kubetide.dashboard.core.model import State, Tone
from kubetide.dashboard.core.screen import Row, Span, render
from kubetide.embedded.sim.narration import Line

_COLOURS: dict[Tone, str] = {"plain": "", "good": "green", "warn": "yellow", "bad": "red"}


class View(Protocol):
    """Where the demo shows what happens."""

    def begin(self, title: str) -> None:
        """Show what this is."""
        ...

    def tell(self, line: Line) -> None:
        """Show one change."""
        ...

    def draw(self, state: State) -> None:
        """Show how the cluster is doing."""
        ...

    def end(self, text: str) -> None:
        """Show the summary."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was; also after an error, and more than once."""
        ...


class PlainView:
    """Lines of text, the same for the same seed."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def begin(self, title: str) -> None:
        self._write(title)

    def tell(self, line: Line) -> None:
        self._write(line.render())

    def draw(self, state: State) -> None:
        """Plain output has no screen."""

    def close(self) -> None:
        """Plain output has nothing to undo."""

    def end(self, text: str) -> None:
        self._write(text)

    def _write(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


class LiveView:
    """The whole terminal, which is as it was before when the showing ends."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, screen=True)

    def begin(self, title: str) -> None:
        self._live.start()

    def tell(self, line: Line) -> None:
        """Do nothing: what changed stands in the state and is drawn with it."""

    def draw(self, state: State) -> None:
        self.show(lambda width, height: render(state, width, height))

    def show(self, make: Callable[[int, int], list[Row]]) -> None:
        """Show the lines that are made for the size of the terminal."""
        text = Text(no_wrap=True, overflow="crop", end="")
        for number, row in enumerate(make(*self._console.size)):
            text.append("\n" if number else "")
            for span in row:
                text.append(span.text, style=_style(span))
        self._live.update(text, refresh=True)

    def end(self, text: str) -> None:
        self.close()
        self._console.print(text, soft_wrap=True, markup=False)

    def close(self) -> None:
        self._live.stop()


def _style(span: Span) -> str:
    words = (_COLOURS[span.tone], "bold" if span.strong else "", "dim" if span.dim else "")
    return " ".join(word for word in words if word)
