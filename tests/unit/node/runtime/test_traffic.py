"""Shaping with tc: plans from NodeSLO and pods, commands on a host that keeps what they make, what failures leave."""

import errno
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.node.core.hooks import network
from kubetide.node.core.hooks.traffic import CHAIN, LEAST_RATE, Seen, StepOutcome, TrafficControl
from kubetide.node.host.worker import Inline
from kubetide.node.runtime.traffic import TrafficShaper, chain_rules, class_minors, default_device, root_qdisc
from nodeworld import World

ROUTES = """Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth1\t00000000\t0101A8C0\t0003\t0\t0\t200\t00000000\t0\t0\t0
eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0
"""


def spec(total: str = "1G", policy: str = "tc", *, enable: bool = True, **be: Any) -> NodeSLOSpec:
    ls = {"enable": enable, "egressRequest": 40, "egressLimit": 90}
    rates = {"enable": enable, "egressRequest": "100M", "egressLimit": "200M", **be}
    raw = {
        "systemStrategy": {"totalNetworkBandwidth": total},
        "resourceQOSStrategy": {
            "policies": {"netQOSPolicy": policy},
            "lsClass": {"networkQOS": ls},
            "beClass": {"networkQOS": rates},
        },
    }
    return convert(raw, NodeSLOSpec)


def pod(name: str, label: str, address: str, *, limit: str = "", host: bool = False) -> dict[str, Any]:
    notes = {qos.ANNOTATION_NETWORK_QOS: f'{{"egressLimit":"{limit}"}}'} if limit else {}
    labels = {qos.LABEL_QOS: label} if label else {}
    return {
        "metadata": {"name": name, "namespace": "d", "uid": name, "labels": labels, "annotations": notes},
        "spec": {"hostNetwork": host},
        "status": {"phase": "Running", "qosClass": "Burstable", "podIP": address},
    }


@dataclass
class Tools:
    """tc, ipset and iptables in memory; `broken` commands fail, `missing` tools are not installed."""

    qdisc: str = "fq_codel 0:"
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sets: dict[str, set[str]] = field(default_factory=dict)
    chains: dict[str, list[str]] = field(default_factory=lambda: {"POSTROUTING": []})
    filters: list[str] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    broken: str = ""
    ran: list[str] = field(default_factory=list)

    def run(self, command: Sequence[str], *, timeout: float = 5.0) -> str:
        text = " ".join(command)
        if command[0] in self.missing:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", command[0])
        if self.broken and self.broken in text:
            raise OSError(errno.EIO, f"{command[0]} failed with status 2: RTNETLINK answers: refused")
        if command[1] in ("-V", "--version"):
            return ""
        words = [word for word in command[1:] if word not in ("-w", "-t", "mangle")]
        answer: str | None = getattr(self, command[0])(words)
        if answer is None:
            self.ran.append(text)
        return answer or ""

    def tc(self, words: list[str]) -> str | None:
        what, verb, rest = words[0], words[1], words[4:]
        if verb == "show":
            if what == "qdisc":
                return f"qdisc {self.qdisc} root refcnt 2\nqdisc fq_codel 0: parent 1:3\n"
            if what == "filter":
                return "\n".join(self.filters) or "\n"
            return "\n".join(f"class htb {name} parent 1:1 prio 2 rate 8Kbit" for name in self.classes) or "\n"
        if what == "qdisc":
            self.qdisc = "htb 1:" if verb == "replace" else "fq_codel 0:"
            self.classes.clear()
        elif what == "filter":
            self.filters.append("filter protocol all pref 10 cgroup chain 0")
        elif verb == "del":
            del self.classes[rest[1]]
        else:
            assert self.qdisc == "htb 1:"
            parent, name = rest[1], rest[3]
            assert parent == "1:" or parent in self.classes
            assert "rate 0bit" not in " ".join(rest)
            self.classes[name] = tuple(rest[rest.index("htb") + 1 :])
        return None

    def ipset(self, words: list[str]) -> str | None:
        if words[0] == "save":
            made = [f"create {name} hash:ip family inet" for name in self.sets]
            return (
                "\n".join([*made, *(f"add {name} {one}" for name, found in self.sets.items() for one in found)]) + "\n"
            )
        verb, name = words[:2]
        if verb == "create":
            self.sets.setdefault(name, set())
        elif verb == "destroy":
            assert not any(name in rule for rules in self.chains.values() for rule in rules)
            del self.sets[name]
        else:
            (self.sets[name].add if verb == "add" else self.sets[name].discard)(words[2])
        return None

    def iptables(self, words: list[str]) -> str | None:
        verb, chain, rule = words[0], words[1] if len(words) > 1 else "", " ".join(words[2:])
        if verb == "-S":
            made = [f"-N {name}" for name in self.chains if name != "POSTROUTING"]
            return "\n".join(
                ["-P POSTROUTING ACCEPT", *made, *(f"-A {c} {r}" for c, rs in self.chains.items() for r in rs)]
            )
        if verb == "-N":
            self.chains[chain] = []
        elif verb == "-F":
            self.chains[chain].clear()
        elif verb == "-X":
            del self.chains[chain]
        elif verb == "-A":
            assert all(name in self.sets for name in rule.split() if name.endswith("_class"))
            self.chains[chain].append(rule)
        else:
            self.chains[chain].remove(rule)
        return None


