"""Shaping what leaves the node with tc: which classes there should be, and the commands that make it so.

    1:1 root     rate = ceil = total
    1:2 system   first   rate = total - what LS and BE are guaranteed, ceil = total; also whatever is in no class
    1:3 LS       second  rate = egress request, ceil = egress limit
    1:4 BE       third   likewise
    1:5 and up           one for each pod whose annotation limits it, below the class of the pod

Pods are in an ip set by their QoS label, and rules of the chain `KUBETIDE-QOS` give packets the class of their set;
pods in the host's network are marked by `net_cls.classid` instead (cgroup v1). The kernel takes no rate of 0: what is
not guaranteed anything gets the least rate, what is not limited the whole bandwidth. Without a bandwidth nothing is
shaped.

tc prints rates rounded, so that what is in force is seen only in part: which qdisc, classes, sets and rules there are.
Their rates are remembered from commands that succeeded, never from those that were planned.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address

from kubetide.api.qos import qos
from kubetide.errors import InvalidInput
from kubetide.node.core.hooks.network import NodeBandwidth, pod_rates
from kubetide.node.core.snapshot import PodState

CHAIN = "KUBETIDE-QOS"
ROOT, SYSTEM, LATENCY_SENSITIVE, BEST_EFFORT, FIRST_OWN = 1, 2, 3, 4, 5
SETS = {"system_class": SYSTEM, "ls_class": LATENCY_SENSITIVE, "be_class": BEST_EFFORT}
_SET_OF = {
    qos.SYSTEM: "system_class",
    qos.LSE: "ls_class",
    qos.LSR: "ls_class",
    qos.LS: "ls_class",
    qos.BE: "be_class",
}
LEAST_RATE = 8000
"""Bits per second: one byte a millisecond."""
MOST_MINORS = 9999
Command = tuple[str, ...]


def class_text(minor: int, major: int = 1) -> str:
    """Return a class as tc spells it; tc reads the decimal digits as hexadecimal ones."""
    return f"{major}:{minor}"


def class_id(minor: int, major: int = 1) -> int:
    """Return the value of `net_cls.classid` for a class."""
    return int(str(major), 16) << 16 | int(str(minor), 16)


def set_of(label: str) -> str:
    """Return the ip set of a QoS class; empty for pods without one."""
    return _SET_OF.get(label, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficClass:
    """A class of the shaped device, rates in bits per second."""

    minor: int
    parent: int
    prio: int
    rate: int
    ceil: int

    def command(self, device: str) -> Command:
        """Return what makes the class, or changes it."""
        parent = class_text(self.parent) if self.parent else "1:"
        rates = ("rate", f"{self.rate}bit", "ceil", f"{self.ceil}bit")
        prio = ("prio", str(self.prio)) if self.parent else ()
        return _tc(
            "class", "replace", device, "parent", parent, "classid", class_text(self.minor), "htb", *prio, *rates
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """What should be: classes, who is in which set, and the classes of single pods by their address."""

    classes: tuple[TrafficClass, ...] = ()
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    own: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)
    """`net_cls.classid` by cgroup, for pods in the host's network."""
    pods: Mapping[str, int] = field(default_factory=dict)
    """Classes of single pods by uid."""
    problems: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of the chain as iptables prints them; the class of a pod comes after that of its set and wins."""
        sets = [f"-m set --match-set {name} src {_classify(minor)}" for name, minor in SETS.items()]
        own = [f"-s {address}/32 {_classify(minor)}" for address, minor in sorted(self.own.items())]
        return (*sets, *own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What there is on the device of the default route."""

    device: str
    qdisc: str = ""
    """Kind and handle of the root qdisc, as `htb 1:`."""
    minors: frozenset[int] = frozenset()
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rules: tuple[str, ...] | None = None
    """Rules of the chain; None where there is no such chain."""
    jumps: bool = False
    """Whether packets reach the chain."""
    by_cgroup: bool = False
    """Whether the device asks cgroups for the class of a packet."""

    @property
    def shaped(self) -> bool:
        """Whether the root qdisc is one that this agent, or upstream's, made."""
        return self.qdisc == "htb 1:"

    @property
    def foreign(self) -> bool:
        """Whether somebody else configured the root qdisc; those that the kernel picks have the handle 0."""
        return bool(self.qdisc) and not self.shaped and not self.qdisc.endswith(" 0:")


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and what is in force once it succeeded."""

    command: Command
    effect: TrafficClass | int | tuple[str, ...] | None = None
    """A class that is so now, the minor of one that is gone, or the rules of the chain."""
    needed: bool = True
    """Whether what follows is pointless without it."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What became of a step; one after a failed one is not run."""

    step: Step
    ran: bool
    error: str = ""

    @property
    def succeeded(self) -> bool:
        return self.ran and not self.error


