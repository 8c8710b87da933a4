"""Nodes: soaks of the agent, evictions, what is overcommitted when a large pod lands or leaves, every layout."""

import os
import sys
from datetime import timedelta
from itertools import pairwise, product
from random import Random
from typing import Any

import pytest

from agentserver import AUDIT_LOG
from cluster import test_slo_overcommit as overcommit
from cluster.test_qos_strategies import cgroup_text
from cri import realcontainerd
from drills.audit import read
from drills.drill import Run, drill, needs
from drills.existing import run_tests
from drills.stage import MASTERS, Scene, play
from drills.upstream import stamp
from kubetide.api.objects.scheme import NODE_METRICS
from kubetide.api.objects.scheme import PODS as POD_TYPE
from kubetide.api.values.codec import encode
from kubetide.api.values.cpuset import CpuSet
from kubetide.api.values.patch import MergePatch
from kubetide.api.values.quantity import int_value
from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_pdb, make_pod
from qosagent import batch_pod, ls_pod, make_agent, node_slo, running
from simulated.cluster import pods
from soak import churn
from vm.machine import find_parts, run_in_guest

Raw = dict[str, Any]
AGENT = User("kubetide-node-1", MASTERS)
SOAK_HOURS = "KUBETIDE_SOAK_HOURS"
"""Set in the environment, the soak of the agent takes so many hours instead of a day; the page says so."""


@drill(
    "agent-soak",
    shows="200 pods on one node, one replaced every ten seconds, for a day; history, models and audit log on disk",
    figure="growth of the memory held by agent and simulated node after everything that is kept for a while is full",
    bound=10,
    unit="MiB",
    short="20 pods for half an hour",
)
def test_a_soak_of_the_agent_leaves_nothing_behind(run: Run) -> float:
    asked = float(os.environ.get(SOAK_HOURS, "24"))
    hours, keep, count = (asked, timedelta(minutes=30), 200) if run.whole else (0.5, timedelta(minutes=5), 20)
    run.form = f"{hours:g} of 24 hours" if run.whole and hours < 24 else ""
    duration = timedelta(hours=hours)
    measures = churn.soak(duration, run.folder, every=duration / 15, keep=keep, pods=count, audit=run.audit_on_disk)
    last = measures[-1]
    assert last.known_pods <= count + 2
    settled = measures[5:9]
    grown = churn.grown(settled, last)
    assert grown == []
    return max(last.heap_mib - max(one.heap_mib for one in settled), 0.0)


@drill(
    "best-effort-eviction",
    shows="a node short of memory: one victim terminates already, one has a disruption budget, two more may go",
    figure="pods evicted beyond the one that is enough",
    bound=0,
)
def test_one_shortage_evicts_once_beside_terminating_pods_and_budgets(run: Run) -> float:
    async def main(scene: Scene) -> float:
        cluster = scene.cluster
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        sizes = (("web", "6Gi"), ("leaving", "1Gi"), ("kept", "2Gi"), ("large", "3Gi"), ("small", "1Gi"))
        for name, size in sizes:
            cluster.set_usage("default", name, cpu="100m", memory=size)
        batch = [batch_pod(name, memory="4Gi") for name, _ in sizes[1:]]
        for pod in batch:
            pod["spec"]["terminationGracePeriodSeconds"] = 120
        batch[1]["metadata"]["labels"]["app"] = "kept"
        await cluster.apply([ls_pod("web", cpu="1", memory="8Gi"), *batch])
        await cluster.apply(make_pdb("keep", labels={"app": "kept"}, min_available=1))
        await scene.pass_time(minutes=1)
        await cluster.client().delete(POD_TYPE, "leaving", namespace="default")
        thresholds = {"enable": True, "memoryEvictThresholdPercent": 70, "memoryEvictLowerPercent": 65}
        await cluster.apply(node_slo(resourceUsedThresholdWithBE=thresholds))
        async with running(make_agent(cluster, user=AGENT, feature_gates="BEMemoryEvict=true")):
            await scene.pass_time(minutes=5)
        accepted = [event.name for event in scene.log.events if event.subresource == "eviction" and event.accepted]
        refused = [event.name for event in scene.log.events if event.subresource == "eviction" and event.code == 429]
        assert "leaving" not in accepted
        assert "kept" not in accepted
        alive = {pod["metadata"]["name"] for pod in pods(cluster, "default")}
        assert {"web", "kept"} <= alive
        assert accepted, refused
        return len(accepted) - 1

    return play(run, main, nodes=0)


