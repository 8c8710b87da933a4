"""Network QoS by tc: looks at the default route's device, runs the commands that are due, learns what became of them.

    observe (tc, ipset, iptables)  ->  traffic.steps  ->  run one after the other  ->  traffic.applied(outcomes)

The first command that fails ends a sync, because the later ones need the earlier ones; the next sync starts from what
is there then. What is in the way (a tool that is missing, a bandwidth that nobody knows, a root qdisc of somebody else)
is one line of the log, once until it changes, and in `explain`. When the NodeSLO chooses another policy, or no class
and no pod asks for anything, what was made is taken back.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from kubetide.log import get_logger
from kubetide.node.core import files
from kubetide.node.core.formats.numbers import is_index
from kubetide.node.core.hooks import network, traffic
from kubetide.node.core.hooks.traffic import CHAIN, SETS, Seen, Shaping, Step, StepOutcome, TrafficControl
from kubetide.node.core.outcomes import Applies
from kubetide.node.core.plan import Batch, Target, Write
from kubetide.node.core.snapshot import Snapshot
from kubetide.node.host.protocol import Commands, Host
from kubetide.node.host.worker import Worker

log = get_logger("node.network")

GATE = "TCNetworkQoS"
INTERVAL_SECONDS = 10.0
REASON = "TCNetworkQoS"
_TOOLS = (("tc", "-V"), ("ipset", "--version"), ("iptables", "--version"))
_MEGABIT = 1_000_000


class TrafficShaper:
    """Keeps the classes of one node."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        host: Host,
        commands: Commands,
        executor: Applies,
        kernel: Worker,
        disk: Worker,
        node_name: str,
    ) -> None:
        self.name = "tc-network-qos"
        self.problem = ""
        self.control = TrafficControl()
        self._snapshot = snapshot
        self._host = host
        self._commands = commands
        self._executor = executor
        self._kernel = kernel
        self._disk = disk
        self._node_name = node_name
        self._last: dict[str, Any] = {}

    def ready(self) -> bool:
        """Nothing waits for it."""
        return True

    def healthy(self) -> bool:
        """A failing sync is reported and tried again."""
        return True

    async def run(self) -> None:
        """Keep the classes until cancelled."""
        while True:
            await self.sync()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def sync(self) -> None:
        """Make what is there what should be."""
        snapshot = self._snapshot()
        if snapshot.slo is None:
            return
        try:
            self._report(await self._reconcile(snapshot))
        except OSError as error:
            self._report(str(error))

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return what is shaped on this node, and what is in the way."""
        if kind != "node" or key != self._node_name:
            return None
        return {"policy": network.TC, **self._last, **({"problem": self.problem} if self.problem else {})}

    def _report(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("traffic is not shaped as it should be", problem=problem)
        self.problem = problem

    async def _reconcile(self, snapshot: Snapshot) -> str:
        """Return what is in the way; empty when everything is as it should be."""
        assert snapshot.slo is not None
        wanted = network.policy_of(snapshot.slo) == network.TC and (
            network.is_wanted(snapshot.slo) or any(_has_limit(pod.pod.metadata.annotations) for pod in snapshot.pods)
        )
        missing = await self._disk.call(self._missing_tools, "looking for tc")
        if missing:
            return f"this host has no {', '.join(missing)}" if wanted else ""
        device, link_bits = await self._kernel.call(partial(self._device, snapshot), "looking for the default route")
        if not device:
            return "there is no default route" if wanted else ""
        seen = await self._disk.call(partial(self._observe, device), "looking at traffic classes")
        if not wanted:
            return await self._carry_out(traffic.clean_up(seen), None)
        if seen.foreign:
            return f"{device} has the root qdisc {seen.qdisc}, which is not this agent's"
        bandwidth = network.shaped_bandwidth(snapshot.slo, link_bits)
        if bandwidth.total <= 0:
            return "neither totalNetworkBandwidth nor the link says how much bandwidth there is"
        shaping = self.control.shaping(bandwidth, snapshot.pods)
        problem = await self._carry_out(self.control.steps(shaping, seen), shaping)
        if shaping.marks and snapshot.layout.version == 1:
            await self._mark(shaping)
        self._last = {
            "device": device,
            "totalBits": bandwidth.total,
            "classes": {traffic.class_text(one.minor): [one.rate, one.ceil] for one in shaping.classes},
        }
        return "; ".join((*((problem,) if problem else ()), *shaping.problems))

    async def _carry_out(self, steps: Sequence[Step], shaping: Shaping | None) -> str:
        outcomes = await self._disk.call(partial(self._run, steps), "shaping traffic") if steps else []
        self.control.applied(outcomes, shaping)
        if shaping is None and steps:
            self._last = {}
        return "; ".join(outcome.error for outcome in outcomes if outcome.error)

    async def _mark(self, shaping: Shaping) -> None:
        """Mark the pods in the host's network; a pod that ended meanwhile is passed over."""
        writes = (
            Write(file=files.NET_CLASS, value=str(value), directory=directory, target=Target.POD, reason=REASON)
            for directory, value in shaping.marks.items()
        )
        await self._kernel.call(
            partial(self._executor.apply_batch, Batch.flat(*writes)), "marking pods in the host's network"
        )

    # ---- on the workers

    def _missing_tools(self) -> list[str]:
        missing: list[str] = []
        for command in _TOOLS:
            try:
                self._commands.run(command)
            except OSError:
                missing.append(command[0])
        return missing

    def _device(self, snapshot: Snapshot) -> tuple[str, int]:
        """Return the device of the default route, and how fast its link is; 0 when it does not say."""
        layout = snapshot.layout
        device = ""
        for path in (layout.proc("1/net/route"), layout.proc("net/route")):
            try:
                device = default_device(self._host.read(path))
                break
            except OSError:
                continue
        try:
            speed = int(self._host.read(layout.sys("class/net", device, "speed"))) if device else 0
        except (OSError, ValueError):
            speed = 0
        return device, max(speed, 0) * _MEGABIT

    def _observe(self, device: str) -> Seen:
        run = self._commands.run
        qdisc = root_qdisc(run(("tc", "qdisc", "show", "dev", device)))
        seen = Seen(device=device, qdisc=qdisc)
        minors: frozenset[int] = frozenset()
        by_cgroup = False
        if seen.shaped:
            minors = class_minors(run(("tc", "class", "show", "dev", device)))
            by_cgroup = " cgroup " in run(("tc", "filter", "show", "dev", device, "parent", "1:"))
        rules, jumps = chain_rules(run(("iptables", "-w", "-t", "mangle", "-S")))
        members = set_members(run(("ipset", "save")))
        return Seen(
            device=device,
            qdisc=qdisc,
            minors=minors,
            members=members,
            rules=rules,
            jumps=jumps,
            by_cgroup=by_cgroup,
        )

    def _run(self, steps: Iterable[Step]) -> list[StepOutcome]:
        outcomes: list[StepOutcome] = []
        failed = False
        for step in steps:
            if failed:
                outcomes.append(StepOutcome(step, ran=False))
                continue
            try:
                self._commands.run(step.command)
                outcomes.append(StepOutcome(step, ran=True))
            except OSError as error:
                failed = step.needed
                outcomes.append(StepOutcome(step, ran=True, error=f"{' '.join(step.command)}: {error}"))
        return outcomes


