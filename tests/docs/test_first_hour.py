"""The README and the first hour run as written: every line in a shell, in a folder like a clone, with what it shows.

A line that ends with `&` goes on in the background; what stands behind `#>` must appear in the output. The folder has
the Makefile and a `.venv` whose `kubetide` is this one. Ports are fixed, as a reader has them, so all of it happens in
a network namespace of its own.
"""

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 300
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
RECURSIVE = "make test"
"""Running the tests is what runs this one."""
ENDLESS = "make demo"
"""Goes on for minutes: ended with Ctrl-C, which shows the summary."""


@dataclass(frozen=True, slots=True)
class Step:
    """A line of a page: what to type, and what to see."""

    command: str
    expected: str


def steps(page: Path) -> list[Step]:
    found = []
    for block in BLOCK.findall(page.read_text()):
        for line in block.splitlines():
            command, _, comment = line.partition("#")
            if command.strip():
                found.append(
                    Step(command.strip(), comment.removeprefix(">").strip() if comment.startswith(">") else "")
                )
    return found


def isolated() -> list[str]:
    """Return the prefix that gives a command a network of its own, or skip where this machine does not allow it."""
    prefix = ["unshare", "--map-root-user", "--net", "--"]
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("no unshare or ip: apt install util-linux iproute2")
    tried = subprocess.run([*prefix, "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no network namespace may be made here: {tried.stderr.strip()}")
    return prefix


class Shell:
    """A bash in a folder; what it and its children print is read line by line."""

    def __init__(self, folder: Path, home: Path) -> None:
        environment = {**os.environ, "PATH": f"{folder}/.venv/bin{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
        for name in ("KUBECONFIG", "MAKEFLAGS", "NODE_NAME"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [*isolated(), "bash", "--norc", "-c", "ip link set lo up; exec bash --norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.seen = ""
        self._count = 0

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def _type(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def _until(self, mark: str) -> None:
        """Read until a text appears in what was seen since the last command."""
        end = time.monotonic() + PATIENCE_SECONDS
        while mark not in self.seen:
            try:
                self.seen += self._lines.get(timeout=max(0.1, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{mark!r} never came; seen:\n{self.seen}") from None

    def run(self, step: Step) -> None:
        """Type a line, wait for its end, or for what it shows where it goes on, and check both."""
        self._count += 1
        self.seen = ""
        done = f"DONE-{self._count}-"
        self._type(step.command)
        self._type(f'printf "%s%s\\n" {done} $?')
        self._until(done)
        if step.command.endswith("&"):
            self._until(step.expected)
            return
        # A doctor that finds something says so by its exit code too.
        fine = "012" if " doctor " in step.command else "0"
        assert any(f"{done}{code}\n" in self.seen for code in fine), f"{step.command} failed:\n{self.seen}"
        assert step.expected in self.seen, f"{step.command} does not show {step.expected!r}:\n{self.seen}"

    def close(self) -> None:
        """End the shell and what it left in the background."""
        self._type("kill $(jobs -p); wait; exit")
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(timeout=60)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder like a clone after its first `make`: what the lines need is there."""
    for tool, package in (("kubectl", "kubectl"), ("make", "make"), ("bash", "bash")):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} on PATH: install {package}")
    folder = tmp_path / "clone"
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy2(ROOT / name, folder / name)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    (folder / "examples").symlink_to(ROOT / "examples")
    program = folder / ".venv" / "bin" / "kubetide"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT / "src"}" exec "{sys.executable}" -m kubetide "$@"\n')
    program.chmod(0o755)
    (folder / ".venv" / ".runtime").touch()
    (folder / ".venv" / ".ready").touch()
    return folder


@pytest.fixture
def shell(clone: Path, tmp_path: Path) -> Iterator[Shell]:
    home = tmp_path / "home"
    home.mkdir()
    opened = Shell(clone, home)
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/first-hour.md"])
def test_a_page_runs_as_written(page: str, shell: Shell) -> None:
    lines = steps(ROOT / page)
    typed = [step for step in lines if step.command not in (ENDLESS, RECURSIVE)]
    assert len(typed) >= 8
    for step in typed:
        shell.run(step)


def test_the_demo_runs_until_ctrl_c_and_ends_with_its_summary(clone: Path) -> None:
    told = {step.command: step.expected for step in steps(ROOT / "docs/tutorial/first-hour.md")}
    process = subprocess.Popen(
        ["make", "demo"],
        cwd=clone,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # As from a shell, also where make runs the tests: it would speak of directories first.
        env={name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")},
    )
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        assert first.strip()
        os.killpg(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert told[ENDLESS] in rest


def test_make_test_runs_the_tests(clone: Path) -> None:
    assert RECURSIVE in {step.command for step in steps(ROOT / "README.md")}
    shown = subprocess.run(["make", "-n", "test"], cwd=clone, capture_output=True, text=True, check=True, timeout=60)
    assert "-m pytest" in shown.stdout
