"""A report is one file that asks for nothing, and what users named is text in it, never markup."""

import re

import numpy as np

from kubetide.charts import Axis, Chart, Line, Unit
from kubetide.charts.page import Section, Table, page

NASTY = "<script>alert('&')</script>"


def nasty_page() -> str:
    values = np.array([1.0, 2.0])
    chart = Chart(
        title=NASTY, x=Axis(unit=Unit.TIME), y=Axis(unit=Unit.CORES), layers=[Line(label=NASTY, x=values, y=values)]
    )
    table = Table(headings=["", NASTY], rows=[[NASTY, NASTY], []], caption=NASTY)
    return page(NASTY, [Section(heading=NASTY, text=[NASTY], table=table, charts=[chart])])


def test_names_are_text_wherever_they_stand() -> None:
    html = nasty_page()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 7


def test_a_page_names_no_address_but_the_namespace_of_svg() -> None:
    html = nasty_page()
    assert set(re.findall(r"https?://[^\"' ]+", html)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in html
    assert not re.findall(r"<(?:script|iframe|img|object|embed)", html)


def test_equal_reports_are_equal_bytes() -> None:
    assert nasty_page() == nasty_page()