@dataclass
class Shaped:
    """A world, its tools, and the shaper on them."""

    world: World
    tools: Tools

    def __post_init__(self) -> None:
        self.world.host.files["/proc/1/net/route"] = ROUTES
        self.shaper = TrafficShaper(
            self.world.snapshot,
            host=self.world.host,
            commands=self.tools,
            executor=self.world.executor,
            kernel=Inline(),
            disk=Inline(),
            node_name="n",
        )

    async def sync(self) -> list[str]:
        """Sync once; return the commands that changed something."""
        self.tools.ran.clear()
        await self.shaper.sync()
        return list(self.tools.ran)


@pytest.fixture
def shaped() -> Shaped:
    world = World()
    world.slo = spec()
    world.add_pods([pod("web", "LS", "10.0.0.1"), pod("job", "BE", "10.0.0.2"), pod("plain", "", "10.0.0.3")])
    return Shaped(world, Tools())


async def test_classes_sets_and_rules_are_made_and_a_second_sync_runs_nothing(shaped: Shaped) -> None:
    assert (await shaped.sync())[0] == "tc qdisc replace dev eth0 root handle 1: htb default 2"
    assert shaped.tools.classes == {
        "1:1": ("rate", "1000000000bit", "ceil", "1000000000bit"),
        "1:2": ("prio", "1", "rate", "500000000bit", "ceil", "1000000000bit"),
        "1:3": ("prio", "2", "rate", "400000000bit", "ceil", "900000000bit"),
        "1:4": ("prio", "3", "rate", "100000000bit", "ceil", "200000000bit"),
    }
    assert shaped.tools.sets == {"system_class": set(), "ls_class": {"10.0.0.1"}, "be_class": {"10.0.0.2"}}
    assert shaped.tools.chains[CHAIN][1] == "-m set --match-set ls_class src -j CLASSIFY --set-class 0001:0003"
    assert shaped.tools.chains["POSTROUTING"] == [f"-j {CHAIN}"]
    assert await shaped.sync() == []
    assert shaped.shaper.problem == ""
    assert (shaped.shaper.explain("node", "n") or {})["classes"]["1:4"] == [100_000_000, 200_000_000]
    assert shaped.shaper.explain("node", "another") is None


async def test_a_changed_rate_changes_one_class(shaped: Shaped) -> None:
    await shaped.sync()
    shaped.world.slo = spec(egressLimit="300M")
    changed = "tc class replace dev eth0 parent 1:1 classid 1:4 htb prio 3 rate 100000000bit ceil 300000000bit"
    assert await shaped.sync() == [changed]


async def test_a_pod_with_a_limit_has_a_class_of_its_own_until_it_goes(shaped: Shaped) -> None:
    shaped.world.add_pod(pod("slow", "BE", "10.0.0.9", limit="8M"))
    await shaped.sync()
    assert shaped.tools.classes["1:5"] == ("prio", "3", "rate", f"{LEAST_RATE}bit", "ceil", "8000000bit")
    assert shaped.tools.chains[CHAIN][-1] == "-s 10.0.0.9/32 -j CLASSIFY --set-class 0001:0005"
    shaped.world.add_pod(pod("a-first-by-name", "LS", "10.0.0.8", limit="9M"))
    await shaped.sync()
    assert shaped.tools.classes["1:5"][-1] == "8000000bit"  # keeps its class
    assert shaped.tools.classes["1:6"][-1] == "9000000bit"
    del shaped.world.pods[-2]
    await shaped.sync()
    assert "1:5" not in shaped.tools.classes
    assert "10.0.0.9" not in shaped.tools.sets["be_class"]
    assert not any("10.0.0.9" in rule for rule in shaped.tools.chains[CHAIN])
    assert await shaped.sync() == []


