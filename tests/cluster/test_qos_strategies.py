"""The acting agent on a simulated node, in virtual time: every strategy, cgroup v1 and v2, both drivers."""

import itertools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.qos.cgroups import BEST_EFFORT, BURSTABLE
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import SettingsError
from kubetide.node.agent import NodeAgent
from qosagent import batch_pod, granted, group_of, ls_pod, make_agent, node_slo, running
from simulated.cluster import events, pods, run

Raw = dict[str, Any]
MACHINES = pytest.mark.parametrize(
    ("cgroup", "driver"), [("v1", "systemd"), ("v1", "cgroupfs"), ("v2", "systemd"), ("v2", "cgroupfs")]
)
SECOND = timedelta(seconds=1)


def on_node(
    main: Callable[[SimCluster], Awaitable[None]], *, cgroup: str = "v2", driver: str = "systemd", **machine: Any
) -> None:
    """Run a test on a cluster with one node."""

    async def body(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi", cgroup=cgroup, driver=driver, **machine)
        await main(cluster)

    run(body)


def decision(agent: NodeAgent, strategy: str) -> Raw:
    explained = agent.explain("node", "node-1")
    assert explained is not None
    found: Raw = explained["qos"]["strategies"][strategy]
    return found


def cgroup_text(cluster: SimCluster, controller: str, directory: str, v1: str, v2: str) -> str:
    host = cluster.hosts["node-1"]
    root = f"/sys/fs/cgroup/{controller}" if host.version == 1 else "/sys/fs/cgroup"
    return host.read(f"{root}/{directory}/{v1 if host.version == 1 else v2}").strip()


def suppressing(policy: str, *, enable: bool = True) -> Raw:
    return node_slo(
        resourceUsedThresholdWithBE={
            "enable": enable,
            "cpuSuppressPolicy": policy,
            "cpuSuppressThresholdPercent": 65,
        }
    )


@MACHINES
@pytest.mark.parametrize("policy", ["cfsQuota", "cpuset"])
def test_best_effort_work_makes_room_within_two_syncs_and_comes_back_in_steps(
    cgroup: str, driver: str, policy: str
) -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.set_usage("default", "web", cpu="1")
        cluster.set_usage("default", "job", cpu="8")
        await cluster.apply([suppressing(policy), ls_pod("web", cpu="4"), batch_pod("job", cpu=8000)])
        await cluster.run_for(20 * SECOND)
        assert granted(cluster, "job") > 6.9
        async with running(make_agent(cluster)) as agent:
            await cluster.run_for(10 * SECOND)
            calm = granted(cluster, "job")
            assert calm == pytest.approx(4.1 if policy == "cfsQuota" else 5.0)
            cluster.set_usage("default", "web", cpu="4.5")
            await seen_by_the_agent(cluster, agent, 4.5)
            await cluster.run_for(2 * SECOND)
            assert granted(cluster, "job") == pytest.approx(0.6 if policy == "cfsQuota" else 2.0)
            assert granted(cluster, "web") == pytest.approx(4.5)
            cluster.set_usage("default", "web", cpu="1")
            await seen_by_the_agent(cluster, agent, 1.0)
            steps = []
            for _ in range(6):
                await cluster.run_for(SECOND)
                steps.append(granted(cluster, "job"))
            assert steps == sorted(steps)
            assert max(after - before for before, after in itertools.pairwise(steps)) <= 1.0 + 1e-6
            assert steps[-1] == pytest.approx(calm)
        assert granted(cluster, "job") > 6.9  # a stopped agent leaves no limit behind

    on_node(main, cgroup=cgroup, driver=driver)


async def seen_by_the_agent(cluster: SimCluster, agent: NodeAgent, cores: float) -> None:
    """Wait until the strategy's last round saw this usage of latency-sensitive pods."""
    for _ in range(30):
        if decision(agent, "cpu-suppress").get("podsUsedCores") == pytest.approx(cores, abs=0.05):
            return
        await cluster.run_for(SECOND)
    raise AssertionError(f"the agent never saw {cores} cores")


def test_disabling_gives_everything_back_and_forgetting_the_switch_changes_nothing() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.set_usage("default", "job", cpu="8")
        await cluster.apply([suppressing("cfsQuota"), ls_pod("web", cpu="4"), batch_pod("job", cpu=8000)])
        async with running(make_agent(cluster)):
            await cluster.run_for(20 * SECOND)
            assert granted(cluster, "job") < 5.2
            forgotten = suppressing("cfsQuota")
            del forgotten["spec"]["resourceUsedThresholdWithBE"]["enable"]
            await cluster.apply(forgotten)
            await cluster.run_for(20 * SECOND)
            assert granted(cluster, "job") < 5.2
            await cluster.apply(suppressing("cfsQuota", enable=False))
            await cluster.run_for(5 * SECOND)
            assert granted(cluster, "job") > 7.9

    on_node(main)


@MACHINES
def test_a_steady_node_is_not_written_to(cgroup: str, driver: str) -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.set_usage("default", "web", cpu="2")
        cluster.set_usage("default", "job", cpu="8")
        slo = node_slo(
            **suppressing("cpuset")["spec"],
            cpuBurstStrategy={"policy": "auto"},
            resourceQOSStrategy={"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50}}},
        )
        web = ls_pod("web", cpu="4", cpu_limit="4", memory="1Gi", memory_limit="2Gi")
        await cluster.apply([slo, web, batch_pod("job", cpu=8000)])
        gates = "CgroupReconcile=true,BEMemoryEvict=true,BECPUEvict=true,SystemConfig=true"
        async with running(make_agent(cluster, feature_gates=gates)):
            await cluster.run_for(timedelta(minutes=1))
            settled = cluster.elapsed()
            await cluster.run_for(timedelta(minutes=2))
            assert [write for write in cluster.hosts["node-1"].writes if write[0] > settled] == []

    on_node(main, cgroup=cgroup, driver=driver)


@MACHINES
def test_a_throttled_pod_bursts_while_the_pool_has_room(cgroup: str, driver: str) -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.set_usage("default", "web", cpu="1.5")
        cluster.set_usage("default", "other", cpu="100m")
        slo = node_slo(cpuBurstStrategy={"policy": "auto", "sharePoolThresholdPercent": 50})
        web = ls_pod("web", cpu="1", cpu_limit="1", memory="256Mi", memory_limit="256Mi")
        await cluster.apply([slo, web, ls_pod("other", cpu="1")])
        await cluster.run_for(20 * SECOND)
        assert granted(cluster, "web") == pytest.approx(1.0)
        async with running(make_agent(cluster)):
            await cluster.run_for(20 * SECOND)
            assert granted(cluster, "web") == pytest.approx(1.5)
            burst = cgroup_text(cluster, "cpu", group_of(cluster, "web"), "cpu.cfs_burst_us", "cpu.max.burst")
            quota = cgroup_text(cluster, "cpu", group_of(cluster, "web"), "cpu.cfs_quota_us", "cpu.max").split()[0]
            assert 0 < int(burst) <= int(quota)
            cluster.set_usage("default", "other", cpu="6")
            await cluster.run_for(30 * SECOND)
            assert granted(cluster, "web") == pytest.approx(1.0)

    on_node(main, cgroup=cgroup, driver=driver)


@MACHINES
def test_memory_is_protected_and_throttled_by_class(cgroup: str, driver: str) -> None:
    async def main(cluster: SimCluster) -> None:
        slo = node_slo(
            resourceQOSStrategy={
                "lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50, "throttlingPercent": 80}}
            }
        )
        web = ls_pod("web", cpu="1", memory="1Gi", memory_limit="2Gi")
        await cluster.apply([slo, web])
        async with running(make_agent(cluster, feature_gates="CgroupReconcile=true")):
            await cluster.run_for(30 * SECOND)
            paths = cluster.hosts["node-1"].paths
            place = group_of(cluster, "web")
            for directory in (place, paths.tier(BURSTABLE), paths.kube_root):
                assert cgroup_text(cluster, "memory", directory, "memory.min", "memory.min") == str(2**29)
            await cluster.client().request("DELETE", "/api/v1/namespaces/default/pods/web")
            await cluster.run_for(timedelta(minutes=2))
            assert cgroup_text(cluster, "memory", paths.tier(BURSTABLE), "memory.min", "memory.min") == "0"

    on_node(main, cgroup=cgroup, driver=driver, anolis=True)


@MACHINES
def test_switching_every_feature_off_brings_the_neutral_values_back(cgroup: str, driver: str) -> None:
    def everything(on: bool) -> Raw:
        memory = {"enable": on, "minLimitPercent": 50, "lowLimitPercent": 80, "throttlingPercent": 50}
        identity = {"lsClass": 2, "beClass": -1}
        return node_slo(
            resourceUsedThresholdWithBE={"enable": on, "cpuSuppressPolicy": "cpuset"},
            cpuBurstStrategy={"policy": "auto" if on else "none", "cpuBurstPercent": 50},
            resourceQOSStrategy={
                name: {"memoryQOS": memory, "cpuQOS": {"enable": on, "groupIdentity": value}}
                for name, value in identity.items()
            },
        )

    async def main(cluster: SimCluster) -> None:
        cluster.set_usage("default", "web", cpu="1.5")
        cluster.set_usage("default", "job", cpu="8")
        web = ls_pod("web", cpu="1", cpu_limit="1", memory="1Gi", memory_limit="2Gi")
        await cluster.apply([everything(on=True), web, batch_pod("job", cpu=8000)])
        await cluster.run_for(20 * SECOND)
        host = cluster.hosts["node-1"]
        root = "/sys/fs/cgroup/cpu" if host.version == 1 else "/sys/fs/cgroup"
        of_pods = [group_of(cluster, name) for name in ("web", "job")]
        inside = [f"{place}/{name}" for place in of_pods for name in host.list_dirs(f"{root}/{place}")]
        places = [*host.paths.tiers(), *of_pods, *inside]

        def values(controller: str, v1: str, v2: str) -> set[str]:
            return {cgroup_text(cluster, controller, place, v1, v2) for place in places}

        neutral = {
            ("memory", "memory.min", "memory.min"): {"0"},
            ("memory", "memory.low", "memory.low"): {"0"},
            ("memory", "memory.high", "memory.high"): {"max", "9223372036854775807"},
            ("cpu", "cpu.cfs_burst_us", "cpu.max.burst"): {"0"},
            ("cpu", "cpu.bvt_warp_ns", "cpu.bvt_warp_ns"): {"0"},
            ("cpuset", "cpuset.cpus", "cpuset.cpus.effective"): {"0-7"},
        }
        quota = ("cpu.cfs_quota_us", "cpu.max")
        base = [cgroup_text(cluster, "cpu", of_pods[0], *quota), cgroup_text(cluster, "cpu", inside[0], *quota)]
        async with running(make_agent(cluster, feature_gates="CgroupReconcile=true")):
            await cluster.run_for(timedelta(minutes=1))
            assert not [name for name, expected in neutral.items() if values(*name) <= expected]
            assert cgroup_text(cluster, "cpu", of_pods[0], *quota) != base[0]
            await cluster.apply(everything(on=False))
            await cluster.run_for(timedelta(minutes=2))
            assert {name: found for name, expected in neutral.items() if not (found := values(*name)) <= expected} == {}
            assert [cgroup_text(cluster, "cpu", place, *quota) for place in (of_pods[0], inside[0])] == base

    on_node(main, cgroup=cgroup, driver=driver, anolis=True)


def evicting(**more: Any) -> Raw:
    return node_slo(resourceUsedThresholdWithBE={"enable": True, "memoryEvictThresholdPercent": 70, **more})


def alive(cluster: SimCluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods(cluster, "default") if "deletionTimestamp" not in pod["metadata"]}


@MACHINES
def test_one_shortage_of_memory_evicts_once(cgroup: str, driver: str) -> None:
    async def main(cluster: SimCluster) -> None:
        for name, size in (("web", "6Gi"), ("a", "3Gi"), ("b", "2Gi"), ("c", "1Gi")):
            cluster.set_usage("default", name, cpu="100m", memory=size)
        batch = [batch_pod(name, memory="4Gi") for name in "abc"]
        for pod in batch:
            pod["spec"]["terminationGracePeriodSeconds"] = 60
        await cluster.apply([evicting(), ls_pod("web", cpu="1", memory="8Gi"), *batch])
        async with running(make_agent(cluster, feature_gates="BEMemoryEvict=true")):
            await cluster.run_for(30 * SECOND)
            assert alive(cluster) == {"web", "b", "c"}
            assert [event["reason"] for event in events(cluster) if "evict" in event["reason"]] == ["evictPodSuccess"]
            await cluster.run_for(timedelta(minutes=3))
            assert alive(cluster) == {"web", "b", "c"}

    on_node(main, cgroup=cgroup, driver=driver)


def test_a_disruption_budget_protects_its_pod_and_the_next_one_goes() -> None:
    async def main(cluster: SimCluster) -> None:
        for name, size in (("web", "6Gi"), ("a", "4Gi"), ("b", "2Gi")):
            cluster.set_usage("default", name, cpu="100m", memory=size)
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep-a", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
        }
        protected = batch_pod("a", memory="4Gi")
        protected["metadata"]["labels"]["app"] = "a"
        await cluster.apply([budget, ls_pod("web", cpu="1", memory="8Gi"), protected, batch_pod("b", memory="4Gi")])
        await cluster.run_for(timedelta(minutes=1))
        await cluster.apply(evicting())
        async with running(make_agent(cluster, feature_gates="BEMemoryEvict=true")):
            await cluster.run_for(30 * SECOND)
        assert alive(cluster) == {"web", "a"}
        assert {event["reason"] for event in events(cluster)} >= {"evictPodFail", "evictPodSuccess"}

    on_node(main)


@MACHINES
def test_starved_best_effort_pods_become_fewer(cgroup: str, driver: str) -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.set_usage("default", "web", cpu="4.5")
        for name in "abcd":
            cluster.set_usage("default", name, cpu="3")
        slo = node_slo(
            resourceUsedThresholdWithBE={
                "enable": True,
                "cpuSuppressPolicy": "cfsQuota",
                "cpuSuppressThresholdPercent": 65,
                "cpuEvictBESatisfactionLowerPercent": 25,
                "cpuEvictBESatisfactionUpperPercent": 40,
                "cpuEvictTimeWindowSeconds": 10,
            }
        )
        batch = [batch_pod(name, cpu=1000, priority=5000 + number) for number, name in enumerate("abcd")]
        await cluster.apply([slo, ls_pod("web", cpu="4"), *batch])
        async with running(make_agent(cluster, feature_gates="BECPUEvict=true")) as agent:
            await cluster.run_for(timedelta(seconds=19))
            assert alive(cluster) == {"web", "a", "b", "c", "d"}  # it rests after the start
            await cluster.run_for(timedelta(minutes=3))
            assert alive(cluster) == {"web", "c", "d"}, decision(agent, "cpu-evict")

    on_node(main, cgroup=cgroup, driver=driver)


@MACHINES
def test_batch_pods_get_the_values_that_the_kubelet_does_not_know(cgroup: str, driver: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply([suppressing("cpuset"), ls_pod("web", cpu="1"), batch_pod("job", cpu=500, memory="1Gi")])
        async with running(make_agent(cluster)):
            await cluster.run_for(30 * SECOND)
            place = group_of(cluster, "job")
            assert cgroup_text(cluster, "cpu", place, "cpu.cfs_quota_us", "cpu.max").split()[0] == "50000"
            assert cgroup_text(cluster, "memory", place, "memory.limit_in_bytes", "memory.max") == str(2**30)
            await cluster.apply(suppressing("cfsQuota"))
            await cluster.run_for(10 * SECOND)
            text = cgroup_text(cluster, "cpu", place, "cpu.cfs_quota_us", "cpu.max").split()[0]
            assert text in ("-1", "max")

    on_node(main, cgroup=cgroup, driver=driver)


def test_group_identity_is_written_where_the_kernel_has_it() -> None:
    async def main(cluster: SimCluster) -> None:
        slo = node_slo(
            resourceQOSStrategy={
                "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}},
                "beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}},
            }
        )
        await cluster.apply([slo, ls_pod("web", cpu="1"), batch_pod("job")])
        async with running(make_agent(cluster)):
            await cluster.run_for(30 * SECOND)
            tier = cluster.hosts["node-1"].paths.tier(BEST_EFFORT)
            for directory, expected in (
                (group_of(cluster, "web"), "2"),
                (group_of(cluster, "job"), "-1"),
                (tier, "-1"),
            ):
                assert cgroup_text(cluster, "cpu", directory, "cpu.bvt_warp_ns", "cpu.bvt_warp_ns") == expected

    on_node(main, cgroup="v1", anolis=True)


def test_a_killed_agent_comes_back_without_a_jump() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.set_usage("default", "web", cpu="2")
        cluster.set_usage("default", "job", cpu="8")
        await cluster.apply([suppressing("cfsQuota"), ls_pod("web", cpu="4"), batch_pod("job", cpu=8000)])
        agent = make_agent(cluster)
        async with running(agent):
            await cluster.run_for(20 * SECOND)
            before = granted(cluster, "job")
            for component in agent._late:
                if component.name == "qos":
                    component._release_on_stop = False  # type: ignore[attr-defined]
        assert granted(cluster, "job") == pytest.approx(before)
        async with running(make_agent(cluster)):
            for _ in range(10):
                await cluster.run_for(SECOND)
                assert granted(cluster, "job") == pytest.approx(before)

    on_node(main)


def test_an_extension_that_is_not_installed_is_refused_at_the_start() -> None:
    async def main(cluster: SimCluster) -> str:
        with pytest.raises(SettingsError) as caught:
            make_agent(cluster, qos_extension_plugins="nobody=true")
        return str(caught.value)

    assert "unknown extension 'nobody'" in run(main, nodes=1)
