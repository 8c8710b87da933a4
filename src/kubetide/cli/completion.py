"""`kubetide completion`: a script that a shell sources to complete verbs and options.

`--flag=val` is three words to bash, and one to zsh and fish: there the flag and its value are taken apart for finding
what fits, and put together again for the shell. Files are completed after a space only, where the shell does it itself.
"""

import click
from click.shell_completion import (
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
)

from kubetide.cli.flag_completion import reads_flags_itself
from kubetide.cli.main import COMPLETE_VARIABLE


class _OneWord(ShellComplete):
    """A shell that takes a flag and its value behind an equals sign for one word."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        name, sign, value = incomplete.partition("=")
        if not sign or not name.startswith("-"):
            return super().get_completions(args, incomplete)
        if reads_flags_itself(args):
            found = super().get_completions([*args, name, sign], value)
        else:
            found = super().get_completions(args, incomplete)
        return [CompletionItem(f"{name}={item.value}", help=item.help) for item in found if item.type == "plain"]


@add_completion_class
class _Zsh(_OneWord, ZshComplete):
    pass


@add_completion_class
class _Fish(_OneWord, FishComplete):
    pass


@click.command("completion", short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script: `source <(kubetide completion bash)`."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells"
    click.echo(kind(ctx.find_root().command, {}, "kubetide", COMPLETE_VARIABLE).source())
