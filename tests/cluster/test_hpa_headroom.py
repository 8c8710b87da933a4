"""Learned headroom on a whole cluster in virtual time: silent at first, then ahead of a rush that comes every hour."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.scheme import DEPLOYMENTS
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Step
from kubetide.errors import Unavailable
from kubetide.hpa.explain import render
from kubetide.hpa.headroom.store import NO_DEMAND
from kubetide.hpa.settings import HpaSettings
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import HPAS, Running, autoscaler
from simulated.cluster import events, run

HOURS = 3
RUSH = 1800.0
"""Seconds into every hour at which the load jumps for ten minutes."""
CURVE = Step(
    tuple(point for hour in range(HOURS) for point in ((hour * 3600 + RUSH, 240.0), (hour * 3600 + RUSH + 600, 40.0))),
    initial=40.0,
)
Sizes = list[tuple[float, int]]


def followed(annotation: str | None, learned: str = "on") -> tuple[Sizes, list[dict[str, Any]]]:
    """Run three hours; return the sizes and what `explain` said about headroom once an hour."""

    async def main(cluster: SimCluster) -> tuple[Sizes, list[dict[str, Any]]]:
        await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="64Mi"))
        made = make_hpa("web", maximum=20, minimum=1, cpu_percent=80)
        if annotation is not None:
            made["metadata"]["annotations"] = {"kubetide.io/hpa-headroom": annotation, "kubetide.io/learned": learned}
        await cluster.apply(made)
        cluster.set_load("default", "web", CURVE)
        traces: list[dict[str, Any]] = []
        async with autoscaler(cluster) as running:
            sizes: Sizes = []
            for _ in range(HOURS):
                sizes += await running.follow(timedelta(hours=1), "default", "web")
                traces.append(running.controller.explain("hpa", "default/web") or {})
        return sizes, traces

    return run(main, nodes=6)


def grown_at(sizes: Sizes, hour: int) -> float:
    """Return how long after the rush of an hour began the target had four pods or more asked for."""
    rush = hour * 3600 + RUSH
    return next(at for at, size in sizes if at > rush - 600 and size >= 4) - rush


def at_rest(sizes: Sizes, hour: int) -> int:
    """Return the size twenty-five minutes into an hour, long after the rush before."""
    return [size for at, size in sizes if at <= hour * 3600 + 1500][-1]


def test_headroom_is_silent_then_ahead_of_the_rush_and_never_below_the_plain_rule() -> None:
    plain, _ = followed(None)
    sizes, traces = followed("learned")
    assert grown_at(plain, HOURS - 1) > 0
    assert [one for one in sizes if one[0] < 3600] == [one for one in plain if one[0] < 3600]
    assert [trace["headroom"]["proven"] for trace in traces] == [False, True, True]
    assert grown_at(sizes, HOURS - 1) < 0
    assert all(at_rest(sizes, hour) >= at_rest(plain, hour) for hour in range(HOURS))
    assert max(size for _, size in sizes) <= 20


def test_the_kill_switch_leaves_the_plain_rule_alone() -> None:
    plain, _ = followed(None)
    sizes, traces = followed("learned-below", learned="off")
    assert sizes == plain
    assert not any(trace.get("headroom") for trace in traces)
    assert "Headroom    the plain rule holds: annotation kubetide.io/learned: off" in render(traces[-1])


def test_the_flag_forbids_everything_learned_and_explain_names_it() -> None:
    async def main(cluster: SimCluster) -> None:
        await calm_web(cluster, {})
        async with autoscaler(cluster, HpaSettings(learned=False)) as running:
            await cluster.run_for(timedelta(minutes=2))
            told = running.controller.explain("hpa", "default/web") or {}
            assert told["headroom"] is None
            assert "the plain rule holds: --learned=false" in render(told)
        async with autoscaler(cluster, seed=1) as running:
            await cluster.run_for(timedelta(minutes=2))
            await cluster.client().patch(DEPLOYMENTS, "web", MergePatch({"spec": {"replicas": 0}}), namespace="default")
            await cluster.run_for(timedelta(minutes=1))
            told = running.controller.explain("hpa", "default/web") or {}
            assert told["headroomSilent"] == NO_DEMAND

    run(main, nodes=2)


def test_where_it_may_go_below_it_gives_back_what_the_plain_rule_keeps() -> None:
    sizes, traces = followed("learned-below")
    last = traces[-1]["headroom"]
    assert last["proven"]
    assert last["cost"] < last["plainCost"]
    assert grown_at(sizes, HOURS - 1) < 0
    assert sizes[-1][1] == 1


def test_taking_the_annotation_away_brings_the_plain_rule_back_at_once() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="64Mi"))
        made = make_hpa("web", maximum=20, minimum=1, cpu_percent=80)
        made["metadata"]["annotations"] = {"kubetide.io/hpa-headroom": "learned"}
        await cluster.apply(made)
        cluster.set_load("default", "web", 40.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=2))
            assert (running.controller.explain("hpa", "default/web") or {})["headroom"]["mode"] == "learned"
            made["metadata"]["annotations"] = {"kubetide.io/hpa-headroom": "off"}
            await cluster.apply(made)
            await cluster.run_for(timedelta(seconds=1))
            assert (running.controller.explain("hpa", "default/web") or {})["headroom"] is None
            made["metadata"]["annotations"] = {"kubetide.io/hpa-headroom": "learned", "kubetide.io/learned": "off"}
            await cluster.apply(made)
            await cluster.run_for(timedelta(minutes=1))
            assert [event["message"] for event in events(cluster, reason="HeadroomChanged")] == [
                "learned headroom: off",
                "learned headroom: off, by annotation kubetide.io/learned: off",
            ]

    run(main, nodes=2)


STATE = "kubetide.io/hpa-headroom-state"


async def calm_web(cluster: SimCluster, annotations: dict[str, str]) -> None:
    await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="64Mi"))
    made = make_hpa("web", maximum=20, minimum=1, cpu_percent=80)
    made["metadata"]["annotations"] = {"kubetide.io/hpa-headroom": "learned", **annotations}
    await cluster.apply(made)
    cluster.set_load("default", "web", 40.0)


def annotations_of(cluster: SimCluster) -> dict[str, str]:
    found = cluster.world.get(HPAS, StoreKey("default", "web"))
    assert found is not None
    return dict(found["metadata"]["annotations"])


def cost_of(running: Running) -> float:
    return float((running.controller.explain("hpa", "default/web") or {})["headroom"]["cost"])


def test_a_new_leader_goes_on_from_what_the_last_one_saved() -> None:
    async def main(cluster: SimCluster) -> None:
        await calm_web(cluster, {})
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=59))
            assert STATE not in annotations_of(cluster)
            await cluster.run_for(timedelta(minutes=2))
            assert len(annotations_of(cluster)[STATE]) < 4096
            # Other bounds are no reason to forget.
            hours = running.controller.explain("hpa", "default/web") or {}
            wider = make_hpa("web", maximum=30, minimum=1, cpu_percent=80)
            wider["metadata"]["annotations"] = annotations_of(cluster)
            await cluster.apply(wider)
            await cluster.run_for(timedelta(minutes=1))
            learned = cost_of(running)
            assert learned == pytest.approx(hours["headroom"]["cost"], rel=0.05)
            # Our own write is not a wish: it must not make the controller look again at once.
            turns = running.counted("horizontal_pod_autoscaler_controller_reconciliations_total")
            await cluster.run_for(timedelta(minutes=1))
            assert running.counted("horizontal_pod_autoscaler_controller_reconciliations_total") - turns <= 5
        async with autoscaler(cluster, seed=1) as again:
            await cluster.run_for(timedelta(seconds=20))
            trace = again.controller.explain("hpa", "default/web") or {}
            assert trace["headroom"]["cost"] == pytest.approx(learned, rel=0.02)
            assert set(trace["headroom"]["forecasters"]) >= {"last", "trend", "mean"}

    run(main, nodes=2)


@pytest.mark.parametrize("state", ["", "{", "[]", "{}", '{"mode":"learned","lead":2}', "[" * 5000])
def test_state_that_cannot_be_used_is_replaced(state: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await calm_web(cluster, {STATE: state})
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=61))
            assert running.replicas("default", "web") == 2
            assert annotations_of(cluster)[STATE] != state

    run(main, nodes=2)


def test_a_refused_save_is_survived_and_tried_again_an_hour_later() -> None:
    async def main(cluster: SimCluster) -> None:
        await calm_web(cluster, {})
        refused: list[str] = []

        def interfere(method: str, path: str) -> Exception | None:
            if method != "PATCH" or "horizontalpodautoscalers" not in path or cluster.elapsed() > 5400:
                return None
            refused.append(path)
            return Unavailable("made up: connection reset")

        async with autoscaler(cluster, interfere=interfere) as running:
            await cluster.run_for(timedelta(minutes=65))
            assert refused
            assert STATE not in annotations_of(cluster)
            assert running.condition("default", "web", "ScalingActive")[0] == "True"
            await cluster.run_for(timedelta(minutes=60))
            assert STATE in annotations_of(cluster)

    run(main, nodes=2)
