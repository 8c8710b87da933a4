"""`kubetide plot -o png`: an image with words in it, or one line that says what is missing."""

import struct
import sys
from functools import partial

import pytest

from kubetide.charts import to_svg
from kubetide.cli.offline import plot
from kubetide.errors import InvalidInput
from kubetide.recommend.core.plots import charts
from unit.recommend.test_rows import WEB, one, usage


def drawing() -> str:
    given = usage(2)
    return plot._stacked([to_svg(chart) for chart in charts(given, one(WEB, given))])


def test_charts_become_one_png_of_twice_their_size() -> None:
    pytest.importorskip("resvg_py", reason="PNG needs resvg: pip install 'kubetide[png]'")
    try:
        image = plot._png(drawing())
    except InvalidInput as error:
        pytest.skip(str(error))
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", image[16:24]) == (1280, 960)


def test_a_missing_font_and_a_missing_library_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    resvg = pytest.importorskip("resvg_py", reason="PNG needs resvg: pip install 'kubetide[png]'")
    # Whatever is installed here: a machine without fonts.
    monkeypatch.setattr(resvg, "svg_to_bytes", partial(resvg.svg_to_bytes, skip_system_fonts=True))
    with pytest.raises(InvalidInput, match="there is no font"):
        plot._png(drawing())
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(InvalidInput, match=r"pip install kubetide\[png\]"):
        plot._png(drawing())
