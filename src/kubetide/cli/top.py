"""`kubetide top`: the workloads of any cluster in the terminal, live, over the read model of the dashboard."""

import asyncio
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import click
from rich.console import Console

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.codec import encode
from kubetide.charts import to_text
from kubetide.cli.dashboard.command import Options, connector
from kubetide.cli.dashboard.components import RunningComponents
from kubetide.cli.demo.keyboard import keyboard
from kubetide.cli.demo.view import LiveView
from kubetide.cli.main import Invocation
from kubetide.cli.offline.record import DURATION
from kubetide.cli.places import local_places
from kubetide.clock import SystemClock
from kubetide.dashboard.core.model import Workload
from kubetide.dashboard.core.pictures import replica_chart, workload_chart
from kubetide.dashboard.core.screen import text_of
from kubetide.dashboard.core.top import Controls, Shown, render
from kubetide.dashboard.web.watching import ClusterWatch
from kubetide.errors import InvalidInput
from kubetide.kube.client.kubeconfig import load as access

REDRAW_SECONDS = 0.5
ONCE_WIDTH = 160
"""Of what is printed to a file or a pipe."""
_KINDS = {"hpa": "HorizontalPodAutoscaler", "vpa": "VerticalPodAutoscaler"}


@click.command("top", short_help="The workloads of a cluster in the terminal: replicas, usage, sizes, verdicts.")
@click.option("--once", is_flag=True, help="Print the cluster as it is and end; also without a terminal.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--filter", "search", default="", help="Only what matches: words, ns:shop, kind:statefulset, is:problem.")
@click.option("--interval", default="5s", show_default=True, type=DURATION, help="How often the cluster is read.")
@click.pass_obj
def command(invocation: Invocation, once: bool, output: str, search: str, interval: timedelta) -> None:
    """Show the workloads of a cluster, the worst first, and renew it until q.

    Enter explains the chosen workload, p plots it, e lists what changed, n shows the nodes, / filters, v a r c m sort.
    """
    if output == "json" and not once:
        raise InvalidInput("json is printed once: add --once", field="-o")
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidInput("this is no terminal: add --once")
    asyncio.run(_once(invocation, output, search) if once else _live(invocation, search, interval))


def _watch(invocation: Invocation, interval: timedelta) -> ClusterWatch:
    options = Options(kubeconfig=invocation.kubeconfig)
    connect = connector(options)
    namespace = "" if invocation.all_namespaces else invocation.namespace or ""
    return ClusterWatch(
        lambda observe: connect(invocation.context or "", "", observe),
        SystemClock(),
        namespace=namespace,
        interval=interval,
    )


async def _once(invocation: Invocation, output: str, search: str) -> None:
    watch = _watch(invocation, timedelta(seconds=5))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch.run(), name="top")
        try:
            look = await watch.current()
        finally:
            task.cancel()
    controls = Controls(search=search)
    if output == "json":
        rows = controls.matched(look.rows)
        click.echo(encode({"at": look.view.now, "workloads": rows, "nodes": look.nodes}).decode())
        return
    shown = Shown(context=_context(invocation), now=look.view.now, rows=look.rows, nodes=look.nodes)
    width = Console().width if sys.stdout.isatty() else ONCE_WIDTH
    height = len(controls.matched(look.rows)) + 6
    click.echo("\n".join(line for line in text_of(render(shown, controls, width, height))[:-1]).rstrip())


def _context(invocation: Invocation) -> str:
    return access(clock=SystemClock(), path=invocation.kubeconfig, context=invocation.context or "").context


async def _live(invocation: Invocation, search: str, interval: timedelta) -> None:
    view = LiveView()
    with keyboard(sys.stdin) as keys:
        if keys is None:
            raise InvalidInput("this is no terminal of ours: add --once")
        top = _Top(invocation, _watch(invocation, interval), view, Controls(search=search))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each, name="top") for each in (top.watch.run(), top.ask())]
            view.begin("")
            try:
                with keys.listen(top.press, keys_of):
                    await top.draw()
            finally:
                view.close()
                for task in tasks:
                    task.cancel()


