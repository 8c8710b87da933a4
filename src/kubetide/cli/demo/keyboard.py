"""Keys pressed on the terminal while something runs.

The terminal gives keys at once and unechoed (cbreak) while a `Keyboard` is open, and is as it was after it, whatever
ended it; Ctrl-C and Ctrl-Z keep their meaning. A process in the background leaves the terminal alone: touching or
reading it there would stop the process.
"""

import asyncio
import os
import signal
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from kubetide.cli.demo.pace import keys_in

_READ = 256


@contextmanager
def keyboard(stream: TextIO) -> Iterator["Keyboard | None"]:
    """Open the keyboard behind a stream; None if that is not a terminal, or not ours at the moment."""
    fd = _terminal(stream)
    if fd is None:
        yield None
        return
    before = termios.tcgetattr(fd)
    found = Keyboard(fd)
    found.take()
    try:
        yield found
    finally:
        if _in_foreground(fd):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


class Keyboard:
    """A terminal in cbreak mode."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def take(self) -> None:
        """Let keys come one by one. What was typed before is kept."""
        tty.setcbreak(self._fd, termios.TCSADRAIN)

    @contextmanager
    def listen(
        self, pressed: Callable[[str], None], parse: Callable[[bytes], Iterator[str]] = keys_in
    ) -> Iterator[None]:
        """Call `pressed` with every key that has a meaning, in the running loop, while the context lasts."""
        loop = asyncio.get_running_loop()

        def readable() -> None:
            try:
                data = os.read(self._fd, _READ) if _in_foreground(self._fd) else b""
            except OSError:  # the terminal is gone
                data = b""
            if not data:
                loop.remove_reader(self._fd)
            for key in parse(data):
                pressed(key)

        def resumed() -> None:
            """After Ctrl-Z and `fg` the terminal is as the shell wants it; make it ours again."""
            if _in_foreground(self._fd):
                self.take()
                loop.add_reader(self._fd, readable)

        loop.add_reader(self._fd, readable)
        loop.add_signal_handler(signal.SIGCONT, resumed)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGCONT)
            loop.remove_reader(self._fd)


def _terminal(stream: TextIO) -> int | None:
    try:
        fd = stream.fileno()
    except (OSError, ValueError):  # not a file, or closed
        return None
    return fd if os.isatty(fd) and _in_foreground(fd) else None


def _in_foreground(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
