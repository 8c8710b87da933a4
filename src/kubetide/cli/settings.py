"""`kubetide settings`: every setting with its flag, variable, default and meaning, from the declarations themselves."""

from collections.abc import Iterator
from typing import Any

import click

from kubetide.api.values.codec import encode
from kubetide.config import Option, options
from kubetide.settings import SECTIONS

_HEAD = """# Settings

Every setting can be given as a flag (`--flag=value`, Go's spellings work), as an environment variable, or in a YAML
file (`--config`, one section per component, the names of the first column). A flag beats the variable, the variable
beats the file, the file beats the default. A flag that several components of one process share may be prefixed:
`--recommender.kube-api-qps=50`.

```yaml
# kubetide run hpa,slo --config settings.yaml
process: {listen: "127.0.0.1:9000"}
kube: {qps: 50, burst: 100}
hpa: {sync_period: 30s, tolerance: 0.05}
slo: {growth_limit_percent: 10, feature_gates: [ConfigMapValidatingWebhook=true]}
```

Durations are texts such as `1m30s`, lists may be YAML lists or texts with commas, dashes may stand for underscores. A
section or a setting that does not exist is refused with its name; a section whose component does not run is passed
over, so that one file may serve several processes.

This page is generated: `make docs`.
"""


@click.command("settings", short_help="All settings with flags, variables, defaults and meaning.")
@click.argument("section", required=False, metavar="[SECTION]", type=click.Choice(list(SECTIONS)))
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text", show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(section: str | None, form: str, output: str) -> None:
    """Print all settings, or those of SECTION.

    SECTION is process, kube, hpa, recommender, updater, admission, policy, plan, slo, colocation, metrics or node.
    """
    chosen = (section,) if section else tuple(SECTIONS)
    if output == "json":
        click.echo(encode([_fields(option) for name in chosen for option in options(SECTIONS[name])]))
        return
    if form == "markdown":
        click.echo(reference(chosen), nl=False)
        return
    for name in chosen:
        click.secho(name, bold=True)
        for option in options(SECTIONS[name]):
            click.echo(f"  --{option.flag} (default {option.show(option.default) or 'none'}; {option.env})")
            click.echo(f"      {option.doc}")


def _fields(option: Option) -> dict[str, Any]:
    return {
        "section": option.section,
        "name": option.name,
        "flag": option.flag,
        "aliases": list(option.aliases),
        "env": option.env,
        "default": option.show(option.default),
        "minimum": option.minimum,
        "maximum": option.maximum,
        "choices": list(option.choices),
        "meaning": option.doc,
    }


def reference(sections: tuple[str, ...] = tuple(SECTIONS)) -> str:
    """Return the reference page."""
    return "\n".join((_HEAD, *(line for name in sections for line in _section(name)))) + "\n"


def _section(name: str) -> Iterator[str]:
    kind = SECTIONS[name]
    yield f"## `{name}`"
    yield ""
    if kind.__doc__ and not kind.__doc__.startswith(kind.__name__):
        yield kind.__doc__.splitlines()[0]
        yield ""
    yield "| setting | flag | variable | default | meaning |"
    yield "|---|---|---|---|---|"
    yield from (_row(option) for option in options(kind))
    yield ""


def _row(option: Option) -> str:
    default = option.show(option.default)
    shown = f"`{default}`" if default else ""
    meaning = option.doc.replace("|", "\\|")
    if option.maximum is not None or option.minimum not in (0.0, None):
        meaning = f"{meaning} Must be {option.range}."
    # The setting's own name is a flag too; only other projects' names need to be told.
    own = option.name.replace("_", "-")
    flags = ", ".join(f"`--{flag}`" for flag in (option.flag, *(name for name in option.aliases if name != own)))
    return f"| `{option.name}` | {flags} | `{option.env}` | {shown} | {meaning} |"