def default_device(routes: str) -> str:
    """Return the device of the default route with the lowest metric in `/proc/net/route`; empty without one."""
    found: list[tuple[int, str]] = []
    for line in routes.splitlines()[1:]:
        words = line.split()
        if len(words) >= 8 and words[1] == "00000000" and words[7] == "00000000" and is_index(words[6]):
            found.append((int(words[6]), words[0]))
    return min(found)[1] if found else ""


def root_qdisc(text: str) -> str:
    """Return kind and handle of the root qdisc as `tc qdisc show` prints it; empty without one."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4 and words[0] == "qdisc" and words[3] == "root":
            return f"{words[1]} {words[2]}"
    return ""


def class_minors(text: str) -> frozenset[int]:
    """Return the minors of the classes that `tc class show` prints; those in no decimal digits are somebody else's."""
    lines = (line.split() for line in text.splitlines())
    names = (words[2] for words in lines if len(words) > 2 and words[:2] == ["class", "htb"])
    return frozenset(int(minor) for name in names if is_index(minor := name.removeprefix("1:")))


def chain_rules(text: str) -> tuple[tuple[str, ...] | None, bool]:
    """Return the rules of the agent's chain (None without it) and whether packets reach it, from `iptables -S`."""
    lines = text.splitlines()
    chain = f"-A {CHAIN} "
    rules = tuple(line.removeprefix(chain) for line in lines if line.startswith(chain))
    return rules if f"-N {CHAIN}" in lines else None, f"-A POSTROUTING -j {CHAIN}" in lines


def set_members(text: str) -> dict[str, frozenset[str]]:
    """Return the members of the agent's sets, from `ipset save`."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and words[1] in SETS:
            members = found.setdefault(words[1], set())
            if words[0] == "add":
                members.add(words[2])
    return {name: frozenset(members) for name, members in found.items()}


def _has_limit(annotations: dict[str, str] | None) -> bool:
    return network.ANNOTATION in (annotations or {})
