"""`kubetide completion`: a script that a shell sources to complete verbs and options."""

import click
from click.shell_completion import get_completion_class


@click.command("completion", short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script: `source <(kubetide completion bash)`."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells"
    click.echo(kind(ctx.find_root().command, {}, "kubetide", "_KUBETIDE_COMPLETE").source())
