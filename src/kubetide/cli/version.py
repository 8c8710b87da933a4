"""`kubetide version`"""

import platform

import click

from kubetide import __version__


@click.command("version", short_help="Print the version.")
def command() -> None:
    """Print the version of kubetide and of Python."""
    click.echo(f"kubetide {__version__} (Python {platform.python_version()})")
