"""A browser, and a demo cluster with its dashboard to look at; both once for all tests of this folder."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
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
WARM_UP = 60
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
        *(sys.executable, "-m", "kubetide", "demo", "--plain", "--no-compare", "--speed", "240"),
        *("--http", "--port", "0", "--status-port", "0", "--dashboard-port", "0"),
    )
    folder = tmp_path_factory.mktemp("demo")
    out = folder / "out"
    with out.open("w") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, env=dict(os.environ))
    try:
        url = _url(process, out)
        for _ in range(WARM_UP if "KUBETIDE_SCREENSHOTS" in os.environ else 0):
            # Pictures need something to show: somebody looks while the morning passes.
            urllib.request.urlopen(f"{url}/c/kubetide/?format=json", timeout=60).read()
            time.sleep(1)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _url(process: "subprocess.Popen[bytes]", out: Path) -> str:
    for _ in range(600):
        if found := re.search(r"dashboard\s+(http://\S+)", out.read_text()):
            return found[1].rstrip("/")
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(f"the demo does not serve a dashboard: {out.read_text()}")
