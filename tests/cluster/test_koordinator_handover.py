"""SLO controller and colocation webhook after upstream's manager: another release is a warning, its own is none."""

from datetime import timedelta
from typing import Any

import pytest

from cluster.test_colocation import batch_namespace, batch_profile, colocated
from kubetide.api.objects.scheme import MUTATING_WEBHOOKS, PODS
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_deployment, make_pod
from simulated.cluster import run

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("version", "compat", "warned"),
    [
        pytest.param("v1.6.1", "1.6", {"slo"}, id="webhook-alike"),
        pytest.param("v1.6.1", "1.8", {"slo", "colocation"}, id="both-differ"),
        pytest.param("v1.8.0", "1.8", set(), id="both-alike"),
    ],
)
def test_another_release_of_the_manager_is_a_warning_of_each_component(
    version: str, compat: str, warned: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def main(cluster: SimCluster) -> None:
        upstream = make_deployment("koord-manager", "koordinator-system", replicas=0)
        upstream["spec"]["template"]["spec"]["containers"][0]["image"] = f"example.com/koord-manager:{version}"
        await cluster.ensure_namespace("koordinator-system")
        await cluster.apply(upstream)
        async with colocated(cluster, compat=compat):
            pass

    run(main, nodes=1)
    told = [vars(one)["fields"] for one in caplog.records if one.getMessage() == "taking over from another release"]
    assert {fields["component"] for fields in told} == warned
    line = "Deployment koordinator-system/koord-manager is 1.6, kubetide follows 1.8"
    assert {fields["difference"] for fields in told} <= {line}


def test_a_step_back_of_the_webhook_keeps_pods_editable_and_makes_new_ones_as_the_older_release() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.ensure_namespace("koordinator-system")
        client = cluster.client()
        made: dict[str, Any] = {}
        for compat, gates in (("1.8", ("ReservationMutatingWebhook=true",)), ("1.4", ())):
            async with colocated(cluster, compat=compat, feature_gates=gates):
                await batch_namespace(cluster)
                await cluster.apply(batch_profile(labels={"team": "data"}, labelSuffixes={"team": "-night"}))
                await cluster.run_for(SECOND)
                name = f"job-{compat.replace('.', '-')}"
                await client.create(PODS, make_pod(name, "jobs", cpu="2", memory="1Gi"), namespace="jobs")
                for earlier in {*made, name}:
                    body = MergePatch({"metadata": {"labels": {"seen-by": compat}}})
                    await client.patch(PODS, earlier, body, namespace="jobs")
                    made[earlier] = await client.get_raw(PODS, earlier, namespace="jobs")
                hooks = (await client.get_raw(MUTATING_WEBHOOKS, "kubetide-colocation"))["webhooks"]
                found = {hook["name"] for hook in hooks}
                assert ("mreservation.koordinator.sh" in found) is (compat == "1.8")
        newer, older = made["job-1-8"], made["job-1-4"]
        assert (newer["metadata"]["labels"]["team"], older["metadata"]["labels"]["team"]) == ("data-night", "data")
        for part in ("containers", "priority", "priorityClassName"):
            assert newer["spec"][part] == older["spec"][part]
        assert newer["metadata"]["annotations"].keys() == older["metadata"]["annotations"].keys()

    run(main, nodes=1)