async def test_a_failed_command_is_reported_remembered_by_nobody_and_tried_again(shaped: Shaped) -> None:
    shaped.tools.broken = "classid 1:3"
    ran = await shaped.sync()
    assert "1:4" not in shaped.tools.classes  # nothing after the failure was tried
    assert not any(command.startswith(("ipset", "iptables")) for command in ran)
    assert "tc class replace dev eth0 parent 1:1 classid 1:3" in shaped.shaper.problem
    shaped.tools.broken = ""
    ran = await shaped.sync()
    assert not any("qdisc" in command or "classid 1:2" in command for command in ran)  # those were made
    assert set(shaped.tools.classes) == {"1:1", "1:2", "1:3", "1:4"}
    assert shaped.shaper.problem == ""


async def test_what_somebody_removed_comes_back(shaped: Shaped) -> None:
    await shaped.sync()
    shaped.tools.qdisc, before = "fq_codel 0:", dict(shaped.tools.classes)
    shaped.tools.classes.clear()
    shaped.tools.chains["POSTROUTING"].clear()
    shaped.tools.sets["ls_class"].clear()
    await shaped.sync()
    assert shaped.tools.classes == before
    assert shaped.tools.sets["ls_class"] == {"10.0.0.1"}
    assert shaped.tools.chains["POSTROUTING"] == [f"-j {CHAIN}"]


@pytest.mark.parametrize("change", ["another-policy", "no-class"])
async def test_everything_is_taken_back_when_nobody_asks_for_it(shaped: Shaped, change: str) -> None:
    await shaped.sync()
    shaped.world.slo = spec(policy="terway-qos") if change == "another-policy" else spec(enable=False)
    await shaped.sync()
    assert (shaped.tools.qdisc, shaped.tools.classes, shaped.tools.sets) == ("fq_codel 0:", {}, {})
    assert shaped.tools.chains == {"POSTROUTING": []}
    assert await shaped.sync() == []
    assert shaped.shaper.problem == ""
    shaped.world.slo = spec()
    await shaped.sync()
    assert len(shaped.tools.classes) == 4


async def test_a_host_without_tools_is_one_line(shaped: Shaped, caplog: pytest.LogCaptureFixture) -> None:
    shaped.tools.missing = {"tc", "ipset"}
    for _ in range(3):
        assert await shaped.sync() == []
    assert shaped.shaper.problem == "this host has no tc, ipset"
    assert sum("traffic is not shaped" in record.getMessage() for record in caplog.records) == 1
    shaped.world.slo = spec(enable=False)
    await shaped.sync()
    assert shaped.shaper.problem == ""  # nobody asks for it


@pytest.mark.parametrize(("qdisc", "touched"), [("cake 8001:", False), ("htb 1:", True), ("mq 0:", True)])
async def test_the_qdisc_of_somebody_else_is_left_alone(shaped: Shaped, qdisc: str, touched: bool) -> None:
    shaped.tools.qdisc = qdisc
    assert bool(await shaped.sync()) is touched
    assert ("not this agent's" in shaped.shaper.problem) is not touched


async def test_a_node_that_does_not_know_its_bandwidth_takes_that_of_its_link(shaped: Shaped) -> None:
    shaped.world.slo = spec("0", egressRequest=10, egressLimit=20)
    assert await shaped.sync() == []
    assert "how much bandwidth" in shaped.shaper.problem
    shaped.world.host.files["/sys/class/net/eth0/speed"] = "-1\n"
    assert await shaped.sync() == []
    shaped.world.host.files["/sys/class/net/eth0/speed"] = "1000\n"
    await shaped.sync()
    assert shaped.tools.classes["1:4"][3] == "100000000bit"


async def test_pods_in_the_hosts_network_are_marked_by_cgroup(shaped: Shaped) -> None:
    system = shaped.world.add_pod(pod("proxy", "SYSTEM", "10.0.0.250", host=True))
    shaped.world.cgroup("net_cls", system.directory, {"net_cls.classid": "0"})
    await shaped.sync()
    assert shaped.world.text("net_cls", system.directory, "net_cls.classid") == str(0x00010002)
    assert "10.0.0.250" not in shaped.tools.sets["system_class"]
    assert shaped.tools.filters
    shaped.tools.filters.clear()
    shaped.tools.broken = "filter replace"  # a kernel without that classifier
    await shaped.sync()
    assert "cgroup" in shaped.shaper.problem


async def test_without_a_nodeslo_or_a_route_nothing_is_touched(shaped: Shaped) -> None:
    shaped.world.host.files["/proc/1/net/route"] = ROUTES.splitlines()[0]
    assert await shaped.sync() == []
    assert shaped.shaper.problem == "there is no default route"
    shaped.world.slo = None
    assert await shaped.sync() == []


