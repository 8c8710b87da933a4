"""The numbers that dashboards made for the original look at."""

import asyncio
from datetime import timedelta
from random import Random

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.updater.loop import Updater
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import run
from simulated.updating import install_crds, recommend, stop, vpa_parts

MINUTE = timedelta(minutes=1)


def test_metrics_carry_upstream_names_and_labels() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        for name, mode in (("web", "Recreate"), ("api", "InPlaceOrRecreate")):
            await cluster.apply(make_deployment(name, replicas=2, cpu="100m", memory="128Mi"))
            await cluster.apply(make_vpa(name, target=name, mode=mode))
            cluster.set_usage("default", name, cpu="50m", memory="64Mi")
        await cluster.run_for(MINUTE)
        for name in ("web", "api"):
            await recommend(cluster, name, {"cpu": "300m", "memory": "256Mi"})
        telemetry = Telemetry()
        client = cluster.client()
        recorder = EventRecorder(client, clock=cluster.clock, component="vpa-updater")
        updater = Updater(client, cluster.clock, UpdaterSettings(), telemetry, recorder, Random(1))
        async with vpa_parts(cluster, updaters=0) as running:
            task = asyncio.get_running_loop().create_task(updater.run())
            await cluster.run_for(timedelta(minutes=2, seconds=30))
            text = telemetry.render().decode()
            await stop([task])
            webhook = running.telemetry.render().decode()
        recreate = 'update_mode="Recreate"'
        assert f'vpa_updater_controlled_pods_total{{{recreate},vpa_size_log2="1"}} 2.0' in text
        assert 'vpa_updater_evicted_pods_total{update_mode="Recreate",vpa_name="web"' in text
        assert 'vpa_updater_in_place_updated_pods_total{vpa_name="api",vpa_namespace="default"' in text
        untouched = 'update_mode="InPlaceOrRecreate",vpa_name="api",vpa_namespace="default",vpa_size_log2="1"'
        assert f"vpa_updater_evicted_pods_total{{{untouched}}} 0.0" in text
        for step in ("AdmissionInit", "ListVPAs", "ListPods", "FilterPods", "EvictPods", "total"):
            assert f'vpa_updater_execution_latency_seconds_count{{step="{step}"}}' in text
        assert 'vpa_admission_controller_admission_pods_total{applied="true"}' in webhook
        assert 'vpa_admission_controller_admission_latency_seconds_count{resource="Pod",status="applied"}' in webhook

    run(main, nodes=1)
