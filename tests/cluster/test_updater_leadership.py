"""Two updaters, restarts, and the budget of the cluster."""

import asyncio
from collections import Counter
from datetime import timedelta
from random import Random

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.updater.loop import Updater
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import ready_pods, run
from simulated.recommending import recommender
from simulated.updating import (
    end_watches_after,
    install_crds,
    recommend,
    stop,
    vpa_condition,
    vpa_parts,
    watch_disruptions,
)

MINUTE = timedelta(minutes=1)


def test_no_pod_is_evicted_twice_while_the_leader_changes() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        for number in range(12):
            name = f"web-{number}"
            await cluster.apply(make_deployment(name, replicas=4, cpu="100m", memory="128Mi"))
            await cluster.apply(make_vpa(name, target=name))
            cluster.set_usage("default", name, cpu="50m", memory="64Mi")
        await cluster.run_for(MINUTE)
        for number in range(12):
            await recommend(cluster, f"web-{number}", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        loop = asyncio.get_running_loop()

        def start(seed: int) -> tuple[Updater, asyncio.Task[None]]:
            client = cluster.client()
            recorder = EventRecorder(client, clock=cluster.clock, component="vpa-updater")
            updater = Updater(client, cluster.clock, UpdaterSettings(), Telemetry(), recorder, Random(seed))
            return updater, loop.create_task(updater.run(), name=f"updater-{seed}")

        async with vpa_parts(cluster, updaters=0):
            running = [start(1), start(2)]
            for turn in range(8):
                # The leader is killed in the middle of its run; the other one takes over.
                await cluster.run_for(timedelta(seconds=85))
                leader = next(i for i, (updater, _) in enumerate(running) if updater.leading)
                assert sum(updater.leading for updater, _ in running) == 1
                await stop([running[leader][1]])
                running[leader] = start(10 + turn)
            await cluster.run_for(20 * MINUTE)
            await stop([task for _, task in running])
        evicted = Counter(pod for _, pod in seen.evictions)
        assert max(evicted.values()) == 1
        assert len(seen.evictions) == 48
        requests = {p["spec"]["containers"][0]["resources"]["requests"]["cpu"] for p in ready_pods(cluster)}
        assert requests == {"300m"}

    run(main, nodes=8)


def test_the_budget_of_the_cluster_holds_over_restarts_of_everything() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        workloads, replicas = 60, 50
        for number in range(workloads):
            name = f"web-{number}"
            cluster.set_usage("default", name, cpu="20m", memory="32Mi")
            await cluster.apply(make_deployment(name, replicas=replicas, cpu="50m", memory="64Mi"))
            await cluster.apply(make_vpa(name, target=name))
        await cluster.run_for(2 * MINUTE)
        assert len(ready_pods(cluster)) == workloads * replicas
        seen = watch_disruptions(cluster)
        end_watches_after(cluster, timedelta(seconds=40))
        for turn, seconds in enumerate((190, 95, 150, 70, 150)):
            async with recommender(cluster, elect=True, seed=turn), vpa_parts(cluster, seed=turn):
                await cluster.run_for(timedelta(seconds=seconds))
        assert len(seen.evictions) > 200
        assert seen.most_in_a_minute() <= 60
        assert max(Counter(at for at, _ in seen.evictions).values()) <= 10
        assert max(Counter(pod for _, pod in seen.evictions).values()) == 1
        # What was evicted came back with what the recommender had found, and nothing was paused by the restarts.
        fitted = [p for p in ready_pods(cluster) if "vpaUpdates" in (p["metadata"].get("annotations") or {})]
        assert len(fitted) >= len(seen.evictions) - 60
        for number in range(workloads):
            condition = vpa_condition(cluster, f"web-{number}", "UpdatesPaused")
            assert condition is None or condition["reason"] == "ReplacementAwaited"

    # Coarse steps of the simulated kubelets: thousands of pods, and nothing here depends on their load.
    run(main, nodes=60, scenario="tick: 15s\nmetrics: {interval: 30s}")