@dataclass(slots=True)
class TrafficControl:
    """Turns what should be and what is seen into commands, and remembers what was made."""

    _classes: dict[int, TrafficClass] = field(default_factory=dict)
    _pods: dict[str, int] = field(default_factory=dict)
    """Classes of single pods by uid; a pod keeps its class while it is there."""
    _rules: tuple[tuple[str, ...], tuple[str, ...] | None] | None = None
    """The rules that were made, and how iptables prints them, once that was seen."""

    def shaping(self, bandwidth: NodeBandwidth, pods: Iterable[PodState]) -> Shaping:
        """Return what should be for these rates and pods."""
        active = [pod for pod in pods if pod.is_active]
        problems: list[str] = []
        limits: dict[str, int] = {}
        for pod in active:
            try:
                if egress := pod_rates(pod.pod.metadata.annotations).egress:
                    limits[pod.uid] = egress
            except InvalidInput as error:
                problems.append(f"{pod.key}: {error}")
        minors = self._assigned(limits)
        classes = list(_node_classes(bandwidth))
        members: dict[str, set[str]] = {name: set() for name in SETS}
        own: dict[str, int] = {}
        marks: dict[str, int] = {}
        for pod in active:
            name, minor = set_of(pod.raw_qos), minors.get(pod.uid)
            if minor is not None:
                parent = SETS.get(name, ROOT)
                limit = min(limits[pod.uid], bandwidth.total)
                classes.append(
                    TrafficClass(minor=minor, parent=parent, prio=3, rate=min(LEAST_RATE, limit), ceil=limit)
                )
            if pod.pod.spec.host_network:
                if target := minor or SETS.get(name):
                    marks[pod.directory] = class_id(target)
            elif address := _address(pod.pod.status.pod_ip):
                if name:
                    members[name].add(address)
                if minor is not None:
                    own[address] = minor
        return Shaping(
            classes=tuple(classes),
            members={name: frozenset(found) for name, found in members.items()},
            own=own,
            marks=marks,
            pods=minors,
            problems=tuple(problems),
        )

    def steps(self, wanted: Shaping, seen: Seen) -> list[Step]:
        """Return the commands that lead from what is seen to what should be, in an order that is legal throughout."""
        device = seen.device
        if not seen.shaped:
            self._classes.clear()
        present = seen.minors if seen.shaped else frozenset()
        steps: list[Step] = []
        if not seen.shaped:
            steps.append(Step(_tc("qdisc", "replace", device, "root", "handle", "1:", "htb", "default", str(SYSTEM))))
        steps += [
            Step(one.command(device), one)
            for one in wanted.classes
            if one.minor not in present or self._classes.get(one.minor) != one
        ]
        steps += _set_steps(wanted.members, seen.members)
        steps += self._rule_steps(wanted.rules, seen)
        needed = {one.minor for one in wanted.classes}
        steps += [
            Step(_tc("class", "del", device, "classid", class_text(minor)), minor, needed=False)
            for minor in sorted(present - needed, reverse=True)
        ]
        if wanted.marks and not seen.by_cgroup:
            by_cgroup = ("parent", "1:", "protocol", "all", "prio", "10", "handle", "1:", "cgroup")
            steps.append(Step(_tc("filter", "replace", device, *by_cgroup), needed=False))
        return steps

    def applied(self, outcomes: Iterable[StepOutcome], wanted: Shaping | None = None) -> None:
        """Learn what is in force now."""
        for outcome in outcomes:
            effect = outcome.step.effect
            if not outcome.succeeded:
                continue
            if isinstance(effect, TrafficClass):
                self._classes[effect.minor] = effect
            elif isinstance(effect, tuple):
                self._rules = (effect, None)
            elif effect is not None:
                self._classes.pop(effect, None)
        assigned = wanted.pods if wanted is not None else {}
        self._pods = {uid: minor for uid, minor in assigned.items() if minor in self._classes}

    def _assigned(self, limits: Iterable[str]) -> dict[str, int]:
        """Give every pod with a limit a class of its own; those that have one keep it."""
        wanted = sorted(limits)
        minors = {uid: self._pods[uid] for uid in wanted if uid in self._pods}
        taken = set(minors.values())
        free = (minor for minor in range(FIRST_OWN, MOST_MINORS + 1) if minor not in taken)
        return minors | dict(zip((uid for uid in wanted if uid not in minors), free, strict=False))

    def _rule_steps(self, rules: tuple[str, ...], seen: Seen) -> Iterator[Step]:
        made = self._rules
        if seen.rules is not None and made == (rules, None) and len(seen.rules) == len(rules):
            self._rules = made = (rules, seen.rules)  # how this iptables prints what was just made
        if seen.rules is None:
            yield Step(_iptables("-N", CHAIN))
        if seen.rules != rules and made != (rules, seen.rules):
            yield Step(_iptables("-F", CHAIN))
            for position, rule in enumerate(rules):
                yield Step(_iptables("-A", CHAIN, *rule.split()), rules if position == len(rules) - 1 else None)
        if not seen.jumps:
            yield Step(_iptables("-A", "POSTROUTING", "-j", CHAIN))


