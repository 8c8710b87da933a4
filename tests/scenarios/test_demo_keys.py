"""Keys pressed on a real terminal: they change the pace of the demo, and the terminal is as it was afterwards."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PATIENCE_SECONDS = 60.0
MOST_READS = 200
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
DEMO = ("-m", "kubetide", "demo", "--bare", "--speed", "240")

_OWN_TERMINAL = """
import os, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first terminal a new session opens becomes its own
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Terminal:
    """A terminal with a program on it."""

    def __init__(self, master: int, slave: int, process: "subprocess.Popen[bytes]") -> None:
        self._master = master
        self._slave = slave
        self.process = process
        self._seen = ""

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, text: str) -> str:
        """Read until a text appears and return all up to it; what was read is not looked at again."""
        for _ in range(MOST_READS):
            if text in self._seen:
                break
            more = self._read()
            assert more, f"{text!r} never came: {self._seen[-2000:]}"
            self._seen = _ESCAPES.sub("", self._seen + more.decode("utf-8", "replace"))
        assert text in self._seen, f"{text!r} never came: {self._seen[-2000:]}"
        before, _, self._seen = self._seen.partition(text)
        return before + text

    def _read(self) -> bytes:
        readable, _, _ = select.select([self._master], [], [], PATIENCE_SECONDS)
        if not readable:
            return b""
        try:
            return os.read(self._master, 65536)
        except OSError:  # the program has ended
            return b""

    def mode(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def set_mode(self, mode: list[Any]) -> None:
        termios.tcsetattr(self._slave, termios.TCSANOW, mode)


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, 150))
    process = subprocess.Popen(
        [sys.executable, "-c", _OWN_TERMINAL, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        # A test runner may say how wide its own output is; this terminal has a size of its own.
        env={name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | {"TERM": "xterm"},
    )
    try:
        yield Terminal(master, slave, process)
    finally:
        process.kill()
        process.wait()
        os.close(slave)
        os.close(master)


def test_keys_change_the_pace_and_end_the_demo_with_its_summary() -> None:
    with terminal(*DEMO) as screen:
        before = screen.mode()
        screen.wait_for("240x   + faster")
        assert screen.mode() != before
        screen.press("+")
        screen.wait_for("480x   + faster")
        screen.press("--")
        screen.wait_for("120x   + faster")
        screen.press(" ")
        screen.wait_for("paused at 120x")
        screen.press("\x1b[A")
        screen.wait_for("paused at 240x")
        screen.press("q")
        screen.wait_for(" simulated: ")
        screen.wait_for("In all ")
        assert screen.process.wait(PATIENCE_SECONDS) == 0
        assert screen.mode() == before


def test_keys_explain_filter_and_inject() -> None:
    with terminal(*DEMO) as screen:
        screen.wait_for("240x   + faster")
        screen.wait_for("what changed and why")
        screen.press("l")
        screen.wait_for("problems only")
        screen.press("\t")
        screen.wait_for("The hpa shop/storefront has not been looked at yet.")
        screen.press("s")
        screen.wait_for("1 a spike")
        screen.press("1")
        screen.wait_for("shop/storefront: spike: 3 times the load")
        screen.press("s2")
        screen.wait_for("metrics: outage: the metrics API is down")
        screen.press("s3")
        screen.wait_for("node/node-3: outage: node node-3 is down")
        screen.press("\x1b[Z")
        screen.wait_for("DOWN")
        screen.press("q")
        screen.wait_for(" simulated: ")
        assert screen.process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("paused", [pytest.param(True, id="while-paused"), pytest.param(False, id="while-it-runs")])
def test_ctrl_c_ends_with_the_summary_and_gives_the_terminal_back(paused: bool) -> None:
    with terminal(*DEMO) as screen:
        before = screen.mode()
        screen.wait_for("240x   + faster")
        if paused:
            screen.press(" ")
            screen.wait_for("paused at 240x")
        screen.press("\x03")
        screen.wait_for("In all ")
        assert screen.process.wait(PATIENCE_SECONDS) == 0
        assert screen.mode() == before


def test_being_terminated_gives_the_terminal_back() -> None:
    with terminal(*DEMO) as screen:
        before = screen.mode()
        screen.wait_for("240x   + faster")
        screen.process.send_signal(signal.SIGTERM)
        screen.wait_for("In all ")
        assert screen.process.wait(PATIENCE_SECONDS) == 0
        assert screen.mode() == before


def test_a_demo_that_was_stopped_takes_keys_again_when_it_goes_on() -> None:
    with terminal(*DEMO) as screen:
        before = screen.mode()
        screen.wait_for("240x   + faster")
        taken = screen.mode()
        screen.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, screen.process.pid, os.WSTOPPED)
        screen.set_mode(before)  # as a shell does when it takes over
        screen.process.send_signal(signal.SIGCONT)
        screen.press("+")
        screen.wait_for("480x   + faster")
        assert screen.mode() == taken
        screen.press("q")
        screen.wait_for("In all ")
        assert screen.process.wait(PATIENCE_SECONDS) == 0
        assert screen.mode() == before


def test_a_failure_gives_the_terminal_back() -> None:
    program = (
        "import sys; from kubetide.cli.demo.keyboard import keyboard\nwith keyboard(sys.stdin): print('taken'); 1 / 0"
    )
    with terminal("-c", program) as screen:
        before = screen.mode()
        screen.wait_for("ZeroDivisionError")
        assert screen.process.wait(PATIENCE_SECONDS) == 1
        assert screen.mode() == before


def test_a_simulation_behind_an_api_server_takes_the_same_keys(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("up")
    scenario = directory / "one.yaml"
    scenario.write_text("name: one\nnodes: [{name: node-1}]\n")
    kubeconfig = str(directory / "config")
    arguments = ("up", "--sim", str(scenario), "--port", "0", "--kubeconfig", kubeconfig, "--speed", "60")
    with terminal("-m", "kubetide", *arguments) as screen:
        before = screen.mode()
        screen.wait_for("ready: https://127.0.0.1:")
        screen.wait_for("60x   + faster")
        screen.press("- ")
        screen.wait_for("30x   + faster")
        screen.wait_for("paused at 30x")
        screen.press("q")
        assert screen.process.wait(PATIENCE_SECONDS) == 0
        assert screen.mode() == before
