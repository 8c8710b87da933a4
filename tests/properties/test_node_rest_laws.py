"""What did not change is not worked out again, and nobody can tell: plans, kernel values and counts are the same."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.node.core import files
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.rules import NORMALIZATION, Plugins
from kubetide.node.core.outcomes import Outcomes
from kubetide.node.core.plan import Plan, Write
from kubetide.node.core.qos.burst_limiter import Limiters
from kubetide.node.core.qos.cpu_burst import CpuBurst
from kubetide.node.core.qos.suppress import CpuSuppress
from kubetide.node.core.series import kinds
from kubetide.node.core.slo import complete
from kubetide.node.core.snapshot import PodState
from nodeworld import World
from unit.node.hooks.test_plugins import IDENTITY, batch, files_for, normalized_node, raw_pod

LIMIT = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
LARGER = {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}


class Agent:
    """Hooks and strategies on a node in memory; a forgetful one works everything out again."""

    def __init__(self, *, forgetful: bool) -> None:
        self.forgetful = forgetful
        self.world = World()
        self.world.node = convert({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "8"}}}, Node)
        self.world.processors = tuple(Processor(cpu=n, core=n, socket=0, node=0) for n in range(8))
        self.world.topology = {qos.ANNOTATION_CPU_MANAGER: '{"policy":"none"}'}
        self.world.gates = {"CPUBurst": True}
        self.slo("cpuset")
        for place in (self.world.paths.kube_root, *self.world.paths.tiers()):
            self.directory(place)
        for number in range(4):
            self.add(number)
        self.hooks = HookDecider(Plugins(gates={NORMALIZATION: True}))
        self.suppress = CpuSuppress()
        self.burst = CpuBurst(Limiters(lambda: 0.5))
        self.load(2)

    def directory(self, place: str) -> None:
        files_for(self.world, place)
        self.world.cgroup("cpu", place, {"cpu.cfs_burst_us": "0"})

    def slo(self, policy: str, **more: object) -> None:
        threshold = {"enable": True, "cpuSuppressPolicy": policy}
        spec = {"resourceUsedThresholdWithBE": threshold, "cpuBurstStrategy": {"policy": "auto"}, **more}
        self.world.slo = convert(complete(spec), NodeSLOSpec)

    def add(self, number: int, resources: object = None) -> None:
        best_effort = number % 2 == 1
        label, kube = ("BE", "BestEffort") if best_effort else ("LS", "Burstable")
        amounts = resources or (batch() if best_effort else LIMIT)
        pod = self.world.add_pod(raw_pod(f"pod-{number}", label=label, kube=kube, resources=amounts))
        for place in (pod.directory, pod.containers[0].directory):
            self.directory(place)

    def load(self, number: int) -> None:
        self.world.metrics.set(kinds.NODE_CPU, float(number))
        for pod in self.world.pods:
            self.world.metrics.set(kinds.POD_CPU, number / 4, {kinds.POD_UID: pod.uid})
            for container in pod.containers:
                self.world.metrics.set(kinds.CONTAINER_CPU, number / 4, {kinds.CONTAINER_ID: container.id})
                throttled = float(number > 4)
                self.world.metrics.set(kinds.CONTAINER_THROTTLED, throttled, {kinds.CONTAINER_ID: container.id})

    def sync(self) -> list[tuple[list[Write], list[str]]]:
        if self.forgetful:
            self.hooks._asked.clear()
            self.hooks._batches.clear()
            self.suppress._batch = None
            self.burst._bursts.clear()
            self.world.executor._at_rest.clear()
        told: list[tuple[list[Write], list[str]]] = []

        def note(plan: Plan, outcomes: Outcomes) -> None:
            told.append(([outcome.write for outcome in outcomes], [str(outcome.status) for outcome in outcomes]))

        applied = self.world.executor.apply

        def applying(plan: Plan, by: str = "") -> Outcomes:
            outcomes = applied(plan, by)
            note(plan, outcomes)
            return outcomes

        self.world.executor.apply = applying  # type: ignore[method-assign]
        try:
            self.world.sync(self.suppress)
            self.world.sync(self.burst)
            self.world.pass_of(self.hooks)
        finally:
            self.world.executor.apply = applied  # type: ignore[method-assign]
        return told


def _touch(agent: Agent, number: int) -> None:
    """Somebody else changes the CPUs of the best-effort tier."""
    agent.world.cgroup("cpuset", agent.world.paths.tier(BEST_EFFORT), {"cpuset.cpus": f"0-{number % 8}"})


def _remove(agent: Agent, number: int) -> None:
    pod: PodState = agent.world.pods.pop(number % len(agent.world.pods))
    for path in [path for path in agent.world.host.files if pod.directory in path]:
        del agent.world.host.files[path]
    agent.add(number % 8)


def _resize(agent: Agent, number: int) -> None:
    place = number % len(agent.world.pods)
    old = agent.world.pods.pop(place)
    agent.add(int(old.name.rpartition("-")[2]), batch("900") if old.raw_qos == qos.BE else LARGER)


CHANGES: dict[str, Callable[[Agent, int], None]] = {
    "nothing": lambda agent, number: None,
    "time passes": lambda agent, number: agent.world.clock.advance(10 * number),
    "load": lambda agent, number: agent.load(number),
    "policy": lambda agent, number: agent.slo("cfsQuota" if number % 2 else "cpuset"),
    "identity": lambda agent, number: agent.slo("cpuset", **(IDENTITY if number % 2 else {})),
    "ratio": lambda agent, number: setattr(
        agent.world, "node", normalized_node("1.25") if number % 2 else agent.world.node
    ),
    "pod replaced": _remove,
    "pod resized": _resize,
    "cpus touched": _touch,
    "refused": lambda agent, number: agent.world.host.refused.__setitem__(
        agent.world.layout.cgroup_file(files.CPU_SHARES, agent.world.pods[0].directory), number
    ),
}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), st.integers(0, 9)), max_size=12))
def test_an_agent_that_remembers_acts_as_one_that_works_everything_out(changes: list[tuple[str, int]]) -> None:
    one, other = Agent(forgetful=False), Agent(forgetful=True)
    for name, number in [("nothing", 0), *changes]:
        for agent in (one, other):
            agent.world.clock.advance(1)
            CHANGES[name](agent, number)
        assert one.sync() == other.sync()
        assert one.world.host.files == other.world.host.files
        assert one.world.executor.counts == other.world.executor.counts
        assert one.suppress.cpuset_status == other.suppress.cpuset_status
