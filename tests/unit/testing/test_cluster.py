"""The cluster that users test with."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from kubetide.api.objects.scheme import PODS
from kubetide.embedded.sim.time.loop import Deadlock, TimeLimitReached
from kubetide.errors import InvalidInput, SettingsError
from kubetide.kube.client.errors import Forbidden, Gone
from kubetide.testing import Cluster, make_deployment, make_hpa, virtual_time
from kubetide.wiring import Dependencies

START = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.fixture
def replicas() -> int:
    return 3


@virtual_time(start=START)
async def test_fixtures_arrive_and_objects_are_found_by_any_of_their_names(replicas: int) -> None:
    async with Cluster(nodes=2) as cluster:
        assert cluster.now == START
        await cluster.apply(make_deployment("web", replicas=replicas))
        await cluster.wait_for(lambda: len(cluster.ready_pods()) == replicas)
        for name in ("Deployment", "deployments", "deploy"):
            assert cluster.get(name, "web")["spec"]["replicas"] == replicas
        assert [node["metadata"]["name"] for node in cluster.list("node")] == ["node-1", "node-2"]
        assert cluster.get("no", "node-1")["kind"] == "Node"


@virtual_time
async def test_what_is_not_there_is_said_in_one_line() -> None:
    async with Cluster() as cluster:
        with pytest.raises(LookupError, match="Deployment default/web is not there"):
            cluster.get("Deployment", "web")
        with pytest.raises(InvalidInput, match="no kind 'Deploymint'"):
            cluster.get("Deploymint", "web")
        with pytest.raises(SettingsError, match="unknown component 'hpaa'"):
            await cluster.start("hpaa")
        with pytest.raises(SettingsError, match="no such setting: 'sink_period'"):
            await cluster.start("hpa", hpa={"sink_period": timedelta(seconds=5)})
        with pytest.raises(Forbidden):
            await cluster.client("nobody").request("GET", "/api/v1/pods")


def test_a_cluster_that_is_not_entered_reports_it() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        Cluster().list("pods")


@virtual_time
async def test_objects_are_patched_and_deleted_with_what_they_own() -> None:
    async with Cluster() as cluster:
        await cluster.apply(make_deployment("web"))
        await cluster.patch("deploy", "web", {"spec": {"replicas": 2}})
        await cluster.wait_for(lambda: len(cluster.ready_pods(labels={"app": "web"})) == 2)
        await cluster.delete("deploy", "web")
        await cluster.wait_for(lambda: not cluster.list("pods"))


@virtual_time
async def test_a_watch_from_before_a_compaction_is_gone() -> None:
    async with Cluster() as cluster:
        await cluster.apply(make_deployment("web"))
        await cluster.run_for(timedelta(minutes=1))
        cluster.compact()
        with pytest.raises(Gone):
            async for _ in cluster.client().watch(PODS, resource_version="1"):
                pass
        assert len(cluster.ready_pods()) == 1


def history(seed: int) -> list[str]:
    @virtual_time
    async def main() -> list[str]:
        async with Cluster(nodes=2, seed=seed) as cluster:
            await cluster.apply(make_deployment("web", cpu="500m"), make_hpa("web", target="web", cpu_percent=50))
            cluster.set_usage("web", cpu="450m")
            await cluster.start("hpa", hpa={"sync_period": timedelta(seconds=5)})
            await cluster.run_for(timedelta(minutes=5))
            return [event["metadata"]["name"] for event in cluster.events()]

    return main()


def test_the_same_seed_gives_the_same_history() -> None:
    first = history(1)
    assert first == history(1)
    assert first != history(2)


def test_a_component_that_fails_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = "broken"

        async def run(self) -> None:
            await asyncio.sleep(5)
            raise LookupError("bug")

    def built(name: str, world: Dependencies, settings: object) -> list[Broken]:
        return [Broken()]

    monkeypatch.setattr("kubetide.testing.cluster.build", built)

    @virtual_time
    async def main() -> None:
        async with Cluster() as cluster:
            await cluster.start("hpa")
            await cluster.run_for(timedelta(hours=1))

    with pytest.raises(ExceptionGroup) as caught:
        main()
    assert caught.value.subgroup(LookupError) is not None


def test_an_assertion_reaches_the_caller_as_it_is() -> None:
    @virtual_time
    async def main() -> None:
        async with Cluster() as cluster:
            await cluster.start("hpa")
            raise AssertionError("the size is wrong")

    with pytest.raises(AssertionError, match="the size is wrong"):
        main()


def test_waiting_for_ever_is_an_error() -> None:
    @virtual_time
    async def stuck() -> None:
        await asyncio.Event().wait()

    @virtual_time(limit=timedelta(hours=1))
    async def late() -> None:
        await asyncio.sleep(7200)

    with pytest.raises(Deadlock):
        stuck()
    with pytest.raises(TimeLimitReached):
        late()


async def test_it_works_inside_a_running_loop() -> None:
    @virtual_time
    async def hour(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return asyncio.get_running_loop().time()

    assert hour(3600) == 3600
