"""`kubetide replay`: what a policy would decide, fed period by period with what happened."""

import sys

import click

from kubetide.replay.stdio import SESSIONS, make_session, serve


@click.command("replay", short_help="What a policy would have decided, fed with what happened.")
@click.option(
    "--stdio",
    "kind",
    type=click.Choice(sorted(SESSIONS)),
    required=True,
    help="Speak the line protocol on standard input and output: sizes of containers, or replica counts.",
)
@click.option("--policy", required=True, metavar="NAME", help="Which policy decides.")
def command(kind: str, policy: str) -> None:
    """Decide online: told the past, asked for a decision, told more. One JSON object per line.

    Policies of `usage`: adaptive, adaptive-one, vpa, krr, peak, static, current.
    """
    session = make_session(kind, policy)
    serve(session, sys.stdin.buffer, sys.stdout.buffer)
