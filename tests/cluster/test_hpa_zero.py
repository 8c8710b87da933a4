"""A deployment that an external metric scales to zero and back, and zeros that stay."""

from datetime import timedelta

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.hpa.settings import HpaSettings
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import Running, autoscaler
from simulated.cluster import events, ready_pods, run

QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


async def workers(cluster: SimCluster, *, replicas: int, queue: float) -> None:
    await cluster.apply(make_deployment("web", replicas=replicas, cpu="50m", memory="32Mi"))
    await cluster.apply(make_hpa("web", minimum=0, maximum=5, metrics=[QUEUE]))
    cluster.metrics.set_external_metric("default", "queue", queue)


def zero(running: Running) -> tuple[str, str]:
    return running.condition("default", "web", "ScaledToZero")


def test_an_external_metric_scales_to_zero_and_back() -> None:
    async def main(cluster: SimCluster) -> None:
        await workers(cluster, replicas=2, queue=20.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert (running.replicas("default", "web"), zero(running)) == (2, ("", ""))
            cluster.metrics.set_external_metric("default", "queue", 0.0)
            await cluster.run_for(timedelta(minutes=6))
            assert (running.replicas("default", "web"), zero(running)) == (0, ("True", "ScaledToZero"))
            await cluster.run_for(timedelta(minutes=30))
            assert running.replicas("default", "web") == 0
            assert running.condition("default", "web", "ScalingActive") == ("True", "ValidMetricFound")
            cluster.metrics.set_external_metric("default", "queue", 25.0)
            await cluster.run_for(timedelta(minutes=1))
            assert (running.replicas("default", "web"), zero(running)) == (3, ("False", "NotScaledToZero"))
            status = running.status("default", "web")
            assert (status["observedGeneration"], status["desiredReplicas"]) == (1, 3)
            assert [condition["type"] for condition in status["conditions"]] == [
                "AbleToScale",
                "ScalingActive",
                "ScalingLimited",
                "ScaledToZero",
            ]
            assert running.condition("default", "web", "AbleToScale")[0] == "True"
        # Down by way of the pods that the stabilization window allows, and up again at once.
        told = [event["message"] for event in events(cluster, reason="SuccessfulRescale", name="web")]
        assert [message.partition(";")[0] for message in told] == ["New size: 0", "New size: 3"]
        assert "All metrics below target" in told[0]
        assert "external metric queue" in told[1]
        assert len(ready_pods(cluster, "default", app="web")) == 3

    run(main, nodes=1)


def test_a_deployment_that_a_person_put_to_zero_stays_there() -> None:
    async def main(cluster: SimCluster) -> None:
        await workers(cluster, replicas=0, queue=50.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=5))
            assert running.replicas("default", "web") == 0
            assert running.condition("default", "web", "ScalingActive") == ("False", "ScalingDisabled")

    run(main, nodes=1)


def test_up_to_1_35_a_minimum_of_zero_is_enough_to_wake_up() -> None:
    async def main(cluster: SimCluster) -> None:
        await workers(cluster, replicas=0, queue=50.0)
        async with autoscaler(cluster, HpaSettings(compat="1.35")) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert (running.replicas("default", "web"), zero(running)) == (5, ("", ""))
            assert "observedGeneration" not in running.status("default", "web")

    run(main, nodes=1)


def test_going_back_to_an_older_release_leaves_no_generation_behind() -> None:
    async def main(cluster: SimCluster) -> None:
        await workers(cluster, replicas=2, queue=20.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert running.status("default", "web")["observedGeneration"] == 1
        async with autoscaler(cluster, HpaSettings(compat="1.36")) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert "observedGeneration" not in running.status("default", "web")

    run(main, nodes=1)
