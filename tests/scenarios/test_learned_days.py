"""Days of learned sizes: a restart changes nothing, and switching on or off makes no jump."""

from itertools import pairwise
from typing import Any

import msgspec

from kubetide.api.objects.scheme import PODS
from kubetide.api.values.quantity import parse_quantity
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_vpa
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import pods, run
from simulated.learning import HOUR, MINUTE, SETTINGS, annotations, hours, prepared, web
from simulated.recommending import condition, recommended, recommender
from simulated.updating import install_crds, vpa_parts, watch_disruptions


def test_a_restart_every_hour_changes_no_recommendation() -> None:
    async def story(cluster: SimCluster, every: int) -> list[dict[str, int]]:
        await prepared(cluster)
        await web(cluster, "web", estimator="adaptive")
        found = []
        for start in range(0, 30, every):
            async with recommender(cluster, SETTINGS):
                found += await hours(cluster, start, every)
        return found

    results: list[list[dict[str, int]]] = []
    for every in (30, 1):

        async def main(cluster: SimCluster, every: int = every) -> None:
            results.append(await story(cluster, every))

        run(main, nodes=1)
    assert results[0] == results[1]


def test_switching_on_and_off_moves_in_small_steps_and_the_kill_switch_at_once() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepared(cluster)
        for name in ("web", "other"):
            await web(cluster, name)
        async with recommender(cluster, SETTINGS):
            plain = (await hours(cluster, 0, 26))[-1]["memory"]
            for name in ("web", "other"):
                await web(cluster, name, estimator="adaptive-one")
            rising = await hours(cluster, 26, 14)
            learned = rising[-1]["memory"]
            gap = abs(learned - plain)
            assert gap > 0.05 * plain
            assert largest_step(plain, rising) < 0.2 * gap
            await web(cluster, "web")
            await web(cluster, "other", estimator="adaptive-one", learned="off")
            await cluster.run_for(10 * MINUTE)
            assert abs(recommended(cluster, "default", "other")["memory"] - plain) < 0.1 * gap
            assert abs(recommended(cluster, "default", "web")["memory"] - learned) < 0.1 * gap
            assert condition(cluster, "default", "other", "AdaptiveEstimator")["reason"] == "KillSwitch"
            # Who then asks for the plain rule has it already: nothing learned comes back on the way.
            await web(cluster, "other")
            await cluster.run_for(10 * MINUTE)
            assert abs(recommended(cluster, "default", "other")["memory"] - plain) < 0.1 * gap
            assert condition(cluster, "default", "other", "AdaptiveEstimator") == {}
            falling = await hours(cluster, 40, 15)
            assert largest_step(learned, falling) < 0.2 * gap
            assert falling[-1]["memory"] == recommended(cluster, "default", "other")["memory"]
            assert condition(cluster, "default", "web", "AdaptiveEstimator") == {}

    run(main, nodes=1)


def largest_step(start: int, path: list[dict[str, int]]) -> int:
    amounts = [start, *(each["memory"] for each in path)]
    return max(abs(after - before) for before, after in pairwise(amounts))


def test_cpu_follows_its_container_in_place_and_a_new_pod_gets_its_limit_apart() -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await prepared(cluster)
        made = make_vpa("web", target="web", mode="InPlaceOrRecreate")
        made["metadata"]["annotations"] = {"kubetide.io/estimator": "adaptive"}
        await cluster.apply(made)
        seen, requests = watch_disruptions(cluster), []
        settings = UpdaterSettings(interval=5 * MINUTE)
        async with recommender(cluster, SETTINGS), vpa_parts(cluster, settings):
            for day in range(2):
                # Calm for half a day, then busy: each lasts far longer than an hour.
                for usage in ("200m", "900m"):
                    cluster.set_usage("default", "web", cpu=usage, memory="320Mi")
                    await cluster.run_for(6 * HOUR)
                    requests.append((day, [_resources(pod)["requests"]["cpu"] for pod in pods(cluster)]))
            calm, busy = [[parse_quantity(text).milli for text in found] for day, found in requests if day == 1]
            assert max(calm) < 0.75 * min(busy)
            assert min(busy) > 800
            evicted = len(seen.evictions)
            assert len(seen.resizes) > 4
            await cluster.client().delete(PODS, pods(cluster)[0]["metadata"]["name"], namespace="default")
            await cluster.run_for(10 * MINUTE)
            newest = max(pods(cluster), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
            limits = msgspec.json.decode(annotations(cluster)["kubetide.io/memory-limits"])
            assert parse_quantity(_resources(newest)["limits"]["memory"]).value == int(limits["main"])
            assert evicted == 0

    run(main, nodes=1)


def _resources(pod: dict[str, Any]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = pod["spec"]["containers"][0]["resources"]
    return found
