"""The page of drills: exactly those there are, with the bounds they have."""

from pathlib import Path

from drills.page import TITLE, cells, registered

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "drills.md"


def rows() -> dict[str, list[str]]:
    return cells(PAGE.read_text())


def test_the_page_lists_exactly_the_drills_there_are() -> None:
    assert PAGE.read_text().startswith(TITLE)
    assert list(rows()) == list(registered()), "make drills writes the page"


def test_what_the_page_says_about_a_drill_is_what_it_does() -> None:
    for name, drill in registered().items():
        shows, figure, bound, result, tier = rows()[name]
        assert (shows, bound) == (drill.shows, drill.limit), name
        assert figure.startswith(f"{drill.figure}: "), name
        assert tier.startswith(drill.tier), name
        assert "failed" not in result, name


def test_every_result_is_a_figure_that_keeps_its_bound_or_says_what_to_install() -> None:
    for name, (_, figure, _, result, _) in rows().items():
        assert result.startswith(("kept (", "skipped: ")), f"{name}: {result}"
        assert result.startswith("skipped") == figure.endswith(": –"), name
