"""`--upstream-behavior` switches off, in updater and webhook, everything that kubetide adds for safety."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from kubetide.config import load
from kubetide.embedded.apiserver.storage.objects import ResourceKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import get, pods, ready_pods, run
from simulated.updating import install_crds, recommend, vpa_condition, vpa_parts, watch_disruptions

MINUTE = timedelta(minutes=1)
LEASES = ResourceKey("coordination.k8s.io", "leases")
FLAG = {"upstream-behavior": "true"}
SETTINGS = {
    "upstream": (load(UpdaterSettings, flags=FLAG), load(AdmissionSettings, flags={**FLAG, "local-name": "vpa"})),
    "kubetide": (UpdaterSettings(), AdmissionSettings(local_name="vpa")),
}
both = pytest.mark.parametrize("behaviour", ["upstream", "kubetide"])

Raw = dict[str, Any]


async def prepare(cluster: SimCluster, *names: str, replicas: int = 4, usage: str = "64Mi", **given: Any) -> None:
    await install_crds(cluster)
    for name in names:
        await cluster.apply(make_deployment(name, replicas=replicas, **{"cpu": "100m", "memory": "128Mi", **given}))
        await cluster.apply(make_vpa(name, target=name))
        cluster.set_usage("default", name, cpu="50m", memory=usage)
    await cluster.run_for(MINUTE)


def requests(cluster: SimCluster) -> list[dict[str, str]]:
    return [pod["spec"]["containers"][0]["resources"]["requests"] for pod in pods(cluster)]


async def patches_nothing(review: Raw) -> Raw:
    response = {"uid": review["request"]["uid"], "allowed": True}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


@both
def test_the_budget_of_the_cluster_and_the_wait_for_replacements(behaviour: str) -> None:
    async def main(cluster: SimCluster) -> None:
        names = [f"web-{number}" for number in range(20)]
        await prepare(cluster, *names)
        for name in names:
            await recommend(cluster, name, {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, *SETTINGS[behaviour]):
            # The first run comes a minute after the start.
            await cluster.run_for(timedelta(seconds=75))
            at_once = max(Counter(at for at, _ in seen.evictions).values(), default=0)
        if behaviour == "upstream":
            # Half of every workload goes, all in the same moment.
            assert at_once == len(seen.evictions) == 40
        else:
            assert at_once <= 10

    run(main, nodes=8)


@both
def test_the_breaker_and_its_condition(behaviour: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, "web")
        await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        updater, _ = SETTINGS[behaviour]
        silent = AdmissionSettings(local_name="vpa", probe_webhook=False)
        async with vpa_parts(cluster, updater, silent):
            await cluster.run_for(timedelta(seconds=30))
            cluster.api.admission.register_local("vpa", patches_nothing)
            await cluster.run_for(10 * MINUTE)
            condition = vpa_condition(cluster, "web", "UpdatesPaused")
        if behaviour == "upstream":
            assert len(seen.evictions) > 10
            assert condition is None
        else:
            assert len(seen.evictions) == 2
            assert condition is not None

    run(main, nodes=2)


@both
def test_a_recommendation_that_rests_on_nothing(behaviour: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, "web", cpu="500m", memory="512Mi")
        minimum = {"cpu": "25m", "memory": "250Mi"}
        await recommend(cluster, "web", minimum, lower=minimum, upper=minimum)
        seen = watch_disruptions(cluster)
        async with vpa_parts(cluster, *SETTINGS[behaviour]):
            await cluster.run_for(5 * MINUTE)
        assert bool(seen.evictions) == (behaviour == "upstream")

    run(main, nodes=2)


@both
def test_memory_that_is_in_use(behaviour: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, "web", memory="1Gi", usage="500Mi")
        await recommend(cluster, "web", {"cpu": "100m", "memory": "300Mi"})
        async with vpa_parts(cluster, *SETTINGS[behaviour]):
            await cluster.run_for(15 * MINUTE)
            found = {each["memory"] for each in requests(cluster)}
        if behaviour == "upstream":
            assert found == {"300Mi"}
        else:
            assert "300Mi" not in found

    run(main, nodes=2)


@both
def test_pods_larger_than_every_node(behaviour: str) -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("one", cpu="4", memory="8Gi")
        cluster.add_node("two", cpu="4", memory="8Gi")
        await prepare(cluster, "web", replicas=2)
        await recommend(cluster, "web", {"cpu": "20", "memory": "256Mi"})
        async with vpa_parts(cluster, *SETTINGS[behaviour]):
            await cluster.run_for(10 * MINUTE)
            assert ("20" in {each["cpu"] for each in requests(cluster)}) == (behaviour == "upstream")
            assert (len(ready_pods(cluster)) == 2) == (behaviour == "kubetide")

    run(main)


@both
def test_the_dry_run_and_what_the_lease_reports_about_it(behaviour: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, "web")
        async with vpa_parts(cluster, *SETTINGS[behaviour]):
            await cluster.run_for(MINUTE)
            lease = get(cluster, LEASES, "kube-system", "vpa-admission-controller")
        told = "kubetide.io/patching" in (lease["metadata"].get("annotations") or {})
        assert told == (behaviour == "kubetide")

    run(main, nodes=2)


@both
def test_an_updater_that_is_told_that_pods_come_back_unpatched(behaviour: str) -> None:
    async def main(cluster: SimCluster) -> None:
        await prepare(cluster, "web")
        await recommend(cluster, "web", {"cpu": "300m", "memory": "256Mi"})
        seen = watch_disruptions(cluster)
        updater, _ = SETTINGS[behaviour]
        # The webhook is kubetide's own in both cases, and says on its lease that it is not called.
        async with vpa_parts(cluster, updater, AdmissionSettings(local_name="vpa")):
            await cluster.run_for(timedelta(seconds=30))
            cluster.api.admission.register_local("vpa", patches_nothing)
            await cluster.run_for(5 * MINUTE)
        assert bool(seen.evictions) == (behaviour == "upstream")

    run(main, nodes=2)
