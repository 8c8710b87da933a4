"""A webhook that does not do its work costs a workload two evictions, not one every minute."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.rest.watching import WatchPlan
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import Unavailable
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.admission.settings import AdmissionSettings
from simulated.cluster import events, ready_pods, run
from simulated.updating import install_crds, recommend, vpa_condition, vpa_parts, watch_disruptions

MINUTE = timedelta(minutes=1)
WITHOUT_PROBE = AdmissionSettings(local_name="vpa", probe_webhook=False)

Raw = dict[str, Any]


async def prepare(cluster: SimCluster) -> None:
    await install_crds(cluster)
    await cluster.apply(make_deployment("web", replicas=4, cpu="100m", memory="128Mi"))
    await cluster.apply(make_vpa("web", target="web"))
    cluster.set_usage("default", "web", cpu="50m", memory="64Mi")
    await cluster.run_for(MINUTE)
    await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"})


async def patches_nothing(review: Raw) -> Raw:
    response = {"uid": review["request"]["uid"], "allowed": True}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


async def fails(review: Raw) -> Raw:
    raise Unavailable("the webhook is down")


class Moment:
    """Waits for a moment around an eviction, when something is to break: announced, done, so many seconds later."""

    def __init__(self, cluster: SimCluster, moment: str | float) -> None:
        self._cluster = cluster
        self._delay = 0.0 if isinstance(moment, str) else moment
        self._last = "status" if moment == "announced" else "eviction"
        self._come = asyncio.Event()
        self.times = 0
        handle = cluster.api.handle

        async def watching(request: Request) -> Answer | WatchPlan:
            answer = await handle(request)
            parts = request.path.split("/")
            if parts[-1] == self._last and "events" not in parts and request.method in ("POST", "PATCH"):
                self._come.set()
                if not self._delay:
                    # It dies before it hears the answer.
                    await asyncio.sleep(1)
            return answer

        cluster.api.handle = watching  # type: ignore[method-assign]

    async def wait(self, longest: timedelta) -> None:
        """Return when it has come, or when the time is over."""
        self._come.clear()
        try:
            async with asyncio.timeout(longest.total_seconds()):
                await self._come.wait()
        except TimeoutError:
            return
        self.times += 1
        await asyncio.sleep(self._delay)


@pytest.mark.parametrize("hook", [patches_nothing, fails])
def test_two_unchanged_replacements_pause_the_workload(hook: Any) -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, admission=WITHOUT_PROBE) as running:
            await cluster.run_for(timedelta(seconds=30))
            cluster.api.admission.register_local("vpa", hook)
            await cluster.run_for(40 * MINUTE)
            assert len(seen.evictions) == 2
            condition = running.condition("web", "UpdatesPaused")
            assert condition is not None
            assert (condition["status"], condition["reason"]) == ("True", "ReplacementsUnchanged")
            assert len(events(cluster, reason="UpdatesPaused")) == 1
            assert len(ready_pods(cluster, "default", app="web")) == 4

    run(main, nodes=2)


def test_a_pause_survives_a_restart_and_is_tried_once_an_hour() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, admission=WITHOUT_PROBE):
            await cluster.run_for(timedelta(seconds=30))
            cluster.api.admission.register_local("vpa", patches_nothing)
            await cluster.run_for(15 * MINUTE)
        assert len(seen.evictions) == 2
        async with vpa_parts(cluster, admission=WITHOUT_PROBE):
            await cluster.run_for(timedelta(seconds=30))
            cluster.api.admission.register_local("vpa", patches_nothing)
            await cluster.run_for(30 * MINUTE)
            assert len(seen.evictions) == 2
            await cluster.run_for(40 * MINUTE)
            assert len(seen.evictions) == 3
            condition = vpa_condition(cluster, "web", "UpdatesPaused")
            assert condition is not None
            assert condition["status"] == "True"

    run(main, nodes=2)


@pytest.mark.parametrize("moment", ["announced", "evicted", 0.5, 2.0, 10.0, 59.0])
def test_an_updater_killed_before_it_has_judged_a_replacement_leaves_no_third_eviction(moment: str | float) -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        seen = watch_disruptions(cluster)
        deadly = Moment(cluster, moment)
        async with vpa_parts(cluster, admission=WITHOUT_PROBE, updaters=0):
            await cluster.run_for(timedelta(seconds=30))
            cluster.api.admission.register_local("vpa", patches_nothing)
            for seed in range(8):
                async with vpa_parts(cluster, with_admission=False, seed=seed):
                    await deadly.wait(5 * MINUTE)
            kills = deadly.times
            async with vpa_parts(cluster, with_admission=False, seed=99):
                await cluster.run_for(20 * MINUTE)
        assert kills >= 1
        assert len(seen.evictions) == 2
        condition = vpa_condition(cluster, "web", "UpdatesPaused")
        assert condition is not None
        assert (condition["status"], condition["reason"]) == ("True", "ReplacementsUnchanged")

    run(main, nodes=2)


@pytest.mark.parametrize("moment", ["announced", "evicted", 2.0])
def test_an_updater_that_is_killed_again_and_again_still_gets_its_work_done(moment: str | float) -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        seen = watch_disruptions(cluster)
        deadly = Moment(cluster, moment)
        async with vpa_parts(cluster, admission=WITHOUT_PROBE, updaters=0):
            for seed in range(5):
                async with vpa_parts(cluster, with_admission=False, seed=seed):
                    await deadly.wait(5 * MINUTE)
            async with vpa_parts(cluster, with_admission=False, seed=99):
                await cluster.run_for(10 * MINUTE)
        assert len(seen.evictions) == 4
        assert vpa_condition(cluster, "web", "UpdatesPaused") is None
        found = {pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in ready_pods(cluster)}
        assert found == {"300m"}

    run(main, nodes=2)


def test_a_webhook_that_works_again_ends_the_pause() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, admission=WITHOUT_PROBE) as running:
            await cluster.run_for(timedelta(seconds=30))
            cluster.api.admission.register_local("vpa", patches_nothing)
            await cluster.run_for(15 * MINUTE)
            assert running.admission is not None
            cluster.api.admission.register_local("vpa", running.admission.reviewer.review_raw)
            await cluster.run_for(80 * MINUTE)
            assert len(seen.evictions) == 6
            assert running.condition("web", "UpdatesPaused") is None
            assert events(cluster, reason="UpdatesResumed")

    run(main, nodes=2)


def test_a_lease_that_says_patching_works_again_ends_the_pause_before_the_hour() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        seen = watch_disruptions(cluster)
        first = Moment(cluster, "announced")
        # The dry run comes so seldom here that the webhook breaks, and costs two evictions, between two of them.
        probing = AdmissionSettings(local_name="vpa", lease_period=timedelta(seconds=50))
        async with vpa_parts(cluster, admission=probing) as running:
            await first.wait(10 * MINUTE)
            cluster.api.admission.register_local("vpa", patches_nothing)
            broken_at = cluster.clock.now()
            await cluster.run_for(3 * MINUTE)
            assert len(seen.evictions) == 2
            paused = running.condition("web", "UpdatesPaused")
            assert paused is not None
            assert paused["status"] == "True"
            await cluster.run_for(10 * MINUTE)
            assert len(seen.evictions) == 2
            assert "unpatched" in running.updater.problem

            # Nobody makes a pod, so that only the lease can tell that the webhook works again.
            assert running.admission is not None
            cluster.api.admission.register_local("vpa", running.admission.reviewer.review_raw)
            await cluster.run_for(20 * MINUTE)
            assert running.updater.problem == ""
            assert running.condition("web", "UpdatesPaused") is None
            assert cluster.clock.now() - broken_at < timedelta(hours=1)
            (resumed,) = events(cluster, reason="UpdatesResumed")
            assert "the webhook works again" in resumed["message"]
            found = {pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in ready_pods(cluster)}
            assert found == {"300m"}

    run(main, nodes=2)


def test_nothing_is_evicted_while_the_lease_reports_that_pods_come_back_unpatched() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster) as running:
            await cluster.run_for(timedelta(seconds=30))
            cluster.api.admission.register_local("vpa", patches_nothing)
            await cluster.run_for(10 * MINUTE)
            assert seen.evictions == []
            assert "unpatched" in running.updater.problem

    run(main, nodes=2)


def test_nothing_is_evicted_without_an_admission_controller() -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster)
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, with_admission=False):
            await cluster.run_for(10 * MINUTE)
        assert seen.evictions == []

    run(main, nodes=2)
