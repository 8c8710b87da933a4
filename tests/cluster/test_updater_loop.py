"""Updater and webhook on the simulated cluster."""

from datetime import timedelta

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.testing.cluster import events, pods, ready_pods, run
from kubetide.testing.updating import install_crds, recommend, vpa_parts, watch_disruptions

MINUTE = timedelta(minutes=1)


def test_pods_outside_the_range_are_replaced_one_after_the_other_and_patched() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply(make_deployment("web", replicas=3, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        cluster.set_usage("default", "web", cpu="50m", memory="64Mi")
        await cluster.run_for(MINUTE)
        await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster) as running:
            await cluster.run_for(8 * MINUTE)
            requests = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in ready_pods(cluster, "default")]
            assert requests == [{"cpu": "300m", "memory": "256Mi"}] * 3
            assert len(seen.evictions) == 3
            assert {event["reason"] for event in events(cluster)} >= {"EvictedByVPA", "EvictedPod"}
            assert all(pod["metadata"]["annotations"]["vpaObservedContainers"] == "main" for pod in pods(cluster))
            assert running.condition("web", "UpdatesPaused") is None

    run(main, nodes=2)
