"""The screens of `make demo` in the documentation are those that it shows: `make docs` writes them."""

import io
from datetime import timedelta
from pathlib import Path

from kubetide.cli.demo.showing import Showing
from kubetide.cli.demo.view import PlainView
from kubetide.dashboard.core.screen import render, text_of
from kubetide.durations import parse_duration
from kubetide.embedded.sim import scenarios
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.simulate.controllers import ALL

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reference"
AT = timedelta(hours=3, minutes=4)


def test_the_captures_are_current() -> None:
    webshop = scenarios.load("webshop")
    whole = parse_duration(webshop.duration)
    showing = Showing(webshop, PlainView(io.StringIO()), length=AT, of=whole, names=ALL)
    state = run_virtual(showing.run(), start=webshop.start).state
    for width, height in ((80, 24), (160, 50)):
        shown = "\n".join(text_of(render(state, width, height))) + "\n"
        assert (PAGES / f"demo-{width}x{height}.txt").read_text() == shown, "run `make docs`"
