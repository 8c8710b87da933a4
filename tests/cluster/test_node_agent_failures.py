"""What the node agent does when parts of it, of the API or of the node fail, and when it stops or starts again."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubetide.api.objects.scheme import NODES
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import KubetideError, SettingsError, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.transport import Response, Transport
from kubetide.node.agent import NodeAgent, NoNodeName
from kubetide.node.core.layout import Layout
from kubetide.node.core.series import kinds
from kubetide.node.enforcement import container_stopper, make_modules
from kubetide.node.roots import HostUnreadable
from kubetide.node.settings import NodeSettings
from kubetide.node.state.kubelet import Kubelet
from kubetide.node.state.objects import RAW_NODE_METRICS
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_pod
from simulated.cluster import run

NODE = "node-1"
MINUTE = timedelta(minutes=1)
NODE_METRIC = {
    "apiVersion": "slo.koordinator.sh/v1alpha1",
    "kind": "NodeMetric",
    "metadata": {"name": NODE},
    "spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 60, "reportIntervalSeconds": 30}},
}


def node_slo(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": NODE},
        "spec": spec,
    }


class Interrupted:
    """A transport that a test can cut."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.down = False

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        if self.down:
            raise ConnectionLost("the line is cut")
        return await self.inner.request(method, path, **parts)

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        if self.down:
            raise ConnectionLost("the line is cut")
        return self.inner.watch(path, query=query)

    async def close(self) -> None:
        await self.inner.close()


def make_agent(
    cluster: SimCluster,
    *,
    kubelet: Kubelet | None = None,
    acting: bool = False,
    transport: Transport | None = None,
    **settings: Any,
) -> NodeAgent:
    host = cluster.hosts[NODE]
    return NodeAgent(
        Client(transport, clock=cluster.clock) if transport is not None else cluster.client(),
        cluster.clock,
        NodeSettings(node_name=NODE, audit_log_dir="", **settings),
        host,
        Telemetry(),
        layout=Layout(version=host.version, paths=host.paths),
        commands=host,
        kubelet=kubelet,
        modules=(lambda agent: make_modules(agent, sockets=False)) if acting else None,
    )


@asynccontextmanager
async def running(agent: NodeAgent) -> AsyncIterator[NodeAgent]:
    task = asyncio.get_running_loop().create_task(agent.run())
    try:
        yield agent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def status(cluster: SimCluster) -> dict[str, Any]:
    found = await cluster.client().get_raw(RAW_NODE_METRICS, NODE)
    result: dict[str, Any] = found.get("status") or {}
    return result


def test_without_a_node_name_the_agent_does_not_start() -> None:
    async def main(cluster: SimCluster) -> None:
        host = cluster.add_node(NODE)
        with pytest.raises(NoNodeName):
            NodeAgent(cluster.client(), cluster.clock, NodeSettings(audit_log_dir=""), host, Telemetry())

    run(main)


def test_an_interval_below_a_second_is_refused_instead_of_waiting_for_ever() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        with pytest.raises(SettingsError):
            make_agent(cluster, collect_res_used_interval=timedelta(milliseconds=500))

    run(main)


def test_a_host_that_cannot_be_read_is_fatal_at_the_start() -> None:
    async def main(cluster: SimCluster) -> None:
        host = cluster.add_node(NODE)
        layout = Layout(version=host.version, paths=host.paths, proc_root="/not-mounted")
        settings = NodeSettings(node_name=NODE, audit_log_dir="")
        agent = NodeAgent(cluster.client(), cluster.clock, settings, host, Telemetry(), layout=layout)
        with pytest.raises(HostUnreadable):
            await agent.run()

    run(main)


