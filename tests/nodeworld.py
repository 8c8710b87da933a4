"""A node in memory for tests of strategies and hooks: files, samples, pods, and a snapshot over them."""

import errno
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from kubetide.api.objects.core import Node, Pod
from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.api.values.compat import Compat
from kubetide.node.core.compat import NEWEST
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.formats.storage import StorageFacts
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.kernel_values import NOTHING, Needs
from kubetide.node.core.layout import Layout
from kubetide.node.core.outcomes import Outcomes
from kubetide.node.core.plan import Plan
from kubetide.node.core.qos.strategy import Observing, Releasing, Remembering, Strategy
from kubetide.node.core.series.query import EMPTY, Points
from kubetide.node.core.snapshot import PodState, Snapshot, pod_state
from kubetide.node.executor.kernel_writer import Executor
from kubetide.node.kernel_reader import KernelReader
from kubetide.node.runtime.core_sched import CookieError, apply_cookies, read_cookies

START = datetime(2026, 1, 1, tzinfo=UTC)


class TestClock:
    """A clock that tests move by hand."""

    __test__ = False

    def __init__(self, now: datetime = START) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - START).total_seconds()

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class MemoryHost:
    """Text files in a dict. A write replaces the text; in files named in `appending` it is added."""

    def __init__(self, files: Mapping[str, str] | None = None) -> None:
        self.files: dict[str, str] = dict(files or {})
        self.writes: list[tuple[str, str]] = []
        self.appending: set[str] = set()
        self.refused: dict[str, int] = {}

    def read(self, path: str) -> str:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self.files[path]

    def write(self, path: str, value: str) -> None:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if path in self.refused:
            raise OSError(self.refused[path], "refused", path)
        self.writes.append((path, value))
        if path.endswith("/cpu.max") and len(value.split()) == 1:
            value = f"{value} {self.files[path].split()[-1]}"  # the kernel keeps the period
        if path.endswith("/cpuset.cpus"):
            self.files.update({name: value for name in (f"{path}.effective",) if name in self.files})
        self.files[path] = self.files[path] + value if path in self.appending else value

    def list_dirs(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = [name[len(prefix) :] for name in self.files if name.startswith(prefix)]
        if not below:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return sorted({name.split("/")[0] for name in below if "/" in name})

    def exists(self, path: str) -> bool:
        return path in self.files or any(name.startswith(path.rstrip("/") + "/") for name in self.files)

    def put(self, directory: str, files: Mapping[str, str]) -> None:
        """Put several files into one directory."""
        for name, text in files.items():
            self.files[posixpath.join(directory, name)] = text


class MemoryCookies:
    """Core scheduling cookies by process. Processes named in `refused` keep what they have."""

    def __init__(self, cookies: Mapping[int, int] | None = None) -> None:
        self.cookies: dict[int, int] = dict(cookies or {})
        self.refused: set[int] = set()
        self.changes: list[int] = []
        self.next = 100

    def get(self, pid: int) -> int:
        if pid not in self.cookies:
            raise CookieError("no such process")
        return self.cookies[pid]

    def create(self, pid: int) -> None:
        self._set(pid, self.next)
        self.next += 1

    def share(self, source: int, pids: Sequence[int]) -> str:
        problems = []
        for pid in pids:
            try:
                self._set(pid, self.cookies[source] if source else 0)
            except CookieError as error:
                problems.append(str(error))
        return "; ".join(problems)

    def _set(self, pid: int, cookie: int) -> None:
        if pid in self.refused or pid not in self.cookies:
            raise CookieError(f"process {pid}: refused")
        self.changes.append(pid)
        self.cookies[pid] = cookie


class Samples:
    """Samples by kind and properties: a single value, or several with the last one newest."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], list[float]] = {}

    def set(
        self, kind: str, value: float | Sequence[float] | None, properties: Mapping[str, str] | None = None
    ) -> None:
        key = (kind, frozenset((properties or {}).items()))
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = list(value) if isinstance(value, Sequence) else [value]

    def query(self, kind: str, properties: Mapping[str, str] | None = None, *, seconds: float) -> Points:
        values = self._values.get((kind, frozenset((properties or {}).items())))
        if not values:
            return EMPTY
        return Points(np.arange(len(values), dtype=np.int64) * 1000, np.array(values, dtype=np.float64))

    def last(self, kind: str, properties: Mapping[str, str] | None = None) -> float | None:
        return self.query(kind, properties, seconds=2).aggregate("last")

    def averages(self, kind: str, by: str, *, seconds: float) -> dict[str, float]:
        return {
            dict(properties)[by]: sum(values) / len(values)
            for (name, properties), values in self._values.items()
            if name == kind
        }

    def latest(self, kind: str, by: str) -> dict[str, float]:
        return {dict(properties)[by]: values[-1] for (name, properties), values in self._values.items() if name == kind}


@dataclass
class World:
    """A node whose parts tests set one by one."""

    version: int = 1
    driver: CgroupDriver = CgroupDriver.SYSTEMD
    host: MemoryHost = field(default_factory=MemoryHost)
    cookies: MemoryCookies = field(default_factory=MemoryCookies)
    metrics: Samples = field(default_factory=Samples)
    clock: TestClock = field(default_factory=TestClock)
    node: Node | None = None
    pods: list[PodState] = field(default_factory=list)
    slo: NodeSLOSpec | None = None
    topology: dict[str, str] = field(default_factory=dict)
    processors: tuple[Processor, ...] = ()
    storage: StorageFacts | None = None
    claims: dict[str, str] = field(default_factory=dict)
    gates: dict[str, bool] = field(default_factory=dict)
    evicted: dict[str, datetime] = field(default_factory=dict)
    collect_interval: float = 1.0
    compat: Compat = NEWEST

    def __post_init__(self) -> None:
        self.layout = Layout(version=self.version, paths=CgroupPaths(self.driver))
        self.reader = KernelReader(self.host, self.layout)
        self.executor = Executor(self.host, self.layout, self.clock)
        self.executor.start()

    @property
    def paths(self) -> CgroupPaths:
        return self.layout.paths

    def add_pod(self, raw: Mapping[str, Any], *, directory: str | None = None) -> PodState:
        """Add a pod in API form."""
        pod = pod_state(convert(raw, Pod), self.paths)
        if directory is not None:
            # A container whose id cannot be read has no directory here either.
            containers = tuple(
                replace(one, directory=self.paths.container(directory, one.id) if one.directory else "")
                for one in pod.containers
            )
            pod = replace(pod, directory=directory, containers=containers)
        self.pods.append(pod)
        return pod

    def add_pods(self, raws: Iterable[Mapping[str, Any]]) -> None:
        for raw in raws:
            self.add_pod(raw)

    def cgroup(self, controller: str, directory: str, files: Mapping[str, str]) -> None:
        """Make a cgroup directory of one controller with files."""
        self.host.put(self.layout.cgroup_dir(controller, directory), files)

    def text(self, controller: str, directory: str, name: str) -> str:
        return self.host.files[f"{self.layout.cgroup_dir(controller, directory)}/{name}"]

    def snapshot(self, needs: Needs = NOTHING) -> Snapshot:
        """Return the node as it is, with these kernel values."""
        return Snapshot(
            now=self.clock.now(),
            node=self.node,
            pods=tuple(self.pods),
            slo=self.slo,
            metrics=self.metrics,
            layout=self.layout,
            kernel=self.reader.read(needs),
            collect_interval=self.collect_interval,
            topology_annotations=self.topology,
            processors=self.processors,
            storage=self.storage,
            claims=self.claims,
            gates=self.gates,
            compat=self.compat,
            evicted=self.evicted,
        )

    def look(self, strategy: object) -> Snapshot:
        """Return the node as it is, with the kernel values that a strategy needs."""
        snapshot = self.snapshot()
        if not isinstance(strategy, Observing):
            return snapshot
        return replace(snapshot, kernel=self.reader.read(strategy.needs(snapshot)))

    def decide(self, strategy: Strategy) -> Plan:
        """Return what a strategy wants, given what it needs."""
        return strategy.decide(self.look(strategy))

    def apply(self, plan: Plan, strategy: object = None) -> Outcomes:
        """Write what a plan wants, and tell the strategy that made it what became of it."""
        outcomes = self.executor.apply(plan)
        if isinstance(strategy, Remembering):
            strategy.applied(plan, outcomes)
        return outcomes

    def sync(self, strategy: Strategy) -> Plan:
        """Look, decide, write and tell, as the agent does."""
        plan = self.decide(strategy)
        self.apply(plan, strategy)
        return plan

    def pass_of(self, hooks: HookDecider) -> Plan:
        """Look, let the hooks decide, write and tell them, as the reconciler does."""
        snapshot = self.snapshot(hooks.needs(self.snapshot()))
        found = read_cookies(self.cookies, hooks.processes(snapshot))
        plan = hooks.decide(replace(snapshot, kernel=replace(snapshot.kernel, cookies=found)))
        outcomes = self.executor.apply(plan)
        operations = plan.cookies.operations if plan.cookies is not None else ()
        hooks.applied(plan, outcomes, apply_cookies(self.cookies, operations))
        return plan

    def release(self, strategy: Releasing) -> Plan:
        """Take back what would hurt without the agent, as it does when it stops."""
        plan = strategy.release(self.look(strategy))
        self.apply(plan, strategy)
        return plan


def processors_of(raw: Iterable[Mapping[str, int]]) -> tuple[Processor, ...]:
    """Read processors given as {cpu, core, socket, node}."""
    return tuple(
        Processor(cpu=one["cpu"], core=one.get("core", 0), socket=one.get("socket", 0), node=one.get("node", 0))
        for one in raw
    )
