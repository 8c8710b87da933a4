"""The whole loop: recommender, updater and webhook on one cluster."""

import asyncio
from datetime import timedelta
from random import Random

from kubetide.api.values.quantity import parse_quantity
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.world import PODS, is_ready
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.recommender.loop import Recommender
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import ready_pods, run
from simulated.updating import install_crds, stop, vpa_parts, watch_disruptions

HOUR = timedelta(hours=1)
# Nobody competes here, and hours of renewals every two seconds would be most of the work.
ADMISSION = AdmissionSettings(local_name="vpa", lease_period=timedelta(seconds=30))


class LowestReady:
    """The fewest ready pods of a workload that were ever seen, once it had all of them."""

    def __init__(self, cluster: SimCluster, app: str) -> None:
        self._cluster = cluster
        self._app = app
        self.lowest = len(ready_pods(cluster, "default", app=app))
        cluster.world.on(PODS, self._changed)

    def _changed(self, old: object, new: object) -> None:
        pods = ready_pods(self._cluster, "default", app=self._app)
        self.lowest = min(self.lowest, sum(map(is_ready, pods)))


def requests(cluster: SimCluster, app: str) -> list[tuple[int, int]]:
    found = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in ready_pods(cluster, "default", app=app)]
    return [(parse_quantity(each["cpu"]).milli, parse_quantity(each["memory"]).value) for each in found]


def test_an_underprovisioned_deployment_is_raised_and_an_idle_one_lowered_within_its_tolerance() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply(make_deployment("busy", replicas=4, cpu="100m", memory="100Mi"))
        await cluster.apply(make_deployment("idle", replicas=4, cpu="1", memory="2Gi"))
        cluster.set_usage("default", "busy", cpu="600m", memory="400Mi")
        cluster.set_usage("default", "idle", cpu="10m", memory="40Mi")
        for name in ("busy", "idle"):
            await cluster.apply(make_vpa(name, target=name, mode="Recreate"))
        await cluster.run_for(timedelta(minutes=2))
        seen = watch_disruptions(cluster)
        lowest = {name: LowestReady(cluster, name) for name in ("busy", "idle")}
        client = cluster.client()
        recorder = EventRecorder(client, clock=cluster.clock, component="vpa-recommender")
        recommender = Recommender(
            client, cluster.clock, RecommenderSettings(leader_elect=False), Telemetry(), recorder, Random(1)
        )
        task = asyncio.get_running_loop().create_task(recommender.run(), name="recommender")
        try:
            async with vpa_parts(cluster, UpdaterSettings(leader_elect=False), ADMISSION) as running:
                await cluster.run_for(4 * HOUR)
                for name in ("busy", "idle"):
                    assert running.condition(name, "UpdatesPaused") is None
        finally:
            await stop([task])
        busy, idle = requests(cluster, "busy"), requests(cluster, "idle")
        assert len(busy) == len(idle) == 4
        assert all(600 <= cpu <= 900 and 400 * 2**20 <= memory <= 700 * 2**20 for cpu, memory in busy)
        assert all(cpu <= 30 and memory <= 300 * 2**20 for cpu, memory in idle)
        assert seen.evictions
        assert seen.most_in_a_minute() <= 60
        # Four replicas with a tolerance of one half; one is replaced at a time.
        assert lowest["busy"].lowest >= 3
        assert lowest["idle"].lowest >= 3

    run(main, nodes=3, scenario="tick: 15s\nmetrics: {interval: 60s}")
