"""Learned sizes in a cluster: switched on and off without a jump, over restarts, with limits apart from requests."""

import msgspec

from kubetide.api.objects.scheme import VPA_CHECKPOINTS, VPAS
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_deployment
from kubetide.vpa.recommender.explain import render
from simulated.cluster import events, run
from simulated.learning import ADAPTIVE, MIB, MINUTE, SETTINGS, annotations, hours, prepared, web
from simulated.recommending import checkpoint, condition, recommended, recommender


def test_an_hour_of_history_is_enough_and_its_limit_stands_apart() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepared(cluster)
        await web(cluster)
        async with recommender(cluster, ADAPTIVE) as running:
            await cluster.run_for(10 * MINUTE)
            told_once = [event["message"] for event in events(cluster, reason="EstimatorChanged")]
            assert told_once == ["sizes by adaptive, by --estimator"]
            await hours(cluster, 0, 3)
            limits = msgspec.json.decode(annotations(cluster)["kubetide.io/memory-limits"])
            assert int(limits["main"]) > 1.5 * 340 * 2**20
            told = condition(cluster, "default", "web", "AdaptiveEstimator")
            assert (told["status"], told["reason"]) == ("True", "ByFlag")
            explained = running.recommender.explain("vpa", "default/web")
            assert explained is not None
            learned = explained["learned"]["containers"]["main"]
            assert learned["memory"]["numbers"] == 2
            assert abs(sum(rule["weight"] for rule in learned["cpu"]["rules"]) - 1.0) < 0.01

    run(main, nodes=1)


def test_a_limit_apart_stays_until_the_way_back_is_over_and_goes_at_once_with_the_kill_switch() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepared(cluster)
        await web(cluster, "web", estimator="adaptive")
        async with recommender(cluster, SETTINGS) as running:
            await hours(cluster, 0, 3)
            await web(cluster)
            await hours(cluster, 3, 6)
            # The request is still half the learned one: in proportion to it the limit would be below the peaks.
            assert "kubetide.io/memory-limits" in annotations(cluster)
            explained = running.recommender.explain("vpa", "default/web")
            assert explained is not None
            assert "sizes by vpa, by --estimator; on the way there in steps of an hour, now 58% learned" in render(
                explained
            )
            await web(cluster, "web", estimator="adaptive", learned="off")
            await cluster.run_for(10 * MINUTE)
            assert "kubetide.io/memory-limits" not in annotations(cluster)

    run(main, nodes=1)


def test_what_was_learned_goes_with_its_vpa() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepared(cluster)
        await web(cluster, "web", estimator="adaptive")
        async with recommender(cluster, SETTINGS) as running:
            await hours(cluster, 0, 2)
            assert checkpoint(cluster, "default", "web-main") is not None
            await cluster.client().delete(VPAS, "web", namespace="default")
            await cluster.run_for(30 * MINUTE)
            assert checkpoint(cluster, "default", "web-main") is None
            assert running.recommender.explain("vpa", "default/web") is None

    run(main, nodes=1)


def test_the_flag_that_forbids_everything_learned_wins_over_annotations() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepared(cluster)
        await web(cluster, "web", estimator="adaptive")
        await web(cluster, "plain")
        async with recommender(cluster, msgspec.structs.replace(SETTINGS, learned=False)):
            found = (await hours(cluster, 0, 4))[-1]
            assert found == recommended(cluster, "default", "plain")
            assert condition(cluster, "default", "web", "AdaptiveEstimator") == {}

    run(main, nodes=1)


def test_an_estimator_nobody_knows_is_named_and_the_flag_applies() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepared(cluster)
        await web(cluster, "web", estimator="oracle")
        async with recommender(cluster, SETTINGS) as running:
            await cluster.run_for(10 * MINUTE)
            told = events(cluster, reason="InvalidTuning")
            assert [event["message"] for event in told] == [
                "annotation kubetide.io/estimator: 'oracle' is none of vpa, adaptive, adaptive-one"
            ]
            assert condition(cluster, "default", "web", "AdaptiveEstimator") == {}
            # The event is gone after an hour, what is wrong is not.
            explained = running.recommender.explain("vpa", "default/web")
            assert explained is not None
            assert "  ! annotation kubetide.io/estimator: 'oracle' is none of" in render(explained)

    run(main, nodes=1)


def test_a_pod_whose_limit_is_its_request_keeps_one_number() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(
            make_deployment("web", replicas=2, cpu="500m", memory="512Mi", limits={"cpu": "500m", "memory": "512Mi"})
        )
        await web(cluster, "web", estimator="adaptive")
        async with recommender(cluster, SETTINGS) as running:
            await hours(cluster, 0, 3)
            explained = running.recommender.explain("vpa", "default/web")
            assert explained is not None
            # Mode Off is decided once a day, and this day is not over.
            assert "    cpu     the plain target, until the day (UTC) has ended" in render(explained)
            assert explained["learned"]["containers"]["main"]["memory"]["numbers"] == 1
            assert "kubetide.io/memory-limits" not in annotations(cluster)
            assert recommended(cluster, "default", "web")["memory"] >= 340 * MIB

    run(main, nodes=1)


def test_an_unreadable_state_is_reported_and_learning_begins_anew() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepared(cluster)
        await web(cluster, "web", estimator="adaptive-one")
        async with recommender(cluster, SETTINGS):
            await hours(cluster, 0, 2)
        stored = checkpoint(cluster, "default", "web-main")
        assert stored is not None
        state = stored["metadata"]["annotations"]["kubetide.io/adaptive-state"]
        assert len(state) < 2500
        broken = {"metadata": {"annotations": {"kubetide.io/adaptive-state": state[:40]}}}
        await cluster.client().patch(VPA_CHECKPOINTS, "web-main", MergePatch(broken), namespace="default")
        async with recommender(cluster, SETTINGS):
            await cluster.run_for(10 * MINUTE)
            assert "learning begins anew" in events(cluster, reason="InvalidTuning")[0]["message"]
            await hours(cluster, 2, 2)
            assert recommended(cluster, "default", "web")["memory"] > 300 * MIB

    run(main, nodes=1)
