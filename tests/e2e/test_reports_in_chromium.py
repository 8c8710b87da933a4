"""Reports in a real browser: nothing on the console, no request but the file itself, no page wider than its window."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from kubetide.cli.main import run_cli
from kubetide.recording.format import Manifest
from kubetide.recording.writer import Writer

pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
T0, HOUR, GIB = 1_700_006_400, 3600, 2**30


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path, out = tmp_path / "a.tide", tmp_path / "report.html"
    times = (T0 + np.arange(96) * HOUR) * 1_000_000
    with Writer(path, Manifest(interval_seconds=HOUR, start=T0, warmup_periods=1)) as writer:
        for number in range(3):
            container = writer.container("ns", "Deployment", f"w{number}", f"p{number}", "app")
            cpu = (200_000 + 10_000 * (np.arange(96) % 24)).astype(np.int64)
            writer.usage(np.full(96, container), times, cpu, np.full(96, GIB, dtype=np.int64))
    chosen = ["--policy", "vpa", "--policy", "peak", "--policy", "hpa:60"]
    assert run_cli(["replay", str(path), *chosen, "--price-cpu", "0.03", "--report", str(out)]) == 0
    return out


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt install chromium")
def test_a_report_opens_alone_and_without_complaint(report: Path) -> None:
    asked: list[str] = []
    complaints: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 800, "height": 900})
            page.on("request", lambda request: asked.append(request.url))
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(report.as_uri(), timeout=120_000)
            charts, wide = page.locator("svg").count(), page.evaluate("document.documentElement.scrollWidth")
        finally:
            browser.close()
    assert [url for url in asked if not url.startswith("data:")] == [report.as_uri()]
    assert complaints == []
    assert charts >= 10
    assert wide <= 800, "the page scrolls sideways"
