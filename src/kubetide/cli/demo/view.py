"""How the demo looks: plain lines, or on a terminal the same lines above a table that follows the cluster."""

from datetime import datetime, timedelta
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kubetide.embedded.sim.ledger import Account, Ledger, WorkloadRow
from kubetide.embedded.sim.narration import Line

_STYLES = {"plain": "", "good": "green", "warn": "yellow", "bad": "bold red"}


class View(Protocol):
    """Where the demo shows what happens."""

    def begin(self, title: str) -> None:
        """Show what this is."""
        ...

    def tell(self, line: Line) -> None:
        """Show one change."""
        ...

    def refresh(self, now: datetime, seen: list[WorkloadRow]) -> None:
        """Show how the cluster is doing."""
        ...

    def hint(self, text: str) -> None:
        """Say which keys there are, and what they have done."""
        ...

    def end(self, text: str) -> None:
        """Show the summary."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was; also after an error, and more than once."""
        ...


class PlainView:
    """Lines of text, the same for the same seed."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def begin(self, title: str) -> None:
        self._write(title)

    def tell(self, line: Line) -> None:
        self._write(line.render())

    def refresh(self, now: datetime, seen: list[WorkloadRow]) -> None:
        """Plain output has no table in between."""

    def hint(self, text: str) -> None:
        """Plain output has no line that stays."""

    def close(self) -> None:
        """Plain output has nothing to undo."""

    def end(self, text: str) -> None:
        self._write(text)

    def _write(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


class LiveView:
    """A terminal: lines scroll by above a table of the workloads."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._table: Table | None = None
        self._hint = ""

    def begin(self, title: str) -> None:
        self._console.print(Text(title, style="bold"))
        self._live.start()

    def tell(self, line: Line) -> None:
        text = Text(f"{line.at:%a %H:%M:%S}  ", style="dim")
        text.append(f"{line.subject:<34}  ", style="cyan")
        text.append(line.text, style=_STYLES[line.tone])
        self._console.print(text)

    def refresh(self, now: datetime, seen: list[WorkloadRow]) -> None:
        self._table = make_table(now, seen)
        self._draw()

    def hint(self, text: str) -> None:
        self._hint = text
        self._draw()

    def end(self, text: str) -> None:
        self.close()
        self._console.print(text)

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> None:
        parts: list[Table | Text] = [Text("")]
        if self._hint:  # above the table: what does not fit on a small terminal is cut off below
            parts.append(Text(self._hint, style="dim", no_wrap=True, overflow="ellipsis"))
        if self._table is not None:
            parts.append(self._table)
        self._live.update(Group(*parts), refresh=True)


def make_table(now: datetime, seen: list[WorkloadRow]) -> Table:
    """Return the table of workloads at this moment."""
    table = Table(title=f"{now:%A %H:%M}", title_justify="left", expand=False)
    for name in ("workload", "ready", "req/s", "latency", "cpu used", "cpu asked", "memory", "mem asked", "restarts"):
        table.add_column(name, justify="left" if name == "workload" else "right")
    for each in seen:
        table.add_row(
            "/".join(each.workload),
            f"{each.ready}/{each.pods}",
            f"{each.rate:.0f}" if each.rate else "",
            f"{each.latency * 1000:.0f} ms" if each.rate else "",
            f"{each.used_cores:.2f}",
            f"{each.requested_cores:.2f}",
            f"{each.memory_bytes / 2**20:.0f}Mi",
            f"{each.requested_memory / 2**20:.0f}Mi",
            str(each.restarts) if each.restarts else "",
            style="red" if each.ready < each.pods else "",
        )
    return table


def make_summary(ledger: Ledger, counts: dict[str, int], elapsed: timedelta) -> str:
    """Return what the time was like, as text."""
    rows: list[tuple[str, ...]] = [("workload", "pods", "core-hours asked", "used", "GiB-hours asked", "served well")]
    rows += [_row(key, account) for key, account in sorted(ledger.accounts.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    asked = sum(account.requested_core_hours for account in ledger.accounts.values())
    used = sum(account.used_core_hours for account in ledger.accounts.values())
    changes = ", ".join(f"{count} {what}" for what, count in counts.items()) or "nothing"
    return "\n".join(
        [
            "",
            f"{elapsed} simulated: {changes}.",
            *lines,
            f"In all {asked:.1f} core-hours were asked for and {used:.1f} used.",
        ]
    )


def _row(key: tuple[str, str], account: Account) -> tuple[str, ...]:
    pods = str(account.most_pods)
    if account.least_pods != account.most_pods:
        pods = f"{account.least_pods}-{account.most_pods}"
    return (
        "/".join(key),
        pods,
        f"{account.requested_core_hours:.1f}",
        f"{account.used_core_hours:.1f}",
        f"{account.requested_gib_hours:.1f}",
        f"{100 * account.good / account.samples:.0f} %" if account.samples else "",
    )