class _Top:
    """What is on the screen, and who fills it."""

    def __init__(self, invocation: Invocation, watch: ClusterWatch, view: LiveView, controls: Controls) -> None:
        self.watch = watch
        self._view = view
        self._controls = controls
        self._context = _context(invocation)
        self._components = RunningComponents({self._context: local_places(invocation)})
        self._rows: list[Workload] = []
        self._text: tuple[str, ...] = ()
        self._asked = asyncio.Event()
        self._pressed = asyncio.Event()

    def press(self, key: str) -> None:
        """Let a key have its way."""
        before = self._controls
        self._controls = before.press(key, rows=len(before.matched(self._rows)))
        if (self._controls.view, self._controls.at) != (before.view, before.at):
            self._text = ()
            self._asked.set()
        self._pressed.set()

    async def draw(self) -> None:
        """Draw now and whenever something changed, until somebody ends it."""
        version = 0
        while not self._controls.ended:
            look = await self.watch.current()
            if look.version != version:
                version = look.version
                self._controls = self._controls.renewed(self._rows, look.rows)
                self._rows = look.rows
                self._asked.set()
            shown = Shown(
                context=self._context,
                now=look.view.now,
                rows=look.rows,
                nodes=look.nodes,
                text=self._text,
                problem=self.watch.problem,
            )
            self._view.show(partial(render, shown, self._controls))
            self._pressed.clear()
            try:
                async with asyncio.timeout(REDRAW_SECONDS):
                    await self._pressed.wait()
            except TimeoutError:
                continue

    async def ask(self) -> None:
        """Fetch the text of the view that was chosen, whenever one was, and again after every look."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            row = self._controls.chosen(self._rows)
            if row is not None and self._controls.view in ("explanation", "plot", "events"):
                asked = self._controls.view, row.key
                text = tuple(await self._about(row))
                chosen = self._controls.chosen(self._rows)
                if chosen is not None and asked == (self._controls.view, chosen.key):  # nobody went on meanwhile
                    self._text = text
                    self._pressed.set()

    async def _about(self, row: Workload) -> list[str]:
        scalers = [(kind, name) for kind, name in (("hpa", row.hpa), ("vpa", row.vpa)) if name]
        key = row.kind, ObjectKey(row.namespace, row.name)
        if self._controls.view == "plot":
            series = self.watch.history.of(key)
            if series is None or series.times.size < 2:
                return ["The first points appear after two looks at the cluster."]
            charts = (
                workload_chart("cpu", series),
                workload_chart("memory", series),
                replica_chart(series, row.bounds),
            )
            width = Console().width - 2
            return [line for chart in charts for line in (*to_text(chart, width=width, height=10).splitlines(), "")]
        if self._controls.view == "events":
            named = [key, *((_KINDS[kind], ObjectKey(row.namespace, name)) for kind, name in scalers)]
            events = await self._components.events(self.watch.client, named)
            seen = [
                f"{one.at:%H:%M:%S}  {one.subject}  {one.text}" for one in self.watch.log if one.workload == row.key
            ]
            listed = [f"{one['at']}  {one['reason']}  {one['text']}" for one in reversed(events)]
            return [*reversed(seen), *listed] or ["No events, and nothing changed since top runs."]
        lines: list[str] = []
        for kind, name in scalers:
            told = await self._components.explain(
                self.watch.client, self._context, kind, ObjectKey(row.namespace, name)
            )
            lines += [*told.lines, ""] if told.lines else [f"{kind} {name}: {told.unknown}", ""]
        return lines or ["It has no autoscaler: its replicas and requests are those of its manifest."]


def keys_of(data: bytes) -> Iterator[str]:
    """Yield the keys of what a terminal sent: characters, and escape sequences whole."""
    text = data.decode(errors="replace")
    position = 0
    while position < len(text):
        end = position + 1
        if text[position] == "\x1b" and text[end : end + 1] in ("[", "O"):
            end += 1
            while end < len(text) and not text[end].isalpha() and text[end] != "~":
                end += 1
            end += 1
            yield f"\x1b[{text[position + 2 : end]}"
        else:
            yield text[position]
        position = end
