"""Containers that run out of memory under the recommender, in virtual time: each kill counts, and counts once."""

from datetime import timedelta

import pytest

from kubetide.api.objects.scheme import PODS, VPA_CHECKPOINTS
from kubetide.api.values.patch import JsonPatch, MergePatch
from kubetide.embedded.apiserver.faults import Faults
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.stats.instants import ZERO_TIME
from kubetide.testing.builders import make_vpa
from kubetide.vpa.core.grown import GROWN, Grown, grown_text
from kubetide.vpa.recommender.explain import render
from kubetide.vpa.recommender.learn import Learner
from simulated.cluster import pods, run
from simulated.recommending import recommended, recommender

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
MIB = 1024 * 1024
LEAKY = """
tick: 30s
nodes:
- {name: node, count: 2, cpu: "8", memory: 32Gi}
workloads:
- name: leaky
  replicas: 1
  requests: {cpu: 100m, memory: 256Mi}
  limits: {memory: 256Mi}
  memory: {base: 100Mi, leak-per-hour: 200Mi}
"""


def _restarts(cluster: SimCluster) -> int:
    return sum(
        status.get("restartCount", 0)
        for pod in pods(cluster)
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
    )


def test_a_leak_that_runs_out_of_memory_raises_the_recommendation_and_it_stays_up() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("leaky", target="leaky", mode="Initial"))
        async with recommender(cluster) as running:
            await cluster.run_for(30 * MINUTE)
            before = recommended(cluster, "default", "leaky")["memory"]
            assert before < 300 * MIB
            await cluster.wait_for(lambda: _restarts(cluster) >= 1, timeout=6 * HOUR, every=MINUTE)
            await cluster.run_for(5 * MINUTE)
            after = recommended(cluster, "default", "leaky")["memory"]
            # Killed at a request of 256 MiB: at least 100 MiB more, plus the margin, in bucket steps.
            assert after >= 356 * MIB
            await cluster.run_for(3 * HOUR)
            assert recommended(cluster, "default", "leaky")["memory"] >= after
            assert running.counted("vpa_quality_mem_recommendations_bytes_count", is_oom="true") >= 1

    run(main, scenario=LEAKY)


def test_an_oom_while_nobody_watched_is_counted_once() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("leaky", target="leaky", mode="Initial"))
        async with recommender(cluster):
            await cluster.run_for(20 * MINUTE)
        await cluster.wait_for(lambda: _restarts(cluster) >= 1, timeout=6 * HOUR, every=MINUTE)
        async with recommender(cluster):
            await cluster.run_for(4 * MINUTE)
        raised = recommended(cluster, "default", "leaky")["memory"]
        assert raised >= 356 * MIB
        async with recommender(cluster):
            await cluster.run_for(4 * MINUTE)
        assert recommended(cluster, "default", "leaky")["memory"] == raised

    run(main, scenario=LEAKY)


def test_an_oom_kill_in_the_running_window_survives_a_checkpoint_of_upstream_which_leaves_it_out() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("leaky", target="leaky", mode="Initial"))
        async with recommender(cluster):
            await cluster.wait_for(lambda: _restarts(cluster) >= 1, timeout=6 * HOUR, every=MINUTE)
            await cluster.run_for(3 * MINUTE)
        raised = recommended(cluster, "default", "leaky")["memory"]
        assert raised >= 356 * MIB
        # What the original writes has no annotations.
        bare = JsonPatch([{"op": "remove", "path": "/metadata/annotations"}])
        await cluster.client().patch(VPA_CHECKPOINTS, "leaky-main", bare, namespace="default")
        async with recommender(cluster):
            await cluster.run_for(2 * MINUTE)
            assert recommended(cluster, "default", "leaky")["memory"] == raised

    run(main, scenario=LEAKY)


def test_an_oom_waits_for_the_checkpoint_that_may_know_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("leaky", target="leaky", mode="Initial"))
        async with recommender(cluster):
            await cluster.wait_for(lambda: _restarts(cluster) >= 1, timeout=6 * HOUR, every=MINUTE)
            await cluster.run_for(3 * MINUTE)
        cluster.api.faults = Faults(errors={"*": 1.0}, resources=frozenset({"verticalpodautoscalercheckpoints"}))
        taken = []
        async with recommender(cluster) as running:
            monkeypatch.setattr(Learner, "_take_oom", lambda self, oom, now: taken.append(oom))
            await cluster.run_for(10 * MINUTE)
            (pod,) = running.recommender.model.pods.values()
            row = pod.containers["main"]
            assert running.recommender.model.containers.last_memory[row] == ZERO_TIME
            cluster.api.faults = Faults()
            await cluster.run_for(4 * MINUTE)
            assert running.recommender.model.containers.last_memory[row] > ZERO_TIME
        assert taken == []

    run(main, scenario=LEAKY)


def test_memory_that_was_raised_before_an_oom_kill_is_learned_like_one_by_a_rule_of_its_own() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_vpa("leaky", target="leaky", mode="Initial"))
        async with recommender(cluster) as running:
            await cluster.run_for(10 * MINUTE)
            before = recommended(cluster, "default", "leaky")["memory"]
            (pod,) = pods(cluster)
            noted = grown_text({"main": Grown(240 * MIB, cluster.clock.now())})
            note = MergePatch({"metadata": {"annotations": {GROWN: noted}}})
            await cluster.client().patch(PODS, pod["metadata"]["name"], note, namespace="default")
            await cluster.run_for(3 * MINUTE)
            after = recommended(cluster, "default", "leaky")["memory"]
            assert after >= 340 * MIB > before
            trace = running.recommender.explain("vpa", "default/leaky")
            assert trace is not None
            assert "growth before an OOM kill" in render(trace)
            # Nothing was killed, and what was learned once is not learned again.
            assert running.counted("vpa_quality_mem_recommendations_bytes_count", is_oom="true") == 0
            await cluster.run_for(5 * MINUTE)
            assert recommended(cluster, "default", "leaky")["memory"] == after

    run(main, scenario=LEAKY)
