"""The page of all drills, from the registry and from what became of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from drills.drill import DRILLS, Drill, quantity

TITLE = "# Drills"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a drill."""

    name: str
    outcome: str
    why: str
    value: float | None
    writes: int
    acts: int
    logs: int
    form: str
    cpu_seconds: float


def registered() -> dict[str, Drill]:
    """Import all modules with drills and return them by group, in the order of files and lines."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        import_module(f"drills.{path.stem}")
    return dict(sorted(DRILLS.items(), key=lambda pair: pair[1].module))


def page(results: Mapping[str, Result], previous: str = "") -> str:
    """Return the page; drills that did not run keep what the previous page says."""
    before = cells(previous)
    lines = [TITLE, "", _INTRODUCTION.strip(), ""]
    group = ""
    for drill in registered().values():
        if drill.module != group:
            group = drill.module
            lines += [
                f"## {group.removeprefix('test_').replace('_', ' ').capitalize()}",
                "",
                "| drill | shows | figure | bound | result | tier |",
                "|---|---|---|---|---|---|",
            ]
        figure, outcome = _result(drill, results.get(drill.name), before.get(drill.name))
        tier = f"{drill.tier}; in CI: {drill.short}" if drill.short else drill.tier
        lines.append(
            f"| `{drill.name}` | {drill.shows} | {drill.figure}: {figure} | {drill.limit} | {outcome} | {tier} |"
        )
        following = [each for each in DRILLS.values() if each.module == group]
        if drill == following[-1]:
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def cells(text: str) -> dict[str, list[str]]:
    """Return the rows of a page by the name of their drill."""
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows}


def _result(drill: Drill, result: Result | None, before: list[str] | None) -> tuple[str, str]:
    if result is None:
        return (before[1].rpartition(": ")[2], before[3]) if before is not None else ("–", "not run")
    if result.outcome == "skipped":
        return "–", f"skipped: {result.why}"
    figure = "–" if result.value is None else quantity(result.value, drill.unit)
    if result.outcome != "passed":
        return figure, "**failed**"
    log = f"{result.writes:,} writes, {result.acts:,} acts" if result.logs else "no API server"
    form = f"{result.form}, " if drill.short else ""
    return figure, f"kept ({form}{log}, {result.cpu_seconds:.0f} s of CPU)"


_INTRODUCTION = """
What goes wrong in a cluster, played on purpose. Each drill has a figure and a bound; a figure beyond its bound fails
the drill. The page is written by the drills themselves:

```
make drills                                   # all, whole, then this page; takes a while
cd tests && python -m drills --short -k storm # those whose test is called so, in the form of CI
```

Most run in virtual time on the embedded cluster: the controllers are the real ones, hours take seconds, and the same
seed gives the same history. Those on real parts (a process, a socket, containerd, a kernel in an emulated machine, etcd
and kube-apiserver) run where these are found, and say what to install where not.

In every drill with an API server one checker reads the server's audit log, and only that, and finds that

- **nothing is lost**: no component writes a field that is not its own or replaces an object blindly; deletes an object
  whose owner is still there; leaves a checkpoint with fewer samples or a VPA without a recommendation that it had;
- **nothing is done twice**: no pod is evicted twice, no count or size is written that is in force already, and no
  replica writes while the Lease of its component belongs to another one;
- **nothing is shrunk on doubt**: no count falls while the newest reading of one of its metrics failed, and no count,
  size, recommendation or pod goes in a time in which answers were empty, wrong or missing. Overcommitted resources are
  a loan, so that less of them on doubt is the careful direction.

*Result* gives the writes of kubetide that the checker read, Leases and events left out, the scales, evictions, resizes
and deletions among them, and the CPU time of the drill (of its own process). Where CI runs a shorter form than `make
drills`, it also says what was run last.
"""
