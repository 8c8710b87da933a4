"""5,000 workloads in a browser, and a second context that nobody answers at."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import yaml
from aiohttp import web
from axe_playwright_python.sync_playwright import Axe
from benchmarks.dashboard import double, objects
from playwright.sync_api import Browser, Page, expect

WORKLOADS = 5000
PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def api_server() -> Iterator[str]:
    """Serve the double of an API server in a thread of its own."""
    ready = threading.Event()
    urls: list[str] = []
    ends: list[Callable[[], object]] = []

    async def serve() -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        ends.append(lambda: loop.call_soon_threadsafe(ended.set))
        # Nothing changes: what is tested is the number of rows.
        runner = web.AppRunner(double(objects(WORKLOADS), 0), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        ready.set()
        await ended.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        assert ready.wait(120)
        yield urls[0]
    finally:
        ends[0]()
        thread.join(30)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dashboard of a large cluster and of one that is away; gives the URL."""
    folder = tmp_path_factory.mktemp("large")
    with socket.socket() as taken, api_server() as url:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        servers = {"large": url, "away": f"http://127.0.0.1:{taken.getsockname()[1]}"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "large",
            "clusters": [{"name": name, "cluster": {"server": server}} for name, server in servers.items()],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "nobody"}} for name in servers],
        }
        (folder / "config").write_text(yaml.safe_dump(config))
        command = (sys.executable, "-m", "kubetide", "--kubeconfig", str(folder / "config"), "dashboard", "--port", "0")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        assert process.stdout is not None
        try:
            yield process.stdout.readline().partition(" ")[2].strip().rstrip("/")
        finally:
            process.stdout.close()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def page_of(browser: Browser, url: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1360, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url)
    try:
        yield page
    finally:
        context.close()


def test_of_thousands_of_workloads_only_those_in_sight_are_in_the_page(browser: Browser, large: str) -> None:
    with page_of(browser, f"{large}/c/large/workloads?sort=name") as page:
        rows = page.locator("#rows tr[aria-rowindex]")
        expect(rows.first).to_contain_text("service-00000")
        expect(page.locator("table.list")).to_have_attribute("aria-rowcount", str(WORKLOADS))
        assert rows.count() <= 200
        page.evaluate("document.getElementById('scroll').scrollTop = 1e9")
        last = page.locator(f"#rows tr[aria-rowindex='{WORKLOADS}']")
        expect(last).to_be_visible()
        assert rows.count() <= 200
        page.keyboard.press("/")
        page.keyboard.type("service-04321")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text("service-04321")
        expect(page.locator("#counts")).to_contain_text(f"1 of {WORKLOADS} shown")


def test_a_context_that_is_away_is_a_page_that_leads_back(browser: Browser, large: str) -> None:
    with page_of(browser, f"{large}/") as page:
        expect(page.locator("h1")).to_have_text("Overview")
        page.locator("details.menu summary").click()
        page.get_by_role("link", name="away").click()
        expect(page.locator("h1")).to_have_text("The cluster cannot be read")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.get_by_role("navigation", name="Other clusters").get_by_role("link", name="large").click()
        expect(page.locator("h1")).to_have_text("Overview")
        expect(page.locator("#counts")).to_contain_text(f"{WORKLOADS} workloads")


def test_a_cluster_that_comes_back_is_shown_without_asking(browser: Browser, large: str) -> None:
    with page_of(browser, f"{large}/c/away/") as page:
        expect(page.locator("h1")).to_have_text("The cluster cannot be read")
        answer = {"status": 200, "content_type": "text/html", "body": "<h1>It is back</h1>"}
        page.route("**/c/away/", lambda route: route.fulfill(**answer))
        expect(page.locator("h1")).to_have_text("It is back")
