"""What a laptop runs needs nothing that only Linux has: command line, replay, reports, the embedded cluster."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "kubetide"
# What Python offers on Linux alone (macOS is the other system that is served), and the file systems of its kernel.
HIDDEN = """
import builtins, os, select, signal, socket, sys
for module, names in {
    os: ("sched_getaffinity", "sched_setaffinity", "pidfd_open", "eventfd", "memfd_create", "splice"),
    select: ("epoll",),
    signal: ("pidfd_send_signal",),
    socket: ("AF_NETLINK", "AF_PACKET", "AF_VSOCK", "SO_PEERCRED"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
real = builtins.open
def hidden(path, *rest, **more):
    if isinstance(path, (str, os.PathLike)) and str(path).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", str(path))
    return real(path, *rest, **more)
builtins.open = hidden
import io
io.open = hidden
"""


def run(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", HIDDEN + code, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )


def modules() -> list[str]:
    found = []
    offline = ("charts", "recommend", "recording", "replay", "simulate", "verdicts")
    for folder in ("cli", "dashboard", "embedded", *offline):
        for path in sorted((SRC / folder).rglob("*.py")):
            name = ".".join(["kubetide", *path.relative_to(SRC).with_suffix("").parts])
            found.append(name.removesuffix(".__init__"))
    return found


def test_every_module_can_be_imported() -> None:
    done = run("import importlib\nfor name in sys.argv[1:]: importlib.import_module(name)", *modules())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("demo", "--duration", "1m", "--speed", "max"), id="demo"),
        pytest.param(("manifests", "hpa"), id="manifests"),
        pytest.param(("settings",), id="settings"),
    ],
)
def test_verbs_work(command: tuple[str, ...]) -> None:
    done = run("from kubetide.cli.main import run_cli; sys.exit(run_cli(sys.argv[1:]))", *command)
    assert done.returncode == 0, done.stderr
