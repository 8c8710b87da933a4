"""What users of VPAs have asked for: each with the trouble as it is upstream, and the cure."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from kubetide.api.objects.scheme import NODES
from kubetide.api.values.patch import MergePatch
from kubetide.api.values.quantity import parse_quantity, readable
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import SettingsError
from kubetide.testing.builders import (
    make_cron_job,
    make_daemon_set,
    make_deployment,
    make_limit_range,
    make_quota,
    make_vpa,
)
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.explain import render
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.vpa.updater.explain import render as render_pod
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import events, pods, ready_pods, run
from simulated.gated import by_node, run_all, two_pools
from simulated.recommending import condition, recommended, recommender
from simulated.updating import install_crds, recommend, vpa_parts, watch_disruptions

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
MIB = 2**20
SLOW = RecommenderSettings(interval=timedelta(minutes=5))


@pytest.mark.parametrize(
    ("windows", "evicted"),
    [
        pytest.param(None, {11}, id="upstream-evicts-at-noon"),
        pytest.param("0 14 * * * 1h", {14}, id="in-the-window"),
        pytest.param("0 14 * *", set(), id="a-window-nobody-can-read-never-opens"),
    ],
)
def test_pods_are_evicted_in_maintenance_windows_alone(windows: str | None, evicted: set[int]) -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply(make_deployment("web", replicas=3, cpu="100m", memory="128Mi"))
        vpa = make_vpa("web", target="web")
        if windows is not None:
            vpa["metadata"]["annotations"] = {"kubetide.io/update-windows": windows}
        await cluster.apply(vpa)
        await cluster.run_for(MINUTE)
        await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, UpdaterSettings(interval=5 * MINUTE)) as running:
            await cluster.run_for(30 * MINUTE)
            if windows is not None:
                explained = running.updater.explain("pod", f"default/{pods(cluster)[0]['metadata']['name']}")
                assert explained is not None
                assert "kubetide.io/update-windows" in str(explained)
            found = events(cluster, reason="InvalidAnnotation")
            told = [(one["involvedObject"]["name"], one["count"]) for one in found]
            assert told == ([("web", 1)] if windows == "0 14 * *" else [])
            await cluster.run_for(4 * HOUR)
        assert {at.hour for at, _ in seen.evictions} == evicted
        assert len(seen.evictions) == (3 if evicted else 0)

    run(main, nodes=2, start=datetime(2026, 1, 5, 11, 0, tzinfo=UTC))


@pytest.mark.parametrize("only_up", [False, True], ids=["upstream-shrinks", "only-up"])
def test_memory_that_may_only_rise_does_not_shrink_after_a_calm_day(only_up: bool) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        vpa = make_vpa("web", target="web", mode="Off")
        if only_up:
            vpa["metadata"]["annotations"] = {"kubetide.io/scale-up-only": "memory"}
        await cluster.apply(vpa)
        settings = msgspec.structs.replace(
            SLOW, memory_aggregation_interval=HOUR, memory_histogram_decay_half_life=HOUR
        )
        cluster.set_usage("default", "web", cpu="400m", memory="800Mi")
        async with recommender(cluster, settings):
            await cluster.run_for(2 * HOUR)
            high = recommended(cluster, "default", "web")
        cluster.set_usage("default", "web", cpu="50m", memory="300Mi")
        async with recommender(cluster, settings) as running:
            await cluster.run_for(8 * HOUR)
            low = recommended(cluster, "default", "web")
            explained = running.recommender.explain("vpa", "default/web")
        assert explained is not None
        assert ("  only rises (kubetide.io/scale-up-only): memory\n" in render(explained)) == only_up
        assert low["memory"] == high["memory"] if only_up else low["memory"] < 0.6 * high["memory"]

    run(main, nodes=1)


def test_a_misspelt_resource_keeps_everything_up_and_is_named() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        vpa = make_vpa("web", target="web", mode="Off")
        vpa["metadata"]["annotations"] = {"kubetide.io/scale-up-only": "ram"}
        await cluster.apply(vpa)
        async with recommender(cluster, SLOW):
            await cluster.run_for(10 * MINUTE)
            told = [event["message"] for event in events(cluster, reason="InvalidTuning")]
            assert told == ["annotation kubetide.io/scale-up-only: 'ram' is not cpu, memory or both"]

    run(main, nodes=1)


@pytest.mark.parametrize(("ratio", "enough"), [(1.0, False), (1.5, True)], ids=["upstream", "a-lower-bound"])
def test_cpu_at_its_limit_is_taken_for_a_lower_bound(ratio: float, enough: bool) -> None:
    async def main(cluster: SimCluster) -> None:
        limited = make_deployment("web", replicas=1, cpu="200m", memory="128Mi", limits={"cpu": "200m"})
        await cluster.apply(limited)
        await cluster.apply(make_vpa("web", target="web", mode="Off"))
        # It wants a third more than it may have.
        cluster.set_usage("default", "web", cpu="280m", memory="64Mi")
        settings = msgspec.structs.replace(SLOW, throttled_cpu_bump_up_ratio=ratio)
        async with recommender(cluster, settings) as running:
            await cluster.run_for(2 * HOUR)
            assert (recommended(cluster, "default", "web")["cpu"] >= 280) == enough
            assert (running.counted("kubetide_recommender_throttled_samples_total") > 0) == enough
            explained = running.recommender.explain("vpa", "default/web")
            assert explained is not None
            assert ("cpu throttled in 1, which count as lower bounds" in render(explained)) == enough

    run(main, nodes=1)


def test_a_heap_that_gives_nothing_back_is_named_and_forgiven_when_it_does() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("jvm", replicas=1, cpu="100m", memory="2Gi"))
        await cluster.apply(make_deployment("calm", replicas=1, cpu="100m", memory="2Gi"))
        await cluster.apply([make_vpa(name, target=name, mode="Off") for name in ("jvm", "calm")])
        cluster.set_usage("default", "calm", cpu="50m", memory="500Mi")
        settings = msgspec.structs.replace(SLOW, interval=timedelta(minutes=15), never_shrinking_condition=True)
        async with recommender(cluster, settings) as running:
            for hour in range(26):
                cluster.set_usage("default", "jvm", cpu="50m", memory=f"{400 + 20 * min(hour, 10)}Mi")
                await cluster.run_for(HOUR)
            told = condition(cluster, "default", "jvm", "MemoryNeverShrinks")
            assert told["message"].startswith("container main has taken 6")
            explained = running.recommender.explain("vpa", "default/jvm")
            assert explained is not None
            assert f"MemoryNeverShrinks=True (KeepsItsHeap: {told['message']})" in render(explained)
            assert condition(cluster, "default", "calm", "MemoryNeverShrinks") == {}
            cluster.set_usage("default", "jvm", cpu="50m", memory="450Mi")
            await cluster.run_for(HOUR)
            assert condition(cluster, "default", "jvm", "MemoryNeverShrinks") == {}

    run(main, nodes=1)


@pytest.mark.parametrize("by_owner", [False, True], ids=["upstream-keeps-every-run", "one-history"])
def test_runs_of_a_cron_job_add_up_to_one_history(by_owner: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not by_owner:
        monkeypatch.setattr(Model, "fold_departed", lambda model, now: [])

    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_cron_job("nightly", schedule="*/30 * * * *", cpu="100m", memory="128Mi"))
        profile = cluster.model.profile_of(("default", "nightly"))
        cluster.set_profile("default", "nightly", replace(profile, cpu_steady=0.4, memory_base=300.0 * MIB, work=120.0))
        await cluster.apply(make_vpa("nightly", target="nightly", kind="CronJob", api_version="batch/v1", mode="Off"))
        async with recommender(cluster, RecommenderSettings()) as running:
            await cluster.run_for(5 * HOUR)
            explained = running.recommender.explain("vpa", "default/nightly")
            assert explained is not None
            (container,) = explained["containers"]
            assert container["samples"] > 10
            # Ten runs; those of the last hour may still be there.
            assert (explained["aggregates"] < 9) == by_owner
            assert recommended(cluster, "default", "nightly")["memory"] > 300 * MIB

    run(main, nodes=1)


@pytest.mark.parametrize(
    ("mode", "by", "cpu", "why"),
    [
        pytest.param("Recreate", None, "100m", "fewer than the minimum", id="upstream-leaves-it-alone"),
        pytest.param("Recreate", "rollout", "300m", "", id="a-rollout-surges-first"),
        pytest.param("InPlaceOrRecreate", "rollout", "300m", "", id="where-it-is-too-few-for-in-place-too"),
        pytest.param("Recreate", "magic", "100m", "kubetide.io/update-by", id="what-nobody-knows-is-named"),
    ],
)
def test_a_single_replica_is_replaced_without_a_gap(mode: str, by: str | None, cpu: str, why: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply(make_deployment("web", replicas=1, cpu="100m", memory="128Mi"))
        vpa = make_vpa("web", target="web", mode=mode)
        if by is not None:
            vpa["metadata"]["annotations"] = {"kubetide.io/update-by": by}
        await cluster.apply(vpa)
        cluster.set_usage("default", "web", cpu="50m", memory="64Mi")
        await cluster.run_for(15 * MINUTE)
        await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"})
        seen, least = watch_disruptions(cluster), 9
        async with vpa_parts(cluster) as running:
            for _ in range(30):
                await cluster.run_for(20 * SECOND)
                least = min(least, len(ready_pods(cluster, "default")))
            (pod,) = ready_pods(cluster, "default")
            assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == cpu
            assert why in str(running.updater.explain("pod", f"default/{pod['metadata']['name']}"))
            assert len(events(cluster, reason="RolledOut")) == (by == "rollout")
            told = [one["message"] for one in events(cluster, reason="InvalidAnnotation")]
            wrong = "annotation kubetide.io/update-by: 'magic' is neither eviction nor rollout"
            assert told == ([wrong] if by == "magic" else [])
        assert (least, seen.evictions) == (1, [])

    run(main, nodes=1)


@pytest.mark.parametrize("by_group", [False, True], ids=["upstream-one-size-for-all", "by-group-of-nodes"])
def test_a_daemon_set_fits_its_small_nodes_too(by_group: bool) -> None:
    async def main(cluster: SimCluster) -> None:
        await two_pools(cluster)
        await run_all(cluster, ["DaemonSetScope"] if by_group else [], 40 * MINUTE)
        offers = {"large-1": 8000, "small-1": 2000, "other-1": 1000}
        fits = {node for node, asked in by_node(cluster).items() if asked <= offers[node]}
        assert fits == (set(offers) if by_group else {"large-1"})

    run(main)


@pytest.mark.parametrize("by_policy", [False, True], ids=["upstream-keeps-the-proportion", "as-the-policy-says"])
def test_a_limit_does_not_grow_beyond_reason_with_its_request(by_policy: bool) -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        # A small request with a generous limit, as people write it before anything is known.
        await cluster.apply(make_deployment("web", replicas=2, cpu="100m", memory="128Mi", cpu_limit="2"))
        ratio = {"cpu": {"type": "Percentage", "percentage": 150}}
        policy = {"containerName": "*", "requestToLimitRatio": ratio}
        await cluster.apply(make_vpa("web", target="web", mode="Recreate", policies=[policy]))
        cluster.set_usage("default", "web", cpu="900m", memory="64Mi")
        await cluster.run_for(MINUTE)
        await run_all(cluster, ["RequestToLimitRatio"] if by_policy else [], 20 * MINUTE)
        updater = UpdaterSettings(feature_gates=("RequestToLimitRatio=true",) if by_policy else ())
        async with vpa_parts(cluster, updater) as running:
            await cluster.run_for(2 * MINUTE)
            explained = running.updater.explain("pod", f"default/{pods(cluster)[0]['metadata']['name']}")
            assert explained is not None
            limit = explained["containers"][0]["limits"]["cpu"]
            assert f"    with limits cpu {readable('cpu', limit)}" in render_pod(explained)
        for pod in ready_pods(cluster, "default"):
            own = pod["spec"]["containers"][0]["resources"]
            times = parse_quantity(own["limits"]["cpu"]).milli / parse_quantity(own["requests"]["cpu"]).milli
            assert parse_quantity(own["requests"]["cpu"]).milli > 900
            assert times == pytest.approx(1.5 if by_policy else 20.0, rel=0.01)
            assert own["limits"]["cpu"] == limit

    run(main, nodes=2)


@pytest.mark.parametrize(
    ("kind", "label", "why"),
    [
        pytest.param("DaemonSet", "node pool", "must be a label key", id="no-label"),
        pytest.param("Deployment", "pool", "only pods of a DaemonSet can be sized by node", id="no-daemon-set"),
    ],
)
def test_groups_that_cannot_be_are_named_and_all_pods_stay_one_size(kind: str, label: str, why: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(
            make_daemon_set("web", cpu="100m", memory="64Mi")
            if kind == "DaemonSet"
            else make_deployment("web", cpu="100m", memory="64Mi")
        )
        vpa = make_vpa("web", target="web", kind=kind, mode="Off")
        vpa["metadata"]["annotations"] = {"kubetide.io/vpa-scope": label}
        await cluster.apply(vpa)
        settings = msgspec.structs.replace(SLOW, feature_gates=("DaemonSetScope=true",))
        async with recommender(cluster, settings):
            await cluster.run_for(20 * MINUTE)
            (told,) = [event["message"] for event in events(cluster, reason="InvalidTuning")]
            assert told.startswith(f"annotation kubetide.io/vpa-scope: {why}")
            assert recommended(cluster, "default", "web")["cpu"] > 0

    run(main, nodes=1)


@pytest.mark.parametrize("ceilings", [(), ("quotas",)], ids=["upstream-loses-a-pod", "within-the-quota"])
def test_a_quota_without_room_does_not_cost_a_pod(ceilings: tuple[str, ...]) -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply(make_quota("compute", hard={"requests.memory": "2Gi"}))
        await cluster.apply(make_deployment("web", replicas=3, cpu="100m", memory="512Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        cluster.set_usage("default", "web", cpu="50m", memory="900Mi")
        settings = msgspec.structs.replace(SLOW, ceilings=ceilings)
        async with recommender(cluster, settings) as running, vpa_parts(cluster, UpdaterSettings(interval=5 * MINUTE)):
            await cluster.run_for(75 * MINUTE)
            explained = running.recommender.explain("vpa", "default/web")
        asked = recommended(cluster, "default", "web")["memory"]
        ready = ready_pods(cluster, "default")
        if not ceilings:
            assert len(ready) == 2
            assert 3 * asked > 2 * 2**30
            return
        sizes = {pod["spec"]["containers"][0]["resources"]["requests"]["memory"] for pod in ready}
        assert len(ready) == 3
        assert {parse_quantity(size).value for size in sizes} == {asked}
        assert 0 <= 2 * 2**30 - 3 * asked < 3
        assert recommended(cluster, "default", "web", bound="uncappedTarget")["memory"] > 1000 * MIB
        told = condition(cluster, "default", "web", "RecommendationCapped")
        assert told["message"].startswith("memory of main is held at 68")
        assert told["message"].endswith("by quota compute")
        assert explained is not None
        assert f"  {told['message']}\n" in render(explained)

    run(main, nodes=2)


@pytest.mark.parametrize("ceilings", [(), ("nodes",)], ids=["upstream-waits-for-ever", "as-large-as-a-node"])
def test_no_pod_grows_beyond_the_nodes_that_take_it(ceilings: tuple[str, ...]) -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        for number in range(3):
            cluster.add_node(f"small-{number}", cpu="4")
        # A node that would be large enough takes no more pods.
        cluster.add_node("large", cpu="16")
        await cluster.client().patch(NODES, "large", MergePatch({"spec": {"unschedulable": True}}))
        await cluster.apply(make_deployment("web", replicas=3, cpu="500m", memory="128Mi"))
        await cluster.apply(make_vpa("web", target="web"))
        cluster.set_usage("default", "web", cpu="3900m", memory="64Mi")
        settings = msgspec.structs.replace(SLOW, ceilings=ceilings)
        async with recommender(cluster, settings), vpa_parts(cluster, UpdaterSettings(interval=5 * MINUTE)):
            await cluster.run_for(75 * MINUTE)
        asked = recommended(cluster, "default", "web")["cpu"]
        assert len(ready_pods(cluster, "default")) == (3 if ceilings else 2)
        assert (asked <= 4000) == bool(ceilings)
        told = condition(cluster, "default", "web", "RecommendationCapped")
        assert told.get("message", "").endswith("by the largest node for its pods" if ceilings else "")

    run(main)


@pytest.mark.parametrize("ceilings", [(), ("limit-ranges",)], ids=["upstream-promises-more", "what-pods-will-get"])
def test_a_recommendation_promises_no_more_than_limit_ranges_allow(ceilings: tuple[str, ...]) -> None:
    async def main(cluster: SimCluster) -> None:
        await install_crds(cluster)
        await cluster.apply(make_limit_range("bounds", "default", {"type": "Container", "max": {"memory": "600Mi"}}))
        limited = make_deployment("web", replicas=2, cpu="100m", memory="256Mi", limits={"memory": "512Mi"})
        await cluster.apply(limited)
        await cluster.apply(make_vpa("web", target="web"))
        cluster.set_usage("default", "web", cpu="50m", memory="400Mi")
        settings = msgspec.structs.replace(SLOW, ceilings=ceilings)
        async with recommender(cluster, settings), vpa_parts(cluster, UpdaterSettings(interval=5 * MINUTE)):
            await cluster.run_for(75 * MINUTE)
        asked = recommended(cluster, "default", "web")["memory"]
        for pod in ready_pods(cluster, "default"):
            got = pod["spec"]["containers"][0]["resources"]["requests"]["memory"]
            assert (parse_quantity(got).value == asked) == bool(ceilings)
        told = condition(cluster, "default", "web", "RecommendationCapped")
        assert bool(told) == bool(ceilings)

    run(main, nodes=1)


def test_a_ceiling_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="'shelf' is not one of nodes, limit-ranges, quotas"):
        RecommenderSettings(ceilings=("shelf",)).checked()
