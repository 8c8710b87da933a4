"""`kubetide completion`: a script that a shell sources to complete verbs and options.

`--flag=val` is three words to bash, and one to zsh and fish: there the flag and its value are taken apart for finding
what fits, and put together again for the shell. Files are completed after a space only, where the shell does it itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
)

from kubetide.cli.main import COMPLETE_VARIABLE
from kubetide.config import Option

# Completion of flags that click does not know: those of upstream, which `run` and `node` read by themselves.

Known = Mapping[str, Iterable[Option]]

_FILES = frozenset({"config", "kubeconfig"})


def reads_flags_itself(words: Sequence[str]) -> bool:
    """Whether the next word would be a flag that click does not know: of `run COMPONENTS`, or of `node` alone."""
    for index, word in enumerate(words):
        after = words[index + 1 : index + 2]
        if word in ("run", "node"):
            return bool(after) if word == "run" else not after or after[0].startswith("-")
    return False


def complete_flag(known: Known, incomplete: str) -> list[CompletionItem]:
    """Return the flags that begin like `incomplete`, which begins with a dash."""
    typed = incomplete.lstrip("-").replace("_", "-")
    found: dict[str, str] = {}
    others: dict[str, str] = {}
    for section, options in known.items():
        prefix = f"{section}." if typed.startswith(f"{section}.") else ""
        for option in options:
            found.setdefault(f"{prefix}{option.flag}", option.doc)
            for alias in option.aliases:
                others.setdefault(f"{prefix}{alias}", option.doc)
    found.setdefault("v", "How much is logged.")
    for names in (found, others):
        fitting = sorted(name for name in names if name.startswith(typed))
        if fitting:
            return [CompletionItem(f"--{name}", help=_first_sentence(names[name])) for name in fitting]
    return []


def complete_value(known: Known, words: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """Return the values of the flag that `words` end with; bash passes the sign of `--flag=` as a word of its own."""
    before = words[:-1] if words and words[-1] == "=" else words
    option = _option(known, before[-1]) if before else None
    if option is None or (option.is_bool and before is words):
        return []
    if option.type is Path or option.flag in _FILES:
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(value) for value in _values(option.type) if value.startswith(incomplete)]


def _option(known: Known, word: str) -> Option | None:
    if not word.startswith("-") or "=" in word:
        return None
    name = word.lstrip("-").replace("_", "-")
    for section, options in known.items():
        for option in options:
            if name.removeprefix(f"{section}.") in (option.flag, *option.aliases):
                return option
    return None


def _values(kind: Any) -> list[str]:
    if kind is bool:
        return ["true", "false"]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(member.value) for member in kind]
    return []


def _first_sentence(text: str) -> str:
    return text.split(". ")[0].rstrip(".").replace("\n", " ")


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