async def test_an_annotation_that_cannot_be_read_is_reported_and_the_others_are_shaped(shaped: Shaped) -> None:
    shaped.world.add_pod(pod("odd", "LS", "10.0.0.7", limit='"'))
    await shaped.sync()
    assert "d/odd" in shaped.shaper.problem
    assert "10.0.0.7" in shaped.tools.sets["ls_class"]


def test_more_guaranteed_than_there_is_leaves_the_system_the_least_rate() -> None:
    wanted = TrafficControl().shaping(network.shaped_bandwidth(spec("100M", egressRequest="2G")), ())
    rates = {one.minor: (one.rate, one.ceil) for one in wanted.classes}
    assert rates[2] == (LEAST_RATE, 100_000_000)
    assert rates[4] == (100_000_000, 100_000_000)
    assert all(0 < rate <= ceil for rate, ceil in rates.values())


def test_rules_are_made_once_however_iptables_prints_them() -> None:
    control = TrafficControl()
    wanted = control.shaping(network.shaped_bandwidth(spec()), ())
    printed = tuple(f"{rule} --comment x" for rule in wanted.rules)
    seen = Seen(
        device="e", qdisc="htb 1:", minors=frozenset({1, 2, 3, 4}), members=wanted.members, rules=(), jumps=True
    )
    steps = control.steps(wanted, seen)
    control.applied([StepOutcome(step, ran=True) for step in steps], wanted)
    again = Seen(
        device="e", qdisc="htb 1:", minors=frozenset({1, 2, 3, 4}), members=wanted.members, rules=printed, jumps=True
    )
    assert control.steps(wanted, again) == []
    assert control.steps(wanted, again) == []


def test_what_the_tools_print_is_read() -> None:
    assert default_device(ROUTES) == "eth0"
    assert default_device("") == ""
    assert root_qdisc("qdisc noqueue 0: dev lo root refcnt 2\n") == ""
    assert root_qdisc("qdisc htb 1: root refcnt 3 r2q 10\n") == "htb 1:"
    assert class_minors("class htb 1:10 parent 1:1 prio 3\nclass htb 1:1 root\nclass htb 1:a parent 1:1\n") == {10, 1}
    assert chain_rules(f"-N {CHAIN}\n-A {CHAIN} -j X\n-A POSTROUTING -j {CHAIN}") == (("-j X",), True)
    assert chain_rules("-P POSTROUTING ACCEPT") == (None, False)


# ---- the real tc, in a network namespace of the test's own


class Namespaced(Tools):
    """The tc of this machine inside a namespace; ipset and iptables stay in memory."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid = pid

    def real(self, *command: str) -> str:
        entered = ("nsenter", f"--net=/proc/{self.pid}/ns/net", *command)
        done = subprocess.run(entered, capture_output=True, text=True, timeout=20, check=False)
        if done.returncode:
            raise OSError(errno.EIO, done.stderr.strip())
        return done.stdout

    def tc(self, words: list[str]) -> str | None:
        text = self.real("tc", *words)
        return text or "\n" if words[1] == "show" else None


@pytest.fixture
def namespaced() -> Iterator[Namespaced]:
    if not all(shutil.which(tool) for tool in ("tc", "ip", "unshare", "nsenter")):
        pytest.skip("needs tc, ip, unshare and nsenter (Debian: iproute2, util-linux)")
    script = "ip link add eth0 type veth peer name far && ip link set eth0 up && echo made && read end"
    keeper = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert keeper.stdout is not None
        if keeper.stdout.readline() != b"made\n":
            pytest.skip("making a network namespace with a device needs root and the veth driver")
        tools = Namespaced(keeper.pid)
        try:
            tools.real("tc", "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "htb")
            tools.real("tc", "qdisc", "del", "dev", "eth0", "root")
        except OSError as error:
            pytest.skip(f"this kernel cannot shape with htb: {error}")
        yield tools
    finally:
        keeper.communicate(b"end\n", timeout=20)


async def test_the_kernel_takes_the_classes(namespaced: Namespaced) -> None:
    world = World()
    world.slo = spec()
    world.add_pods([pod("web", "LS", "10.0.0.1"), pod("slow", "BE", "10.0.0.9", limit="8M")])
    shaped = Shaped(world, namespaced)
    await shaped.sync()
    assert shaped.shaper.problem == ""
    classes = namespaced.real("tc", "class", "show", "dev", "eth0")
    assert class_minors(classes) == {1, 2, 3, 4, 5}
    assert "class htb 1:4 parent 1:1" in classes
    assert "rate 100Mbit ceil 200Mbit" in classes
    assert await shaped.sync() == []
    world.slo = spec(enable=False)
    world.pods.clear()
    await shaped.sync()
    assert "htb" not in namespaced.real("tc", "qdisc", "show", "dev", "eth0")
