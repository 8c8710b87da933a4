"""`kubetide dashboard`: a web server that shows clusters, as the kubeconfig's user or as whoever logs in."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from kubetide.cli.main import Invocation
from kubetide.cli.offline.record import DURATION
from kubetide.cli.offline.usage_sources import sources_of, usage_options
from kubetide.cli.up import is_loopback
from kubetide.clock import SystemClock
from kubetide.errors import InvalidInput, KubetideError
from kubetide.recommend.core.money import Price

PORT = 8950


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a dashboard is served."""

    kubeconfig: Path | None = None
    context: str = ""
    host: str = "127.0.0.1"
    port: int = PORT
    by_token: bool = False
    prefix: str = ""
    hosts: frozenset[str] = frozenset()
    interval: timedelta = timedelta(seconds=5)
    price: Price | None = None
    sources: Any = field(default=None)
    """`recommend.gathering.Sources`, where usage of the past is."""


@click.command("dashboard", short_help="A cluster in the browser: workloads, nodes, verdicts, what-ifs.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--auth",
    type=click.Choice(["auto", "kubeconfig", "token"]),
    default="auto",
    show_default=True,
    help="As whom the cluster is read: the user of the kubeconfig, or each visitor with a token of their own. "
    "auto: token inside a pod, else kubeconfig.",
)
@click.option(
    "--path-prefix", default="", help="Path that a proxy leaves in front of every request, such as /kubetide."
)
@click.option("--allowed-host", "hosts", multiple=True, help="A name under which browsers may call it; repeatable.")
@click.option("--interval", default="5s", show_default=True, type=DURATION, help="How often the cluster is read.")
@click.option(
    "--price", default="", metavar="cpu=…,gib=…", help="Money per core-hour and GiB-hour, or a file of prices."
)
@click.option("--history", default="14d", show_default=True, type=DURATION, help="How far back Prometheus is asked.")
@usage_options
@click.pass_obj
def command(
    invocation: Invocation,
    /,
    host: str,
    port: int,
    auth: str,
    path_prefix: str,
    hosts: tuple[str, ...],
    interval: timedelta,
    price: str,
    **given: Any,
) -> None:
    """Serve a read-only dashboard of the contexts of a kubeconfig, or inside a cluster.

    Prints one line when it is ready, and stops on SIGTERM or Ctrl-C.
    """
    from kubetide.recommend.price_list import read_prices

    invocation.configure_logging()
    inside = (
        "KUBERNETES_SERVICE_HOST" in os.environ and invocation.kubeconfig is None and "KUBECONFIG" not in os.environ
    )
    by_token = auth == "token" or (auth == "auto" and inside)
    if not by_token and not is_loopback(host):
        raise InvalidInput(
            f"{host} can be reached by other machines, which would see what your kubeconfig may see; "
            "use --auth token, or a loopback address",
            field="--host",
        )
    prices = read_prices(price)
    options = Options(
        kubeconfig=invocation.kubeconfig,
        context=invocation.context or "",
        host=host,
        port=port,
        by_token=by_token,
        prefix=path_prefix,
        hosts=frozenset(hosts),
        interval=interval,
        price=None if prices is None else Price(prices.default.cpu, prices.default.gib),
        sources=sources_of(given, SystemClock()) if given["prometheus"] not in (None, "auto") else None,
    )
    asyncio.run(_until_told_to_stop(options))


async def _until_told_to_stop(options: Options) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with served(options) as url:
        click.echo(f"dashboard: {url}")
        await stop.wait()


@asynccontextmanager
async def served(options: Options) -> AsyncIterator[str]:
    """Serve a dashboard while the block lasts, and give its URL."""
    from kubetide.cli.dashboard.components import RunningComponents
    from kubetide.cli.dashboard.prometheus_history import PrometheusHistory
    from kubetide.cli.places import local_places
    from kubetide.dashboard.web.answers import Answers
    from kubetide.dashboard.web.server import Dashboard, serving
    from kubetide.dashboard.web.visitors import IN_CLUSTER, Visitors
    from kubetide.kube.client.kubeconfig import context_names
    from kubetide.kube.client.kubeconfig import load as access

    clock = SystemClock()
    chosen = access(clock=clock, path=options.kubeconfig, context=options.context)
    contexts: Sequence[str] = [IN_CLUSTER] if options.by_token else context_names(path=options.kubeconfig)
    current = IN_CLUSTER if options.by_token else chosen.context
    if options.by_token or current not in contexts:
        contexts = [current]
    local = {
        name: local_places(Invocation(kubeconfig=options.kubeconfig, context=name))
        for name in contexts
        if not options.by_token
    }
    usage = None
    if options.sources is not None and options.sources.prometheus is not None:
        usage = PrometheusHistory(options.sources.prometheus, clock, options.sources.question)
    answers = Answers(components=RunningComponents(local), usage_source=usage, price=options.price)
    async with asyncio.TaskGroup() as group:
        visitors = Visitors(
            connect=connector(options),
            clock=clock,
            group=group,
            contexts=contexts,
            current=current,
            by_token=options.by_token,
            interval=options.interval,
        )
        dashboard = Dashboard(visitors, answers, prefix=options.prefix, hosts=options.hosts)
        try:
            async with serving(dashboard, options.host, options.port) as port:
                shown = f"[{options.host}]" if ":" in options.host else options.host
                yield f"http://{shown}:{port}/{options.prefix.strip('/')}"
        finally:
            visitors.close()


def connector(options: Options) -> Callable[..., Any]:
    """Return how a cluster is reached: as the user of a context, or with a token and nothing else."""
    from kubetide.kube.client.client import Client
    from kubetide.kube.client.credentials import Static, bearer
    from kubetide.kube.client.http import HttpTransport
    from kubetide.kube.client.kubeconfig import load as access

    def connect(context: str, token: str, observe: Callable[[str, int, float], None]) -> Client:
        clock = SystemClock()
        name = options.context if options.by_token else context
        found = access(clock=clock, path=options.kubeconfig, context=name)
        if token:
            # Neither the certificate nor any other credential of the base goes along.
            found = replace(found, credentials=Static(bearer(token)))
        elif options.by_token:
            raise KubetideError("a visitor without a token has no cluster")
        return Client(HttpTransport(found), clock=clock, rng=random.Random(), observe=observe)

    return connect
