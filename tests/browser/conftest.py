"""A browser, and a demo cluster with its dashboard to look at; both once for all tests of this folder."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
START_SECONDS = 300
WARM_UP_SECONDS = 600
MORNING = "T09:30"
"""What pictures show has happened by then."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium, for one file: Playwright keeps an event loop running in this thread while it is open."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(PROGRAMS)} is installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The web shop, four minutes a second, with a dashboard; gives the URL."""
    command = (
        # Longer than any test run: a demo that keeps its pace must not end before a browser that does not.
        *(sys.executable, "-m", "kubetide", "demo", "--plain", "--no-compare", "--speed", "240", "--duration", "240h"),
        *("--http", "--port", "0", "--status-port", "0", "--dashboard-port", "0"),
    )
    folder = tmp_path_factory.mktemp("demo")
    out = folder / "out"
    with out.open("w") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, env=dict(os.environ))
    try:
        url = _url(process, out)
        _look_until(url, "", START_SECONDS)
        if "KUBETIDE_SCREENSHOTS" in os.environ:
            # Somebody looks while the morning passes, so that pictures have something to show.
            _look_until(url, MORNING, WARM_UP_SECONDS)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _look_until(url: str, clock: str, seconds: float) -> None:
    """Look at the cluster until it can be read and its clock shows so much, or the time is over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(OSError):  # a machine that has other things to do lets a first look time out
            with urllib.request.urlopen(f"{url}/c/kubetide/?format=json", timeout=60) as answer:
                now = str(json.load(answer)["at"])
            if now[10:] >= clock:
                return
        time.sleep(1)


def _url(process: "subprocess.Popen[bytes]", out: Path) -> str:
    for _ in range(10 * START_SECONDS):
        if found := re.search(r"dashboard\s+(http://\S+)", out.read_text()):
            return found[1].rstrip("/")
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(f"the demo does not serve a dashboard: {out.read_text()}")
