"""The dashboard of the demo cluster as a person meets it: in a browser, with keys, on a phone, in the dark."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)
PAGES = {
    "overview": "",
    "workloads": "workloads",
    "workload": "workloads/shop/Deployment/storefront",
    "sized": "workloads/shop/Deployment/recommendations",
    "nodes": "nodes",
    "node": "nodes/node-1",
    "health": "health",
}
PICTURES = os.environ.get("KUBETIDE_SCREENSHOTS", "")
"""A folder for screenshots of every page: `make screenshots` keeps them as docs."""


@contextmanager
def looking(
    browser: Browser,
    demo: str,
    path: str = "",
    *,
    scheme: Literal["light", "dark"] = "light",
    width: int = 1360,
    **more: Any,
) -> Iterator[Page]:
    """Open a page; complain about anything in the console, and about any request that leaves the machine."""
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(demo) else complaints.append(request.url))
    page.goto(f"{demo}/c/kubetide/{path}")
    try:
        yield page
        assert complaints == []
    finally:
        context.close()


def picture(page: Page, name: str, *, height: int = 900) -> None:
    """Keep what is seen as a picture for the docs, where pictures are made."""
    if PICTURES:
        page.set_viewport_size({"width": (page.viewport_size or {"width": 1360})["width"], "height": height})
        page.mouse.move(0, 0)
        page.screenshot(path=Path(PICTURES) / f"{name}.png")


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_whole_and_accessible(browser: Browser, demo: str, name: str) -> None:
    with looking(browser, demo, PAGES[name]) as page:
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
        if page.locator("#what-if").count():
            expect(page.locator("#what-if-answer")).not_to_contain_text("Computing")
        if page.locator("#charts").count():
            expect(page.locator("#charts svg").first).to_be_visible()
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        picture(page, f"dashboard-{name}", height=1420 if name in ("workload", "sized") else 900)


def test_the_dark_side_is_accessible_too_and_a_button_leads_there(browser: Browser, demo: str) -> None:
    with looking(browser, demo, PAGES["workload"], scheme="dark") as page:
        background = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(background)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        picture(page, "dashboard-dark")
        page.get_by_role("button", name="Switch between light and dark").click()
        light = page.evaluate(background)
        assert light != dark
        page.reload()
        assert page.evaluate(background) == light  # the choice is kept


def test_a_page_renews_itself_while_the_cluster_lives(browser: Browser, demo: str) -> None:
    with looking(browser, demo) as page:
        clock = page.locator("#live-text")
        first = clock.inner_text()
        charts = page.locator("#charts svg").first
        drawn = charts.inner_html()
        expect(clock).not_to_have_text(first)
        page.wait_for_function("before => document.querySelector('#charts svg')?.innerHTML !== before", arg=drawn)


def test_a_search_filters_on_the_server_and_stays_in_the_address(browser: Browser, demo: str) -> None:
    with looking(browser, demo, "workloads") as page:
        rows = page.locator("#rows tr[aria-rowindex]")
        expect(rows).not_to_have_count(1)
        page.keyboard.press("/")
        page.keyboard.type("storef")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text("storefront")
        page.wait_for_url(re.compile("q=storef"))
        page.reload()
        expect(rows).to_have_count(1)
        page.locator("#q").fill("no such workload")
        expect(page.locator("#rows")).to_contain_text("No workload matches")


def test_rows_are_sorted_by_their_headings(browser: Browser, demo: str) -> None:
    with looking(browser, demo, "workloads") as page:
        heading = page.get_by_role("columnheader", name="Workload")
        for order, reverse in (("ascending", False), ("descending", True)):
            heading.get_by_role("link").click()
            expect(heading).to_have_attribute("aria-sort", order)  # the old page is gone
            page.wait_for_load_state()
            names = page.locator("#rows th a").all_inner_texts()
            assert names == sorted(names, reverse=reverse)


def test_sliders_are_answered_with_sizes_and_a_patch(browser: Browser, demo: str) -> None:
    with looking(browser, demo, PAGES["sized"]) as page:
        answer = page.locator("#what-if-answer")
        margin = page.locator("#margin")
        # Right after the start there is too little to go by.
        page.wait_for_function(
            """async () => {
                 const form = document.getElementById("what-if");
                 form.requestSubmit();
                 await new Promise((done) => setTimeout(done, 1000));
                 return document.querySelector("#what-if-answer b");
               }"""
        )
        before = answer.locator("b").first.inner_text()
        margin.focus()
        for _ in range(6):
            page.keyboard.press("ArrowRight")
        expect(page.locator("#margin-out")).to_have_text("45")
        expect(answer).to_have_attribute("data-of", re.compile("margin=0.45"))
        assert answer.locator("b").first.inner_text() != before
        expect(answer.locator("#patch-text")).to_contain_text("kind: Deployment")


def test_keys_go_from_page_to_page_and_through_rows(browser: Browser, demo: str) -> None:
    with looking(browser, demo) as page:
        page.keyboard.press("g")
        page.keyboard.press("w")
        page.wait_for_url(re.compile("/workloads$"))
        page.goto(f"{page.url}?sort=name")  # an order that stays while the cluster lives
        page.keyboard.press("j")
        page.keyboard.press("j")
        second = page.locator("#rows th a").nth(1)
        expect(second).to_be_focused()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/workloads/.+/.+/.+"))


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_shows_it_without_scrolling_sideways(browser: Browser, demo: str, name: str) -> None:
    with looking(browser, demo, PAGES[name], width=390, device_scale_factor=1.5, is_mobile=True) as page:
        expect(page.locator("h1")).to_be_visible()
        wide, seen = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert wide <= seen
        if name in ("workloads", "nodes"):  # what is wrong must not be out of sight
            expect(page.locator("#rows .only-small").first).to_be_in_viewport(ratio=1)
        if name == "overview":
            picture(page, "dashboard-phone")


def test_it_reads_without_scripts_too(browser: Browser, demo: str) -> None:
    with looking(browser, demo, "workloads", java_script_enabled=False) as page:
        expect(page.locator("#rows")).to_contain_text("storefront")