@drill(
    "batch-continuity",
    shows="a prod pod of ten cores lands on a node of 32 and leaves again, with gradual release",
    figure="largest step up of batch-cpu from one report to the next",
    bound=1500,
    unit="millicores",
)
def test_batch_resources_come_back_in_steps(run: Run) -> float:
    async def main(scene: Scene) -> float:
        cluster = scene.cluster
        cluster.add_node("node-1", cpu="32", memory="64Gi")
        await cluster.ensure_namespace(overcommit.CONFIG_NAMESPACE)
        settings = {"enable": True, "resourceDiffThreshold": 0.001, "metricAggregateDurationSeconds": 300}
        await overcommit.configure(cluster.client(), colocation_config=settings)
        await scene.start("slo", gradual_release=True)
        await scene.pass_time(seconds=30)
        labels = {"koordinator.sh/priority-class": "koord-prod"}
        usage = {
            "name": "large",
            "namespace": "default",
            "priority": "koord-prod",
            "podUsage": {"resources": {"cpu": "10", "memory": "4Gi"}},
        }

        async def follow(seconds: int, reported: list[Raw]) -> list[int]:
            found = []
            for _ in range(seconds // 15):
                await overcommit.report(cluster, "node-1", cpu="500m", memory="1Gi", pods=reported)
                await scene.pass_time(seconds=15)
                found.append(int_value((await overcommit.lent(cluster))[0]))
            return found

        before = await follow(120, [])
        made = make_pod("large", labels=labels, node="node-1", cpu="10", memory="4Gi")
        await cluster.client().create(POD_TYPE, made, namespace="default")
        beside = await follow(120, [usage])
        assert before[-1] - beside[-1] >= 10_000, "room is made for it at once"
        await cluster.client().delete(POD_TYPE, "large", namespace="default", grace_period_seconds=0)
        after = await follow(420, [])
        assert after[-1] == before[-1]
        return max(later - earlier for earlier, later in pairwise([beside[-1], *after]))

    return play(run, main, nodes=0)


LAYOUTS = list(product(("v1", "v2"), ("cgroupfs", "systemd"), ("static", "none"), ("containerd", "cri-o")))


@drill(
    "layouts",
    shows="cgroup v1 and v2 × cgroupfs and systemd × kubelet's static and no CPU policy × containerd and CRI-O: "
    "batch pods "
    "get their limits, their neighbour keeps its CPUs",
    figure="layouts, of 16, in which a value did not arrive",
    bound=0,
)
def test_values_arrive_in_every_layout(run: Run) -> float:
    return float(sum(not _arrives(run, *layout) for layout in LAYOUTS))


class Kubelet:
    """The simulated kubelet, with a CPU policy."""

    def __init__(self, cluster: SimCluster, policy: str) -> None:
        self._cluster, self._policy = cluster, policy

    async def pods(self) -> bytes:
        return encode(self._cluster.kubelets.pods("node-1"))

    async def config(self) -> Raw:
        return {"kubeletconfig": {"cpuManagerPolicy": self._policy, "reservedSystemCPUs": "0"}}


def _arrives(run: Run, cgroup: str, driver: str, policy: str, runtime: str) -> bool:
    async def main(scene: Scene) -> bool:
        cluster = scene.cluster
        host = cluster.add_node("node-1", cpu="8", memory="16Gi", cgroup=cgroup, driver=driver)
        host.runtime = runtime
        threshold = {"enable": True, "cpuSuppressPolicy": "cpuset", "cpuSuppressThresholdPercent": 65}
        slo = node_slo(resourceUsedThresholdWithBE=threshold)
        await cluster.apply([slo, ls_pod("web", cpu="1", memory="1Gi"), batch_pod("job", cpu=500, memory="1Gi")])
        cluster.set_usage("default", "web", cpu="1")
        agent = make_agent(cluster, user=AGENT, kubelet=Kubelet(cluster, policy))
        async with running(agent):
            await scene.pass_time(seconds=90)
            pod = next(each for each in cluster.kubelets.runs() if each.key.name == "job")
            container = host.paths.container(pod.group, pod.containers[0].container_id)
            reported = agent.topology.annotations["kubelet.koordinator.sh/cpu-manager-policy"]
            cpus = CpuSet.parse(cgroup_text(cluster, "cpuset", container, "cpuset.cpus", "cpuset.cpus"))
            found = [
                cgroup_text(cluster, "cpu", place, "cpu.cfs_quota_us", "cpu.max").split()[0]
                for place in (pod.group, container)
            ]
            memory = cgroup_text(cluster, "memory", container, "memory.limit_in_bytes", "memory.max")
        right = found == ["50000", "50000"] and memory == str(2**30) and 0 < len(cpus) < 8
        return right and f'"policy":"{policy}"' in reported

    return play(run, main, nodes=0)


@drill(
    "migration-agent",
    shows="a stand-in for koordlet and kubetide's agent hand over to each other on a node, six times at random moments "
    "with a gap of up to 20 s: reports go on, and the limits of a batch pod stay what the last one wrote",
    figure="longest time between two reports of the node (one a minute)",
    bound=150,
    unit="s",
)
def test_agents_hand_over_at_any_moment(run: Run) -> float:
    async def main(scene: Scene) -> float:
        cluster, rng = scene.cluster, Random(9)
        host = cluster.add_node("node-1", cpu="8", memory="16Gi")
        policy = {"metricCollectPolicy": {"reportIntervalSeconds": 60}}
        kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "node-1"}}
        await cluster.apply([node_slo(), {**kind, "spec": policy}])
        await cluster.apply([ls_pod("web", cpu="1", memory="1Gi"), batch_pod("job", cpu=500, memory="1Gi")])
        await scene.pass_time(seconds=10)
        pod = next(each for each in cluster.kubelets.runs() if each.key.name == "job")

        def limits() -> tuple[str, ...]:
            places = (pod.group, host.paths.container(pod.group, pod.containers[0].container_id))
            return tuple(cgroup_text(cluster, "cpu", place, "cpu.cfs_quota_us", "cpu.max") for place in places)

        async def live(seconds: float) -> None:
            for _ in range(int(seconds)):
                await scene.pass_time(seconds=1)
                assert wanted is None or limits() == wanted, "the limits of a running pod were taken back"

        koordlet = cluster.client(User("system:serviceaccount:koordinator-system:koordlet", MASTERS))
        wanted: tuple[str, ...] | None = None
        for turn in range(6):
            if turn % 2 == 0:
                async with running(make_agent(cluster, user=AGENT, enable_node_metric_report=True)):
                    await live(rng.uniform(150, 240))
                wanted = wanted or limits()
            else:
                for _ in range(rng.randrange(2, 4)):
                    used = {"resources": {"cpu": "2", "memory": "2Gi"}}
                    status = {"updateTime": stamp(scene.now), "nodeMetric": {"nodeUsage": used, "systemUsage": used}}
                    await koordlet.patch(NODE_METRICS, "node-1", MergePatch({"status": status}), subresource="status")
                    await live(60)
            await live(rng.uniform(0, 20))
        assert wanted is not None
        assert all(text.startswith("50000") for text in wanted)
        reports = [event.at for event in scene.log.events if event.kind == "nodemetrics/status" and event.accepted]
        assert {event.user for event in scene.log.events if event.kind == "nodemetrics/status"} >= {AGENT.name}
        return max((later - earlier).total_seconds() for earlier, later in pairwise(reports))

    return play(run, main, nodes=0)