def clean_up(seen: Seen) -> list[Step]:
    """Return the commands that take everything back; nothing where none of it is there."""
    steps: list[Step] = []
    if seen.jumps:
        steps.append(Step(_iptables("-D", "POSTROUTING", "-j", CHAIN)))
    if seen.rules is not None:
        steps += [Step(_iptables("-F", CHAIN)), Step(_iptables("-X", CHAIN))]
    if seen.shaped and (seen.members or seen.rules is not None):
        steps.append(Step(_tc("qdisc", "del", seen.device, "root")))
    steps += [Step(("ipset", "destroy", name), needed=False) for name in sorted(seen.members)]
    return steps


def _node_classes(bandwidth: NodeBandwidth) -> Iterator[TrafficClass]:
    total, ls, be = bandwidth.total, bandwidth.latency_sensitive, bandwidth.best_effort
    yield TrafficClass(minor=ROOT, parent=0, prio=0, rate=total, ceil=total)
    rest = max(total - ls.tx_min - be.tx_min, LEAST_RATE)
    for minor, prio, rate, ceil in (
        (SYSTEM, 1, rest, total),
        (LATENCY_SENSITIVE, 2, ls.tx_min, ls.tx_max or total),
        (BEST_EFFORT, 3, be.tx_min, be.tx_max or total),
    ):
        least = min(max(rate, LEAST_RATE), total)
        yield TrafficClass(minor=minor, parent=ROOT, prio=prio, rate=least, ceil=min(max(ceil, least), total))


def _set_steps(wanted: Mapping[str, frozenset[str]], seen: Mapping[str, frozenset[str]]) -> Iterator[Step]:
    for name, addresses in sorted(wanted.items()):
        present = seen.get(name)
        if present is None:
            yield Step(("ipset", "create", name, "hash:ip", "-exist"))
        for address in sorted(addresses - (present or frozenset())):
            yield Step(("ipset", "add", name, address, "-exist"))
        for address in sorted((present or frozenset()) - addresses):
            yield Step(("ipset", "del", name, address, "-exist"), needed=False)


def _tc(what: str, verb: str, device: str, *more: str) -> Command:
    return ("tc", what, verb, "dev", device, *more)


def _iptables(*arguments: str) -> Command:
    return ("iptables", "-w", "-t", "mangle", *arguments)


def _classify(minor: int) -> str:
    return f"-j CLASSIFY --set-class 0001:{minor:04d}"


def _address(text: str) -> str:
    """Return an IPv4 address; empty for any other text, because the sets hold no other."""
    try:
        return str(IPv4Address(text))
    except AddressValueError:
        return ""
