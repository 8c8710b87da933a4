"""Learned headroom that begins with past load from Prometheus, on a whole cluster in virtual time."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Step
from kubetide.errors import Unavailable
from kubetide.hpa.headroom.past_loads import PastLoads
from kubetide.hpa.settings import HpaSettings
from kubetide.stats.prometheus_ranges import PrometheusAnswer
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import HPAS, Running, autoscaler
from simulated.cluster import run

STATE = "kubetide.io/hpa-headroom-state"
LENGTH, HALF = timedelta(hours=6), timedelta(hours=3.1)
RUSH, CALM = 1800, 0.4
"""Seconds into every hour at which load begins to be six times as much for ten minutes; cores when it is calm."""


class PastPrometheus:
    """Answers range queries with the cores that an hourly rush took, where nothing is to fail."""

    def __init__(self, begun: float, fails: Callable[[int], Exception | None] = lambda asked: None) -> None:
        self.begun, self.fails = begun, fails
        self.forms: list[Mapping[str, str]] = []
        self.series = 1

    async def post(self, path: str, form: Mapping[str, str]) -> bytes:
        self.forms.append(form)
        if (problem := self.fails(len(self.forms))) is not None:
            raise problem
        times = range(int(form["start"]), int(form["end"]) + 1, int(form["step"]))
        values = [[at, str(CALM * (6 if RUSH <= (at - self.begun) % 3600 < RUSH + 600 else 1))] for at in times]
        result = [{"metric": {"n": str(n)}, "values": values} for n in range(self.series)]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


async def made(cluster: SimCluster, **annotations: str) -> None:
    """Make a deployment whose load jumps half an hour from now."""
    await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="64Mi"))
    hpa = make_hpa("web", maximum=20, minimum=1, cpu_percent=80)
    hpa["metadata"]["annotations"] = {"kubetide.io/hpa-headroom": "learned"} | {
        f"kubetide.io/{name.replace('_', '-')}": text for name, text in annotations.items()
    }
    await cluster.apply(hpa)
    cluster.set_load("default", "web", Step(((RUSH, 240.0), (RUSH + 600, 40.0)), initial=40.0))


def past_of(cluster: SimCluster, prometheus: PastPrometheus, length: timedelta = LENGTH) -> PastLoads:
    return PastLoads(prometheus, cluster.clock, Random(1), length)


def prometheus_of(cluster: SimCluster, fails: Callable[[int], Exception | None] = lambda asked: None) -> PastPrometheus:
    return PastPrometheus(cluster.clock.now().timestamp(), fails)


def explained(running: Running) -> dict[str, Any]:
    return dict((running.controller.explain("hpa", "default/web") or {})["headroom"])


def saved(cluster: SimCluster) -> dict[str, str]:
    found = cluster.world.get(HPAS, StoreKey("default", "web"))
    assert found is not None
    return dict(found["metadata"]["annotations"])


def test_a_new_autoscaler_is_ahead_of_its_first_rush_and_saves_what_the_past_taught() -> None:
    async def main(cluster: SimCluster) -> None:
        await made(cluster)
        prometheus = prometheus_of(cluster)
        async with autoscaler(cluster, past=past_of(cluster, prometheus)) as running:
            await cluster.run_for(timedelta(minutes=1))
            shown = explained(running)
            assert shown["origin"].startswith("from 6:0")
            assert shown["proven"]
            assert "hour" in shown["forecasters"]
            assert STATE in saved(cluster)
            sizes = await running.follow(timedelta(minutes=32), "default", "web")
            assert next(at for at, size in sizes if size >= 4) < RUSH
        asked = len(prometheus.forms)
        # A new leader has the state, and asks for no past.
        async with autoscaler(cluster, seed=1, past=past_of(cluster, prometheus)) as again:
            await cluster.run_for(timedelta(minutes=1))
            assert explained(again)["origin"] == "live, going on from what was saved"
        assert len(prometheus.forms) == asked

    run(main, nodes=6)


def test_an_outage_in_the_middle_is_gone_on_from_and_shown_meanwhile() -> None:
    async def main(cluster: SimCluster) -> None:
        await made(cluster)

        def fails(asked: int) -> Exception | None:
            return Unavailable("made up: away") if asked > 1 and cluster.elapsed() < 60 else None

        prometheus = prometheus_of(cluster, fails)
        # Steps of a second need two slices.
        settings, past = HpaSettings(sync_period=timedelta(seconds=1)), past_of(cluster, prometheus, HALF)
        async with autoscaler(cluster, settings, past=past) as running:
            await cluster.run_for(timedelta(seconds=59))
            assert explained(running)["origin"] == "live while the past is asked for: made up: away"
            await cluster.run_for(timedelta(minutes=1))
            assert explained(running)["origin"].startswith("from 3:")
        spans = [(int(form["start"]), int(form["end"])) for form in prometheus.forms]
        assert {start for start, _ in spans[1:-1]} == {spans[0][1] + 1}

    run(main, nodes=2)


@pytest.mark.parametrize(
    ("problem", "series", "reason"),
    [
        pytest.param(PrometheusAnswer("status 401: who are you"), 1, "live: status 401: who are you", id="refused"),
        pytest.param(None, 2, "live: the query for past load answers with 2 series, not with one", id="two-series"),
        pytest.param(None, 0, "live: Prometheus has no past load of this target", id="no-series"),
    ],
)
def test_what_prometheus_cannot_answer_is_learned_live_and_explained(
    problem: Exception | None, series: int, reason: str
) -> None:
    async def main(cluster: SimCluster) -> None:
        await made(cluster)
        prometheus = prometheus_of(cluster, lambda asked: problem)
        prometheus.series = series
        async with autoscaler(cluster, past=past_of(cluster, prometheus)) as running:
            await cluster.run_for(timedelta(minutes=2))
            assert explained(running)["origin"] == reason
            assert not explained(running)["proven"]
            asked = len(prometheus.forms)
            await cluster.run_for(timedelta(minutes=5))
            assert len(prometheus.forms) == asked

    run(main, nodes=2)


def test_a_prometheus_that_stays_away_is_given_up_after_an_hour() -> None:
    async def main(cluster: SimCluster) -> None:
        await made(cluster)
        prometheus = prometheus_of(cluster, lambda asked: Unavailable("made up: away"))
        async with autoscaler(cluster, past=past_of(cluster, prometheus)) as running:
            await cluster.run_for(timedelta(minutes=50))
            assert explained(running)["origin"] == "live while the past is asked for: made up: away"
            await cluster.run_for(timedelta(minutes=20))
            assert explained(running)["origin"] == "live: made up: away"
            assert len(prometheus.forms) < 25

    run(main, nodes=2)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_query_of_the_user_is_asked_only_where_that_is_allowed(allowed: bool) -> None:
    async def main(cluster: SimCluster) -> None:
        await made(cluster, hpa_headroom_query="sum(load)")
        prometheus, settings = prometheus_of(cluster), HpaSettings(headroom_queries=allowed)
        async with autoscaler(cluster, settings, past=past_of(cluster, prometheus)):
            await cluster.run_for(timedelta(minutes=1))
        assert {form["query"] == "sum(load)" for form in prometheus.forms} == {allowed}

    run(main, nodes=2)


def test_what_nobody_wants_any_more_is_not_read_on() -> None:
    async def main(cluster: SimCluster) -> None:
        await made(cluster)
        prometheus = prometheus_of(cluster, lambda asked: Unavailable("made up: away"))
        async with autoscaler(cluster, past=past_of(cluster, prometheus)) as running:
            await cluster.run_for(timedelta(minutes=1))
            asked = len(prometheus.forms)
            assert asked
            await cluster.apply(make_hpa("web", maximum=20, minimum=1, cpu_percent=80))
            await cluster.run_for(timedelta(minutes=20))
            assert len(prometheus.forms) == asked
            assert (running.controller.explain("hpa", "default/web") or {})["headroom"] is None

    run(main, nodes=2)
