"""What the pod webhook answers to single reviews: who is asked about what, and what is left alone."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from cluster.test_colocation import batch_namespace, batch_profile
from kubetide import crds
from kubetide.api.objects.scheme import MUTATING_WEBHOOKS
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.control.recorder import EventRecorder
from kubetide.slo.colocation.settings import ColocationSettings
from kubetide.slo.colocation.webhook import ColocationWebhook
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_pod
from simulated.cluster import run

Raw = dict[str, Any]


@asynccontextmanager
async def webhook(cluster: SimCluster) -> AsyncIterator[ColocationWebhook]:
    """Run the webhook, with a profile for the namespace jobs whose pods stay prod pods."""
    await cluster.apply([crds.load("clustercolocationprofiles")])
    await batch_namespace(cluster)
    profile = batch_profile(labels={"team": "data"})
    del profile["spec"]["priorityClassName"], profile["spec"]["qosClass"]
    await cluster.apply(profile)
    client, clock = cluster.client(), cluster.clock
    recorder = EventRecorder(client, clock=clock, component="colocation")
    made = ColocationWebhook(
        client, clock, ColocationSettings(), Telemetry(), recorder, random.Random(1), local=cluster.api.admission
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(made.run())
        await cluster.run_for(timedelta(seconds=15))
        try:
            yield made
        finally:
            task.cancel()


def review(operation: str = "CREATE", **more: Any) -> Raw:
    pod = make_pod("job", "", cpu="1")
    pod["metadata"].pop("namespace", None)
    about = {"version": "v1", "resource": "pods"}
    request = {"uid": "1", "resource": about, "namespace": "jobs", "operation": operation, "object": pod, **more}
    return {"request": request}


@pytest.mark.parametrize(
    ("asked", "changed"),
    [
        pytest.param(review(), True, id="created"),
        pytest.param(review(namespace="default"), False, id="no-profile-matches"),
        pytest.param(review("UPDATE", oldObject=make_pod("job", "jobs")), False, id="updated"),
        pytest.param(review(subResource="ephemeralcontainers"), False, id="sub-resource"),
        pytest.param(review(resource={"version": "v1", "resource": "services"}), False, id="something-else"),
    ],
)
def test_only_the_creation_of_a_pod_is_changed_and_its_namespace_is_that_of_the_request(
    asked: Raw, changed: bool
) -> None:
    async def main(cluster: SimCluster) -> Raw:
        async with webhook(cluster) as made:
            found: Raw = (await made.reviewer.mutate_local(asked))["response"]
            return found

    response = run(main)
    assert response["allowed"]
    assert ("patch" in response) is changed
    if changed:
        patch = msgspec.json.decode(msgspec.json.decode(f'"{response["patch"]}"', type=bytes))
        assert all("namespace" not in step["path"] for step in patch), "the namespace is not written back"
        assert "data" in str(patch)


def test_what_cannot_be_decided_is_answered_as_a_failure_of_the_webhook() -> None:
    async def main(cluster: SimCluster) -> Raw:
        async with webhook(cluster) as made:
            broken = batch_profile()
            broken["spec"]["priorityClassName"] = "nobody-made-it"
            broken["metadata"]["name"] = "broken"
            await cluster.apply(broken)
            await cluster.run_for(timedelta(seconds=1))
            found: Raw = (await made.reviewer.mutate_local(review()))["response"]
            return found

    response = run(main)
    assert (response["allowed"], response["status"]["code"]) == (False, 500)
    assert "ClusterColocationProfile broken" in response["status"]["message"]


def test_updates_of_pods_are_not_asked_about() -> None:
    async def main(cluster: SimCluster) -> Raw:
        async with webhook(cluster):
            return await cluster.client().get_raw(MUTATING_WEBHOOKS, "kubetide-colocation")

    (hook,) = run(main)["webhooks"]
    assert (hook["name"], hook["rules"][0]["operations"]) == ("mpod-create.koordinator.sh", ["CREATE"])
    assert (hook["failurePolicy"], hook["sideEffects"]) == ("Fail", "None")
    assert hook["admissionReviewVersions"] == ["v1", "v1beta1"]
