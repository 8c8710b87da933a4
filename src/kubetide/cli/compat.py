"""`kubetide compat`: which behaviour holds from which upstream release, from the tables that the code itself asks."""

from collections.abc import Iterator

import click

from kubetide.api.values.codec import encode
from kubetide.settings import COMPAT, CompatTable

_HEAD = """# Compatible releases

Every component behaves like the upstream release that `--compat` names (`--hpa.compat=1.35` where several share a
process). A rule holds from its release on; *always* says that kubetide follows it whatever `--compat` says, because
the older behaviour was a defect or nobody sees the difference. The version of the API server is not looked at.

This page is generated: `make docs`.
"""


@click.command("compat", short_help="Which behaviour holds from which upstream release.")
@click.argument("component", required=False, metavar="[COMPONENT]", type=click.Choice(list(COMPAT)))
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text", show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(component: str | None, form: str, output: str) -> None:
    """Print the rules of all components, or of COMPONENT, with the release that brought each."""
    chosen = (component,) if component else tuple(COMPAT)
    if output == "json":
        click.echo(encode([_fields(name, *rule) for name in chosen for rule in COMPAT[name].rules]))
        return
    if form == "markdown":
        click.echo(reference(chosen), nl=False)
        return
    for name in chosen:
        table = COMPAT[name]
        click.secho(f"{name}: {', '.join(table.versions)} (default {table.default})", bold=True)
        for rule, since, when, meaning in table.rules:
            click.echo(f"  {since}  {rule} ({when})")
            click.echo(f"      {meaning}")


def _fields(component: str, rule: str, since: str, when: str, meaning: str) -> dict[str, str]:
    return {"component": component, "rule": rule, "since": since, "holds": when, "meaning": meaning}


def reference(components: tuple[str, ...] = tuple(COMPAT)) -> str:
    """Return the reference page."""
    return "\n".join((_HEAD, *(line for name in components for line in _section(name, COMPAT[name]))))


def _section(name: str, table: CompatTable) -> Iterator[str]:
    yield f"## `{name}`: {table.upstream}"
    yield ""
    yield f"`--compat` takes {', '.join(table.versions)}; the default is {table.default}."
    yield ""
    yield "| rule | from | holds | meaning |"
    yield "|---|---|---|---|"
    for rule, since, when, meaning in table.rules:
        yield f"| `{rule}` | {since} | {when} | {_cell(meaning)} |"
    yield ""
    if table.gates:
        yield "| feature gate | exists from | on by default from | final from | meaning |"
        yield "|---|---|---|---|---|"
        for gate, since, on_since, locked, meaning in table.gates:
            yield f"| `{gate}` | {since} | {on_since} | {locked} | {_cell(meaning)} |"
        yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
