"""The HTML report in a real Chromium, offline: search, sort, a plot, thousands of rows, no console error."""

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from kubetide.recommend import rows
from kubetide.recommend.core.workloads import key_of
from kubetide.recommend.outputs.html import to_html
from kubetide.recommend.outputs.texts import Report
from unit.recommend.test_rows import WEB, usage

ROWS = 5000


class Page:
    """One page of a browser, driven over its debugging protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.complaints: list[Any] = []

    async def call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json(timeout=60)
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(message["params"])
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    async def value(self, script: str) -> Any:
        result = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")


@asynccontextmanager
async def opened(file: Path, profile: Path) -> AsyncIterator[Page]:
    """Open a file in a browser of its own that cannot reach any host."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no Chromium: install the Debian package chromium")
    process = await asyncio.create_subprocess_exec(
        browser,
        *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={profile}"),
        *("--host-resolver-rules=MAP * ~NOTFOUND", "--no-first-run", "--disable-dev-shm-usage", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(120), aiohttp.ClientSession() as session:
            while not (profile / "DevToolsActivePort").exists():
                assert process.returncode is None, "Chromium ended"
                await asyncio.sleep(0.1)
            port = (profile / "DevToolsActivePort").read_text().split()[0]
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                target = next(each for each in await answer.json() if each["type"] == "page")
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                for domain in ("Runtime", "Log", "Page"):
                    await page.call(f"{domain}.enable")
                await page.call("Page.navigate", url=file.as_uri())
                ready = "document.readyState === 'complete' && location.protocol === 'file:'"
                while not await page.value(ready):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                yield page
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def test_the_report_searches_sorts_and_plots_thousands_of_rows(tmp_path: Path) -> None:
    given = usage()
    row = rows([WEB], {key_of(WEB, "main"): given})[0]
    many = [msgspec.structs.replace(row, name=f"web-{i:04}", saved_cpu_millis=i) for i in range(ROWS)]
    samples = {key_of(replace(WEB, name=f"web-{i:04}"), "main"): given for i in range(20)}
    file = tmp_path / "report.html"
    file.write_text(to_html(Report(rows=tuple(many)), samples), encoding="utf-8")
    first = "document.querySelector('tr.row td').textContent"
    async with opened(file, tmp_path / "profile") as page:
        assert await page.value("document.getElementById('count').textContent") == f"{ROWS:,} of {ROWS:,}"
        # Only what is in sight is drawn, so that typing never waits for thousands of rows.
        assert await page.value("document.querySelectorAll('tr.row').length") < 500
        before = await page.value("document.querySelectorAll('tr.row').length")
        await page.value("scrollTo(0, 1e9)")
        while await page.value("document.querySelectorAll('tr.row').length") == before:  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # in its own time the browser sees the end

        await page.value("document.querySelectorAll('th button')[4].click()")
        assert await page.value(first) == f"shop/web-{ROWS - 1}Deployment · main"
        await page.value("document.querySelectorAll('#head th button')[0].click()")
        assert await page.value(first) == "shop/web-0000Deployment · main"
        chip = "[...document.querySelectorAll('#risks button')].find(each => each.dataset.risk === 'high').click()"
        await page.value(chip)
        assert await page.value("document.getElementById('count').textContent") == f"0 of {ROWS:,}"
        await page.value(chip.replace("'high'", "''"))

        search = "(s => { s.value = 'web-0007 deploy'; s.dispatchEvent(new Event('input')); })"
        await page.value(f"{search}(document.getElementById('search'))")
        assert await page.value("document.getElementById('count').textContent") == f"1 of {ROWS:,}"
        await page.value("toggle(document.querySelector('tr.row'))")
        assert await page.value("document.querySelectorAll('.plot svg').length") == 2
        assert "container-day" in await page.value("document.querySelector('.detail').textContent")
        for width in (1280, 390):
            size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
            await page.call("Emulation.setDeviceMetricsOverride", **size)
            assert await page.value("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
        assert page.complaints == []
