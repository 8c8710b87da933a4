"""The `kubetide` command: one verb per module, imported only when it is called.

A cold start imports click and this file; aiohttp, NumPy and the capabilities come with the verb that needs them.
"""

import importlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from kubetide import __version__
from kubetide.errors import InvalidInput, KubetideError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
COMPLETE_VARIABLE = "_KUBETIDE_COMPLETE"
"""Set by the scripts of `kubetide completion` when a shell asks what fits."""

VERBS = {
    "check": ("kubetide.cli.doctor.command", "The same as doctor, its older name."),
    "compat": ("kubetide.cli.compat", "Which behaviour holds from which upstream release."),
    "completion": ("kubetide.cli.completion", "Print a shell completion script."),
    "dashboard": ("kubetide.cli.dashboard.command", "A cluster in the browser: workloads, nodes, verdicts, what-ifs."),
    "demo": ("kubetide.cli.demo.command", "A simulated cluster under load, with every controller at work."),
    "doctor": ("kubetide.cli.doctor.command", "What is wrong in a cluster, with the fix: objects, APIs, permissions."),
    "enable": ("kubetide.cli.enable", "VPAs for all workloads of namespaces, and their removal."),
    "explain": ("kubetide.cli.explain.command", "What is wrong with an object, the fix, and why it is its size."),
    "manifests": ("kubetide.cli.manifests", "CRDs, rights and workloads to install kubetide in a cluster."),
    "node": ("kubetide.cli.node.command", "The agent of one node."),
    "plot": ("kubetide.cli.offline.plot", "What a workload used, beside its requests and limits."),
    "recommend": ("kubetide.cli.offline.recommend", "What workloads should request, what it saves, and the evidence."),
    "record": ("kubetide.cli.offline.record", "Record what happens, or happened, in a cluster."),
    "replay": ("kubetide.cli.offline.replay", "What a policy would have decided, fed with what happened."),
    "run": ("kubetide.cli.run", "Run controllers against a cluster."),
    "runtime-proxy": ("kubetide.cli.node.runtime_proxy", "Stand between the kubelet and the container runtime."),
    "settings": ("kubetide.cli.settings", "All settings with flags, variables, defaults and meaning."),
    "simulate": ("kubetide.cli.offline.simulate", "Compare policies in a closed loop, on a simulated cluster."),
    "top": ("kubetide.cli.top", "The workloads of a cluster in the terminal: replicas, usage, sizes, verdicts."),
    "tune": ("kubetide.cli.offline.tune", "Search the recommender's numbers on a recording."),
    "uninstall": ("kubetide.cli.uninstall", "Remove what components made themselves and nobody uses any more."),
    "up": ("kubetide.cli.up", "An embedded Kubernetes API server; kubectl works on it."),
    "verdicts": ("kubetide.cli.doctor.verdicts", "Every verdict of explain and doctor, with its remedy."),
    "version": ("kubetide.cli.main", "Print the version."),
}


@dataclass(frozen=True, slots=True)
class Invocation:
    """Which cluster, what of it, and in which form: what may stand before any verb and behind it."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    log_format: str = "text"
    verbosity: int = 0
    all_namespaces: bool = False
    output: str = ""

    def with_options(self, given: Mapping[str, Any]) -> "Invocation":
        """Return this one with what stood behind the verb, where something did."""
        return replace(
            self,
            kubeconfig=given.get("kubeconfig") or self.kubeconfig,
            context=given.get("context_name") or self.context,
            namespace=given.get("namespace") or self.namespace,
            all_namespaces=given.get("all_namespaces") or self.all_namespaces,
            output=given.get("output") or self.output,
        )

    def configure_logging(self, verbosity: int | None = None) -> None:
        """Send logs to standard error in the chosen form."""
        from kubetide import log

        log.configure(json=self.log_format == "json", verbosity=self.verbosity if verbosity is None else verbosity)


class _LazyVerbs(click.Group):
    """Knows all verbs by name and help, and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(VERBS[cmd_name][0]).command
        return accept_globals(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            import difflib  # only for the error: it takes long to import

            close = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, VERBS[name][1]) for name in sorted(VERBS)])