def test_a_failing_collector_does_not_stop_the_others() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        await cluster.apply([NODE_METRIC, make_pod("web", cpu="1")])
        cluster.set_usage("default", "web", cpu="500m", memory="100Mi")
        await cluster.run_for(MINUTE)
        agent = make_agent(cluster)
        throttling = next(one for one in agent.collectors if one.name == "PodThrottledCollector")
        rounds = 0

        def broken() -> bool:
            nonlocal rounds
            rounds += 1
            if rounds > 3:
                raise RuntimeError("a bug")
            return True

        throttling.collect = broken  # type: ignore[method-assign]
        async with running(agent):
            await cluster.run_for(timedelta(minutes=3))
            modules = agent.explain("node", NODE)
            assert modules is not None
            assert modules["modules"]["PodThrottledCollector"]["restarts"] >= 2
            assert "a bug" in modules["modules"]["PodThrottledCollector"]["error"]
            assert [pod["name"] for pod in (await status(cluster))["podsMetric"]] == ["web"]
            assert b"kubetide_node_module_restarts" in agent.telemetry.render()

    run(main)


def test_a_missing_nodeslo_does_not_block_the_start() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        async with running(make_agent(cluster)) as agent:
            await cluster.run_for(timedelta(seconds=30))
            assert agent.ready()
            assert agent.objects.slo is None

    run(main)


def test_an_agent_whose_node_is_not_registered_yet_waits_for_it() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        raw = await cluster.client().get_raw(NODES, NODE)
        await cluster.client().delete(NODES, NODE)
        async with running(make_agent(cluster)) as agent:
            await cluster.run_for(timedelta(seconds=30))
            assert not agent.ready()
            assert agent.modules.states["barrier/state"].waiting_for == [f"Node {NODE}"]
            await cluster.client().create(NODES, {**raw, "metadata": {"name": NODE}})
            await cluster.run_for(timedelta(seconds=30))
            assert agent.ready()

    run(main)


@pytest.mark.parametrize("only", [True, False])
def test_only_evict_by_api_means_that_no_container_is_stopped(only: bool) -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        assert (container_stopper(make_agent(cluster, only_evict_by_api=only)) is None) is only

    run(main)


def test_a_nodeslo_that_is_deleted_stays_in_force() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        await cluster.apply(node_slo(resourceUsedThresholdWithBE={"cpuSuppressThresholdPercent": 42}))
        async with running(make_agent(cluster)) as agent:
            await cluster.run_for(timedelta(seconds=30))
            await cluster.client().request("DELETE", f"/apis/slo.koordinator.sh/v1alpha1/nodeslos/{NODE}")
            await cluster.run_for(timedelta(seconds=30))
            assert agent.objects.slo is not None
            assert agent.objects.slo.resource_used_threshold_with_be is not None
            assert agent.objects.slo.resource_used_threshold_with_be.cpu_suppress_threshold_percent == 42

    run(main)


class ScriptedKubelet:
    """A kubelet that says what a test tells it to."""

    def __init__(self) -> None:
        self.answer: bytes | KubetideError = b'{"items":[]}'
        self.reserving: dict[str, Any] = {"reservedSystemCPUs": "0"}

    async def pods(self) -> bytes:
        if isinstance(self.answer, KubetideError):
            raise self.answer
        return self.answer

    async def config(self) -> dict[str, Any]:
        return {"kubeletconfig": {"cpuManagerPolicy": "static", **self.reserving}}


def test_an_empty_or_failing_kubelet_keeps_the_previous_pods() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        kubelet = ScriptedKubelet()
        async with running(make_agent(cluster, kubelet=kubelet)) as agent:
            await cluster.run_for(MINUTE)
            waiting = agent.explain("node", NODE)
            assert waiting is not None
            assert "pods from the kubelet" in waiting["modules"]["barrier/state"]["waitingFor"]
            pod = {"metadata": {"name": "a", "namespace": "x", "uid": "a"}, "status": {"phase": "Running"}}
            kubelet.answer = msgspec.json.encode({"items": [pod]})
            await cluster.run_for(MINUTE)
            assert agent.ready()
            for answer in (b'{"items":[]}', b"not json", Unavailable("down")):
                kubelet.answer = answer
                await cluster.run_for(MINUTE)
                assert [state.uid for state in agent.pods.states()] == ["a"]
            assert agent.topology.annotations["kubelet.koordinator.sh/cpu-manager-policy"] == (
                '{"policy":"static","reservedCPUs":"0"}'
            )

    run(main)


