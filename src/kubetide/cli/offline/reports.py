"""Reports on their way out: as a file, and small on the terminal."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from kubetide.charts import to_text
from kubetide.charts.page import Section
from kubetide.errors import InvalidInput

_HEIGHT = 12


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give what is told how much is done of how much; a bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; its first column names the rows."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title)
    for place, heading in enumerate(headings):
        # However narrow the terminal, what a row is and what it comes to is never cut.
        shown.add_column(heading, justify="right" if place else "left", overflow="fold")
    for row in rows:
        shown.add_row(*row)
    Console().print(shown)


def show_charts(sections: Sequence[Section]) -> None:
    """Print the charts of a report, each under the heading of its section."""
    width, colour = min(shutil.get_terminal_size().columns, 100), sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for section in sections:
        if section.charts:
            click.echo(f"\n{section.heading}\n")
            for chart in section.charts:
                click.echo(to_text(chart, width=width, height=_HEIGHT, colour=colour) + "\n")


def write_report(path: Path, text: str) -> None:
    """Write a report; say where it is on standard error, so that standard output stays the result."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror}", subject=str(path)) from error
    click.echo(f"report: {path}", err=True)
