"""Completion in real shells, where there are any: a flag and its value may be one word."""

import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubetide.cli.completion import _Fish, _Zsh
from kubetide.cli.main import cli

PATIENCE_SECONDS = 60


@pytest.mark.parametrize("kind", [_Zsh, _Fish])
@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        pytest.param(["run", "slo"], "--gradual-release=f", ["--gradual-release=false"], id="a-flag-of-a-component"),
        pytest.param(["run", "hpa,slo"], "--slo.gradual-release=t", ["--slo.gradual-release=true"], id="with-prefix"),
        pytest.param(["run", "slo"], "--no-such-flag=", [], id="an-unknown-flag"),
        pytest.param([], "--log-format=", ["--log-format=text", "--log-format=json"], id="an-option-before-the-verb"),
        pytest.param(["explain", "hpa", "web"], "--output=j", ["--output=json"], id="an-option-of-a-verb"),
        pytest.param(["node"], "--kubeconfig=/et", [], id="files-come-after-a-space"),
        pytest.param(["node"], "--no-such-flag=", [], id="no-subcommand-is-a-value"),
        pytest.param(["run", "slo"], "--gradual-r", ["--gradual-release"], id="the-flag-itself"),
        pytest.param(["run"], "sl", ["slo"], id="no-flag"),
    ],
)
def test_a_flag_and_its_value_are_one_word(
    kind: type[_Zsh | _Fish], words: list[str], incomplete: str, offered: list[str]
) -> None:
    completer = kind(cli, {}, "kubetide", "_KUBETIDE_COMPLETE")
    assert [found.value for found in completer.get_completions(words, incomplete)] == offered


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment where `kubetide` is this one, and no shell finds settings of a user."""
    program = tmp_path / "bin" / "kubetide"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kubetide "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "HOME": str(tmp_path), "TERM": "dumb", "PS1": "> "}


def script(shell: str, environment: dict[str, str], tmp_path: Path) -> Path:
    """Write the script of `kubetide completion` for a shell that is there."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}: apt install {shell}")
    made = subprocess.run(
        ["kubetide", "completion", shell], env=environment, capture_output=True, check=True, timeout=PATIENCE_SECONDS
    )
    path = tmp_path / f"completion.{shell}"
    path.write_bytes(made.stdout)
    return path


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("kubetide run slo --gradual-release=", ["--gradual-release=false", "--gradual-release=true"]),
        ("kubetide --log-format=j", ["--log-format=json"]),
    ],
)
def test_fish_offers_the_values(typed: str, offered: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    source = script("fish", environment, tmp_path)
    command = ["fish", "--no-config", "-c", f"source {source}; complete -C '{typed}'"]
    asked = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert asked.stdout.split() == offered, asked.stderr


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("kubetide run slo --gradual-release=f", "--gradual-release=false "),
        ("kubetide --log-format=j", "--log-format=json "),
    ],
)
def test_zsh_completes_the_word(typed: str, completed: str, environment: dict[str, str], tmp_path: Path) -> None:
    source = script("zsh", environment, tmp_path)
    with terminal(["zsh", "-f", "-i"], environment) as screen:
        os.write(screen, f"autoload -Uz compinit; compinit -u -D; source {source}; print READY$((1+1))\n".encode())
        read_until(screen, b"READY2\r\n")
        os.write(screen, f"{typed}\t".encode())
        read_until(screen, completed.encode())


@contextmanager
def terminal(command: list[str], environment: dict[str, str]) -> Iterator[int]:
    """Run a command on a terminal of its own, and give what is on the other side of it."""
    screen, inside = pty.openpty()
    try:
        process = subprocess.Popen(
            command, stdin=inside, stdout=inside, stderr=inside, env=environment, start_new_session=True
        )
        try:
            yield screen
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(inside)
        os.close(screen)


def read_until(screen: int, mark: bytes) -> None:
    seen = b""
    while mark not in seen:
        ready, _, _ = select.select([screen], [], [], PATIENCE_SECONDS)
        assert ready, f"{mark!r} never came: {seen!r}"
        seen += os.read(screen, 65536)
