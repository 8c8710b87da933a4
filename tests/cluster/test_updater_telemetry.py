"""The numbers that dashboards made for the original look at."""

import asyncio
from datetime import timedelta
from random import Random

import pytest

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.updater.loop import Updater
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import run
from simulated.updating import install_crds, recommend, stop, vpa_parts

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(("timeout", "warned"), [(60, 0), (20, 1)])
def test_skipped_resizes_are_counted_in_every_run_and_a_short_lease_timeout_is_warned_of_once(
    timeout: int, warned: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(cluster: SimCluster) -> list[float]:
        await install_crds(cluster)
        cluster.add_node("small", cpu="1", memory="4Gi")
        await cluster.apply(make_deployment("web", replicas=2, cpu="400m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web", mode="InPlace"))
        cluster.set_usage("default", "web", cpu="50m", memory="64Mi")
        await cluster.run_for(MINUTE)
        cluster.add_node("large", cpu="16", memory="32Gi")
        await recommend(cluster, "web", {"cpu": "3", "memory": "256Mi"})
        telemetry, client, seen = Telemetry(), cluster.client(), []
        recorder = EventRecorder(client, clock=cluster.clock, component="vpa-updater")
        settings = UpdaterSettings(feature_gates=("InPlace=true",), admission_lease_timeout=timedelta(seconds=timeout))
        updater = Updater(client, cluster.clock, settings, telemetry, recorder, Random(1))
        labels = {"vpa_name": "web", "vpa_namespace": "default", "vpa_size_log2": "1"}
        async with vpa_parts(cluster, updaters=0):
            task = asyncio.get_running_loop().create_task(updater.run())
            for _ in range(6):
                await cluster.run_for(2 * MINUTE)
                name = "vpa_updater_in_place_infeasible_skip_pods_total"
                seen.append(telemetry.registry.get_sample_value(name, labels) or 0.0)
            await stop([task])
        return seen

    counted = run(main)
    assert counted == sorted(counted)
    assert counted[-1] - counted[-2] in (2, 4), "both pods, in each of one or two runs"
    assert sum("timeout of the admission lease is short" in one.getMessage() for one in caplog.records) == warned


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
