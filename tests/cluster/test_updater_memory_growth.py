"""Before the OOM kill: memory that runs out is raised in place, by whoever leads, within what is allowed."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.values.quantity import parse_quantity
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.world import NODES
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response, Transport
from kubetide.kube.control.core.ranges import ShardMode
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.updater.explain import render
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.autoscaling import Meddler
from simulated.cluster import events, pods, run
from simulated.signals import signals
from simulated.updating import install_crds, recommend, vpa_parts, watch_disruptions

MIB = 2**20
MINUTE = timedelta(minutes=1)
ON = UpdaterSettings(resize_before_oom=True)


async def leaking(cluster: SimCluster, *, mode: str = "InPlaceOrRecreate", leak: str = "9000Mi", **vpa: Any) -> None:
    """Run a pod that leaks 2.5 MiB a second towards its limit of 512Mi."""
    await install_crds(cluster)
    notes = {"sim.kubetide.io/memory": "100Mi", "sim.kubetide.io/leak-per-hour": leak}
    given: dict[str, Any] = {"cpu": "100m", "memory": "256Mi", "memory_limit": "512Mi", "annotations": notes}
    await cluster.apply(make_deployment("web", replicas=1, **given))
    await cluster.apply(make_vpa("web", target="web", mode=mode, **vpa))
    await cluster.run_for(timedelta(seconds=20))


def limit_of(cluster: SimCluster) -> int:
    (pod,) = pods(cluster)
    return parse_quantity(pod["spec"]["containers"][0]["resources"]["limits"]["memory"]).value


def restarts(cluster: SimCluster) -> int:
    return sum(status["restartCount"] for pod in pods(cluster) for status in pod["status"]["containerStatuses"])


def test_a_leak_is_given_more_memory_in_place_and_not_oom_killed() -> None:
    async def main(cluster: SimCluster) -> None:
        await leaking(cluster)
        seen = watch_disruptions(cluster)
        async with signals(cluster) as heard, vpa_parts(cluster, ON, client_of=heard.client) as running:
            await cluster.run_for(4 * MINUTE)
            assert limit_of(cluster) > 512 * MIB
            assert (restarts(cluster), seen.evictions) == (0, [])
            (pod,) = pods(cluster)
            assert pod["metadata"]["annotations"]["kubetide.io/memory-grown"].startswith("main=")
            asked = parse_quantity(pod["spec"]["containers"][0]["resources"]["requests"]["memory"]).value
            assert asked == pytest.approx(limit_of(cluster) / 2, abs=MIB)
            (event, *_) = events(cluster, reason="MemoryGrownBeforeOOM")
            assert "because it needs" in event["message"]
            trace = running.updater.explain("pod", f"default/{pod['metadata']['name']}")
            assert trace is not None
            assert "memory of main was running out" in render(trace)
            assert "given more in place, memory limit" in render(trace)
            assert running.updater.notes() == ()

    run(main, nodes=1)


def test_without_the_setting_it_is_oom_killed() -> None:
    async def main(cluster: SimCluster) -> None:
        await leaking(cluster)
        async with signals(cluster) as heard, vpa_parts(cluster, client_of=heard.client):
            await cluster.run_for(4 * MINUTE)
            assert limit_of(cluster) == 512 * MIB
            assert restarts(cluster) >= 1

    run(main, nodes=1)


def test_the_resize_comes_within_two_seconds_of_the_sample() -> None:
    async def main(cluster: SimCluster) -> None:
        await leaking(cluster)
        seen = watch_disruptions(cluster)
        async with signals(cluster) as heard, vpa_parts(cluster, ON, client_of=heard.client):
            first = None
            while first is None:
                await cluster.run_for(timedelta(seconds=1))
                alarms = heard.server.readings.alarms(now=cluster.clock.now())
                first = alarms[0].at if alarms else None
            await cluster.run_for(timedelta(seconds=5))
            (at, _), *_ = seen.resizes
            assert at - first <= timedelta(seconds=2)

    run(main, nodes=1)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param({"mode": "Off"}, "mode Off leaves running pods alone", id="mode"),
        pytest.param(
            {"policies": [{"containerName": "*", "maxAllowed": {"memory": "256Mi"}}]},
            "maxAllowed allows no more",
            id="max-allowed",
        ),
    ],
)
def test_what_may_not_grow_is_named_once_and_left_to_the_kernel(given: dict[str, Any], reason: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await leaking(cluster, **given)
        async with signals(cluster) as heard, vpa_parts(cluster, ON, client_of=heard.client):
            await cluster.run_for(3 * MINUTE)
            assert limit_of(cluster) == 512 * MIB
            (event, *_) = events(cluster, reason="MemoryNotGrownBeforeOOM")
            assert reason in event["message"]

    run(main, nodes=1)


def test_a_new_leader_hears_at_once_what_the_last_one_left() -> None:
    async def main(cluster: SimCluster) -> None:
        await leaking(cluster, leak="18000Mi")
        seen = watch_disruptions(cluster)
        async with signals(cluster) as heard:
            deadline = 60
            while not heard.server.readings.alarms(now=cluster.clock.now()) and deadline:
                await cluster.run_for(timedelta(seconds=1))
                deadline -= 1
            # Nobody listened when the alarm was raised.
            assert seen.resizes == []
            async with vpa_parts(cluster, ON, client_of=heard.client):
                await cluster.run_for(timedelta(seconds=5))
                assert len(seen.resizes) >= 1
        assert restarts(cluster) == 0

    run(main, nodes=1)


def test_only_the_updater_that_leads_listens() -> None:
    async def main(cluster: SimCluster) -> None:
        await leaking(cluster)
        async with signals(cluster) as heard, vpa_parts(cluster, ON, updaters=2, client_of=heard.client):
            await cluster.run_for(MINUTE)
            assert sorted(transport.opened for transport in heard.transports) == [0, 1]

    run(main, nodes=1)


def test_a_metrics_server_that_dies_is_named_and_heard_again_when_it_is_back() -> None:
    async def main(cluster: SimCluster) -> None:
        await leaking(cluster, leak="0")
        async with signals(cluster) as heard, vpa_parts(cluster, ON, client_of=heard.client) as running:
            await cluster.run_for(MINUTE)
            assert running.updater.notes() == ()
            (transport,) = heard.transports
            transport.down = True
            await cluster.run_for(2 * MINUTE)
            assert running.updater.notes() == ("memory alarms are not heard",)
            transport.down = False
            await cluster.run_for(MINUTE)
            assert running.updater.notes() == ()

    run(main, nodes=1)


def test_growths_have_a_budget_of_their_own() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        notes = {"sim.kubetide.io/memory": "300Mi", "sim.kubetide.io/leak-per-hour": "9000Mi"}
        given: dict[str, Any] = {"cpu": "100m", "memory": "256Mi", "memory_limit": "512Mi", "annotations": notes}
        await cluster.apply(make_deployment("web", replicas=6, **given))
        await cluster.apply(make_vpa("web", target="web", mode="InPlaceOrRecreate"))
        seen = watch_disruptions(cluster)
        bounded = UpdaterSettings(resize_before_oom=True, growths_per_minute=2)
        async with signals(cluster) as heard, vpa_parts(cluster, bounded, client_of=heard.client):
            await cluster.run_for(2 * MINUTE)
            assert 2 <= len(seen.resizes) <= 5
            told = [event["message"] for event in events(cluster, reason="MemoryNotGrownBeforeOOM")]
            assert any("--growths-per-minute" in text for text in told)

    run(main, nodes=1)


def test_a_node_without_room_raises_the_limit_alone() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("small", cpu="2", memory="1000Mi")
        await leaking(cluster)
        filler = make_deployment("filler", replicas=1, cpu="100m", memory="300Mi")
        await cluster.apply(filler)
        await cluster.run_for(timedelta(seconds=10))
        async with signals(cluster) as heard, vpa_parts(cluster, ON, client_of=heard.client):
            await cluster.run_for(3 * MINUTE)
            (pod,) = pods(cluster, app="web")
            sizes = pod["spec"]["containers"][0]["resources"]
            assert parse_quantity(sizes["limits"]["memory"]).value > 512 * MIB
            total = sum(
                parse_quantity(one["spec"]["containers"][0]["resources"]["requests"]["memory"]).value
                for one in pods(cluster)
            )
            (node,) = cluster.world.all(NODES)
            assert total == pytest.approx(parse_quantity(node["status"]["allocatable"]["memory"]).value, abs=MIB)

    run(main)


def test_what_grew_is_not_taken_back_by_a_recommendation_that_does_not_know_it() -> None:
    async def main(cluster: SimCluster) -> None:
        await leaking(cluster)
        await recommend(cluster, "web", {"cpu": "100m", "memory": "200Mi"})
        once = UpdaterSettings(resize_before_oom=True, min_replicas=1, memory_headroom=-1)
        async with signals(cluster) as heard, vpa_parts(cluster, once, client_of=heard.client):
            before = 0
            for _ in range(5):
                await cluster.run_for(MINUTE)
                assert limit_of(cluster) >= before
                before = limit_of(cluster)

    run(main, nodes=1)


async def neighbours(cluster: SimCluster) -> None:
    """Run a leaking pod on a node of 1000Mi beside one of another namespace that requests 300Mi."""
    cluster.add_node("small", cpu="2", memory="1000Mi")
    await leaking(cluster)
    await cluster.ensure_namespace("elsewhere")
    await cluster.apply(make_deployment("filler", "elsewhere", replicas=1, cpu="100m", memory="300Mi"))
    await cluster.run_for(timedelta(seconds=10))


def resources_of(cluster: SimCluster, app: str) -> tuple[int, int]:
    """Return the request and the limit of the only pod of a workload; 0 for none."""
    (pod,) = pods(cluster, app=app)
    found = pod["spec"]["containers"][0]["resources"]
    asked, limit = (parse_quantity(found.get(kind, {}).get("memory", "0")).value for kind in ("requests", "limits"))
    return asked, limit


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"shards": ShardMode.AUTO}, id="replicas-that-share-the-namespaces"),
        pytest.param({"vpa_object_namespace": "default"}, id="one-namespace-alone"),
    ],
)
def test_pods_that_the_updater_does_not_hold_take_room_on_the_node_too(given: dict[str, Any]) -> None:
    async def main(cluster: SimCluster) -> None:
        await neighbours(cluster)
        settings = UpdaterSettings(resize_before_oom=True, **given)
        async with signals(cluster) as heard, vpa_parts(cluster, settings, client_of=heard.client, updaters=2):
            await cluster.run_for(4 * MINUTE)
            (asked, limit), (taken, _) = resources_of(cluster, "web"), resources_of(cluster, "filler")
            assert limit > 512 * MIB
            (node,) = cluster.world.all(NODES)
            assert asked + taken == pytest.approx(
                parse_quantity(node["status"]["allocatable"]["memory"]).value, abs=MIB
            )

    run(main)


def test_where_the_pods_of_a_node_cannot_be_read_the_limit_alone_grows() -> None:
    async def main(cluster: SimCluster) -> None:
        await neighbours(cluster)
        settings = UpdaterSettings(resize_before_oom=True, vpa_object_namespace="default")
        async with signals(cluster) as heard:

            def client_of() -> Client:
                client = heard.client()
                meddler = Meddler(client.transport)
                meddler.interfere = lambda _, path: Response(403, body=b"{}") if path == "/api/v1/pods" else None
                client.transport = meddler
                return client

            async with vpa_parts(cluster, settings, client_of=client_of):
                await cluster.run_for(4 * MINUTE)
        asked, limit = resources_of(cluster, "web")
        assert (asked, limit > 512 * MIB) == (256 * MIB, True)

    run(main)


def test_a_resize_that_hangs_holds_up_no_other() -> None:
    async def main(cluster: SimCluster) -> None:
        await leaking(cluster)
        hung: list[str] = []
        async with signals(cluster) as heard:

            def client_of() -> Client:
                client = heard.client()
                client.transport = Hanging(client.transport, hung)
                return client

            async with vpa_parts(cluster, ON, client_of=client_of):
                while not hung:
                    await cluster.run_for(timedelta(seconds=1))
                notes = {"sim.kubetide.io/memory": "400Mi", "sim.kubetide.io/leak-per-hour": "9000Mi"}
                given: dict[str, Any] = {
                    "cpu": "100m",
                    "memory": "256Mi",
                    "memory_limit": "512Mi",
                    "annotations": notes,
                }
                await cluster.apply(make_deployment("other", replicas=1, **given))
                await cluster.apply(make_vpa("other", target="other", mode="InPlaceOrRecreate"))
                await cluster.run_for(timedelta(seconds=25))
                assert resources_of(cluster, "other")[1] > 512 * MIB
                assert len(hung) == 1, "the first one still waits for its answer"

    run(main, nodes=2)


class Hanging(Meddler):
    """A transport on which the first resize is never answered."""

    def __init__(self, inner: Transport, hung: list[str]) -> None:
        super().__init__(inner)
        self._hung = hung

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        """Wait for ever with the first resize."""
        if path.endswith("/resize") and (not self._hung or path in self._hung):
            self._hung.append(path)
            await asyncio.Event().wait()
        return await super().request(method, path, **parts)
