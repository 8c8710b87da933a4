"""Startup boost on the simulated cluster: more CPU until the pod has started, then back in place."""

from datetime import timedelta

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import pods, ready_pods, run
from simulated.updating import install_crds, vpa_parts, watch_disruptions

MINUTE = timedelta(minutes=1)
GATES = ("CPUStartupBoost=true",)


def test_a_boost_is_given_at_creation_and_taken_back_in_place() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        vpa = make_vpa("web", target="web", mode="Off")
        vpa["spec"]["startupBoost"] = {"cpu": {"type": "Factor", "factor": 3, "durationSeconds": 90}}
        await cluster.apply(vpa)
        seen = watch_disruptions(cluster)
        settings = AdmissionSettings(local_name="vpa", feature_gates=GATES)
        async with vpa_parts(cluster, UpdaterSettings(feature_gates=GATES), settings):
            await cluster.run_for(timedelta(seconds=30))
            await cluster.apply(make_deployment("web", replicas=2, cpu="100m", memory="64Mi", cpu_limit="200m"))
            await cluster.run_for(timedelta(seconds=50))
            resources = [pod["spec"]["containers"][0]["resources"] for pod in ready_pods(cluster)]
            assert [r["requests"]["cpu"] for r in resources] == ["300m"] * 2
            assert [r["limits"]["cpu"] for r in resources] == ["600m"] * 2
            await cluster.run_for(8 * MINUTE)
            resources = [pod["spec"]["containers"][0]["resources"] for pod in ready_pods(cluster)]
            assert [r["requests"] for r in resources] == [{"cpu": "100m", "memory": "64Mi"}] * 2
            assert [r["limits"]["cpu"] for r in resources] == ["200m"] * 2
            assert not any(key.startswith("vpaCpu") for pod in pods(cluster) for key in pod["metadata"]["annotations"])
            assert (len(seen.resizes), seen.evictions) == (2, [])

    run(main, nodes=1)