def test_a_negative_reserved_cpu_amount_is_warned_of_once_and_the_node_is_still_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        kubelet = ScriptedKubelet()
        kubelet.reserving = {"kubeReserved": {"cpu": "-1"}}
        pod = {"metadata": {"name": "a", "namespace": "x", "uid": "a"}, "status": {"phase": "Running"}}
        kubelet.answer = msgspec.json.encode({"items": [pod]})
        async with running(make_agent(cluster, kubelet=kubelet)) as agent:
            await cluster.run_for(2 * MINUTE)
            policy = agent.topology.annotations["kubelet.koordinator.sh/cpu-manager-policy"]
            assert policy == '{"policy":"static"}'

    run(main)
    warnings = [record.message for record in caplog.records if "negative reserved CPU amount" in record.message]
    assert len(warnings) == 1


def test_an_outage_of_the_api_keeps_the_agent_running_and_reporting_afterwards() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        await cluster.apply(NODE_METRIC)
        transport = Interrupted(cluster.transport())
        async with running(make_agent(cluster, transport=transport)) as agent:
            await cluster.run_for(timedelta(minutes=2))
            before = cluster.clock.now().isoformat()
            samples = len(agent.store.query(kinds.NODE_CPU, None, 0, 2**62))
            transport.down = True
            await cluster.run_for(timedelta(minutes=5))
            assert (await status(cluster))["updateTime"] <= before
            transport.down = False
            assert len(agent.store.query(kinds.NODE_CPU, None, 0, 2**62)) > samples + 200
            await cluster.run_for(timedelta(minutes=3))
            assert (await status(cluster))["updateTime"] > before

    run(main)


def test_the_heartbeat_is_written_also_when_nothing_changed() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        await cluster.apply(NODE_METRIC)
        async with running(make_agent(cluster)):
            times = []
            for _ in range(4):
                await cluster.run_for(timedelta(seconds=30))
                times.append((await status(cluster)).get("updateTime"))
            assert len(set(times)) >= 3

    run(main)


def test_a_restart_brings_samples_and_models_back(tmp_path: Path) -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        await cluster.apply([NODE_METRIC, make_pod("web", cpu="1")])
        cluster.set_usage("default", "web", cpu="500m", memory="100Mi")
        await cluster.run_for(MINUTE)
        settings: dict[str, Any] = {
            "metric_history_path": str(tmp_path / "history"),
            "prediction_checkpoint_filepath": str(tmp_path / "models"),
        }
        async with running(make_agent(cluster, **settings)) as agent:
            await cluster.run_for(timedelta(minutes=5))
            uid = agent.pods.states()[0].uid
            peaks = agent.prediction.models.predict(uid)
            points = len(agent.store.query(kinds.POD_CPU, None, 0, 2**62))
        async with running(make_agent(cluster, **settings)) as again:
            await cluster.run_for(timedelta(seconds=10))
            assert len(again.store.query(kinds.POD_CPU, None, 0, 2**62)) >= points
            assert again.prediction.models.predict(uid) is not None
            assert peaks is not None

    run(main)


def test_stopping_gives_best_effort_pods_the_whole_node_back() -> None:
    async def main(cluster: SimCluster) -> None:
        host = cluster.add_node(NODE, cpu="8", memory="16Gi", cgroup="v1")
        enable = {"enable": True, "cpuSuppressThresholdPercent": 30}
        await cluster.apply(
            [
                node_slo(resourceUsedThresholdWithBE=enable),
                make_pod("batch", labels={"koordinator.sh/qosClass": "BE"}),
                make_pod("web", cpu="1"),
            ]
        )
        cluster.set_usage("default", "web", cpu="2", memory="100Mi")
        cluster.set_usage("default", "batch", cpu="4", memory="100Mi")
        tier = f"/sys/fs/cgroup/cpuset/{host.paths.tier('BestEffort')}/cpuset.cpus"
        await cluster.run_for(MINUTE)
        async with running(make_agent(cluster, acting=True)):
            await cluster.run_for(timedelta(minutes=3))
            narrow = host.read(tier).strip()
            assert narrow != "0-7"
        assert host.read(tier).strip() == "0-7"

    run(main)