def _complete_namespaces(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from kubetide.cli.name_completion import complete_namespaces  # a shell asks; a cold start does not

    return complete_namespaces(ctx, param, incomplete)


def _global_options() -> list[click.Option]:
    return [
        click.Option(["--kubeconfig"], type=click.Path(path_type=Path, dir_okay=False), hidden=True),
        click.Option(["--context", "context_name"], hidden=True),
        click.Option(["-n", "--namespace"], hidden=True, shell_complete=_complete_namespaces),
        click.Option(["-A", "--all-namespaces"], is_flag=True, hidden=True),
        # A verb that prints in several forms has an option of its own.
        click.Option(["-o", "--output"], type=click.Choice(["text"]), hidden=True),
    ]


def accept_globals(command: click.Command) -> click.Command:
    """Let a verb take the options before it behind it as well, as people type them for kubectl."""
    taken = {name for param in command.params for name in param.opts}
    extra = [option for option in _global_options() if not taken & set(option.opts)]
    inner = command.callback
    if not extra or inner is None or command.context_settings.get("ignore_unknown_options"):
        return command  # `run` reads its flags itself

    def callback(*words: Any, **values: Any) -> Any:
        ctx = click.get_current_context()
        given = {str(option.name): values.pop(str(option.name)) for option in extra}
        ctx.obj = (ctx.obj or Invocation()).with_options(given)
        return ctx.invoke(inner, *words, **values)

    command.params.extend(extra)
    command.callback = callback
    return command


@click.group(cls=_LazyVerbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Which cluster. Default: $KUBECONFIG, then ~/.kube/config, then the pod's own identity.",
)
@click.option("--context", "context_name", help="Context of the kubeconfig.")
@click.option(
    "-n",
    "--namespace",
    shell_complete=_complete_namespaces,
    help="Namespace to look at; default is the context's, or all.",
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Look at all namespaces.")
@click.option("-o", "--output", help="Form of the output, such as json, for verbs that have several.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-v", "--verbose", "verbosity", count=True, help="More log lines; twice for debugging.")
@click.version_option(__version__, "--version", message="%(prog)s %(version)s", help="Print the version.")
@click.pass_context
def cli(
    ctx: click.Context,
    kubeconfig: Path | None,
    context_name: str | None,
    namespace: str | None,
    all_namespaces: bool,
    output: str | None,
    log_format: str,
    verbosity: int,
) -> None:
    """Keep Kubernetes workloads the right size: how many pods, how big each pod, how much of a node is shared."""
    ctx.obj = Invocation(kubeconfig, context_name, namespace, log_format, verbosity, all_namespaces, output or "")
    named = {"kubeconfig": kubeconfig, "namespace": namespace, "all_namespaces": all_namespaces, "output": output}
    given = {name: value for name, value in named.items() if value}
    # What stands before a verb is the default of the verb's own option of that name.
    ctx.default_map = {**dict.fromkeys(VERBS, given), "node": {"status": given, "audit": given}}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run_cli(arguments))


def kubectl_plugin() -> None:
    """Run the same command line as `kubectl tide …`: kubectl finds programs named kubectl-tide on the PATH."""
    sys.exit(run_cli(program="kubectl tide"))


def run_cli(arguments: list[str] | None = None, *, program: str = "kubetide") -> int:
    """Run the command line and return its exit code: errors of ours are one line, without a traceback."""
    if COMPLETE_VARIABLE in os.environ:
        importlib.import_module(VERBS["completion"][0])  # it knows the shells better than click does
    try:
        result: Any = cli.main(args=arguments, prog_name=program, standalone_mode=False)
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except InvalidInput as error:
        click.echo(f"kubetide: {error}", err=True)
        return EXIT_USAGE
    except KubetideError as error:
        click.echo(f"kubetide: {error}", err=True)
        return EXIT_FAILED
    except ExceptionGroup as group:
        return tell_group(group)
    except BrokenPipeError:
        # The reader went away (`kubetide … | head`). Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        # A taken port, a directory that may not be written, a full disk: the machine's answer, not a fault of ours.
        click.echo(f"kubetide: {one_line(error)}", err=True)
        return EXIT_FAILED
    return result if isinstance(result, int) else 0


def tell_group(group: ExceptionGroup[Exception]) -> int:
    """Print why the parts of a process failed, a line each; raise the group if one of the errors is a bug."""
    leaves = _leaves(group)
    if not all(isinstance(leaf, KubetideError | OSError) for leaf in leaves):
        raise group
    for text in dict.fromkeys(one_line(leaf) for leaf in leaves):
        click.echo(f"kubetide: {text}", err=True)
    return EXIT_USAGE if all(isinstance(leaf, InvalidInput) for leaf in leaves) else EXIT_FAILED


def one_line(error: Exception) -> str:
    """Return an error for a person: without an error number, with the file it is about."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _leaves(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


# `kubetide version`


@click.command("version", short_help="Print the version.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(output: str) -> None:
    """Print the version of kubetide and of Python."""
    if output == "json":
        click.echo(json.dumps({"kubetide": __version__, "python": platform.python_version()}))
        return
    click.echo(f"kubetide {__version__} (Python {platform.python_version()})")
