"""`kubetide verdicts`: every verdict with its remedy, from the table that `explain` and `doctor` judge by."""

from collections.abc import Iterator

import click

from kubetide.verdicts.core.table import AREAS
from kubetide.verdicts.core.verdict import Severity, Verdict

_HEAD = """# Verdicts

`kubetide explain` opens with a verdict about one object, `kubetide doctor` lists those about all objects of a cluster.
A verdict is one line, `WORDS: the cause`, and where something can be done about it, a remedy, `FIX: a command`. What
stands in angle brackets is filled in. With `-o json` both are members, `verdict` and `remedy`, beside the `id` below.

| severity | meaning | exit code of `doctor` |
|---|---|---|
| error | something does not work | 1 |
| warning | something works, but not as it was meant | 1 |
| unknown | something could not be looked at, which is never fine | 2, unless something is wrong too |
| note | worth knowing | 0 |
| ok | works | 0 |

This page is generated: `make docs`.
"""


@click.command("verdicts", short_help="Every verdict of explain and doctor, with its remedy.")
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text", show_default=True)
def command(form: str) -> None:
    """Print every verdict with its remedy."""
    if form == "markdown":
        click.echo(reference(), nl=False)
        return
    for area, verdicts in AREAS.items():
        click.secho(area, bold=True)
        for verdict in verdicts:
            click.echo(f"  {verdict.id} ({verdict.severity.value})")
            click.echo(f"      {verdict.line}")
            if verdict.remedy:
                click.echo(f"      FIX: {verdict.remedy}")


def reference() -> str:
    """Return the reference page."""
    return "\n".join((_HEAD, *(line for area, verdicts in AREAS.items() for line in _section(area, verdicts))))


def _section(area: str, verdicts: tuple[Verdict, ...]) -> Iterator[str]:
    yield f"## {area}"
    yield ""
    for verdict in verdicts:
        yield f"### `{verdict.id}`"
        yield ""
        yield f"{verdict.meaning} ({verdict.severity.value})"
        yield ""
        yield "```text"
        yield verdict.line
        if verdict.remedy:
            yield f"FIX: {verdict.remedy}"
        elif verdict.severity is not Severity.OK:
            yield "(nothing to do)"
        yield "```"
        yield ""
