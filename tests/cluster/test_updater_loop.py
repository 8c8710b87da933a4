"""Updater and webhook on the simulated cluster."""

from datetime import timedelta

import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import KubetideError
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.updater.explain import render
from kubetide.vpa.updater.loop import recompute
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import events, pods, ready_pods, run
from simulated.updating import install_crds, recommend, vpa_parts, watch_disruptions

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


def test_a_pod_is_explained_without_a_running_updater() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply(make_deployment("web", replicas=2, cpu="100m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        await cluster.run_for(MINUTE)
        await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"})
        key = ObjectKey("default", pods(cluster)[0]["metadata"]["name"])
        settings = UpdaterSettings(use_admission_controller_status=False)
        text = render(await recompute(cluster.client(), cluster.clock, settings, key))
        assert f"pod {key}, controlled by VPA default/web" in text
        assert "evicted, because a request is outside the recommended range" in text
        alone = render(await recompute(cluster.client(), cluster.clock, UpdaterSettings(), key))
        assert "left alone, because the lease of the admission controller is not fresh" in alone
        with pytest.raises(KubetideError, match="not controlled"):
            await recompute(cluster.client(), cluster.clock, settings, ObjectKey("default", "stranger"))

    run(main, nodes=1)