@drill(
    "layouts-containerd",
    shows="a real containerd with NRI: a container is made with the values of the hooks, and keeps them over a "
    "restart of the agent and of containerd; the agent's server is the embedded one",
    figure="tests of the containerd tier that fail",
    bound=0,
    tier="real containerd, runc",
)
def test_values_arrive_in_real_containers(run: Run) -> float:
    realcontainerd.need_containerd()
    audit = run.folder / "audit.log"
    failed = run_tests("cri", run.folder, audit=audit)
    run.logs.append(read(audit.read_bytes().splitlines()))
    return float(failed)


@drill(
    "layouts-cgroup-v2",
    shows="the tests that write real cgroup files, again on cgroup v2 in an emulated machine",
    figure="tests of the kernel tier that fail there",
    bound=0,
    tier="real kernel, emulated machine",
    short="left to the tier of its own, which CI runs",
)
def test_values_arrive_on_a_kernel_with_cgroup_v2(run: Run) -> float:
    parts = find_parts()
    if isinstance(parts, str):
        pytest.skip(parts)
    needs(run.whole, "`make drills` runs it; `make slow` has the same tests in tests/vm")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernel"]
    outcome = run_in_guest(parts, run.folder, ["env", f"{AUDIT_LOG}=/exchange/audit.log", *command], timeout=900.0)
    assert " passed" in outcome.output, outcome.output
    run.logs.append(read((run.folder / "exchange" / "audit.log").read_bytes().splitlines()))
    failed = sum(line.startswith("FAILED") for line in outcome.output.splitlines())
    assert failed or outcome.code == 0, outcome.output
    return float(failed)
