"""The documentation as a web site: `make site`. Pages are plain Markdown and read as well without it."""

from typing import Any

from kubetide import __version__

project = "kubetide"
version = release = __version__
extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown"}
exclude_patterns = ["reference/demo-*.txt"]
# Links to headings, spelt as repositories' web pages do.
myst_heading_anchors = 4
# Pages are found through the index and the search; there is no second list of them.
suppress_warnings = ["toc.not_included", "misc.highlighting_failure"]
html_theme = "furo"
html_title = f"kubetide {__version__}"
html_show_copyright = False
html_copy_source = False


def setup(app: Any) -> None:
    """Put every page into the side bar, without a second list of pages that a reader of the Markdown would see."""
    app.connect("source-read", _list_pages)


def _list_pages(app: Any, name: str, source: list[str]) -> None:
    if name == root_doc:
        for folder in ("tutorial", "guides", "node", "reference", "library", "runbooks", "decisions"):
            source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {folder.capitalize()}\n\n{folder}/*\n```\n"
        source[0] += "\n```{toctree}\n:hidden:\n\narchitecture\n```\n"
