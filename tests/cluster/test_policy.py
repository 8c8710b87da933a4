"""VPAs for whole namespaces on a simulated cluster: made, kept in step, removed late, and never those of others."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from kubetide import crds
from kubetide.api.objects.scheme import DEPLOYMENTS, NAMESPACES, VPAS
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_stateful_set, make_vpa
from kubetide.vpa.policies.settings import PolicySettings
from kubetide.wiring import Dependencies, build
from simulated.cluster import events, run

LABEL = "kubetide.io/vpa"
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
Raw = dict[str, Any]


def namespace(name: str, **labels: str) -> Raw:
    shown = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": shown}}


@asynccontextmanager
async def policies(cluster: SimCluster, **settings: Any) -> AsyncIterator[None]:
    """Run the controller on a cluster that has the CRD."""
    await cluster.apply([crds.load("verticalpodautoscalers")])
    world = Dependencies(client=cluster.client(), clock=cluster.clock, telemetry=Telemetry(), rng=random.Random(1))
    async with asyncio.TaskGroup() as group:
        made = build("policy", world, PolicySettings(**settings))
        tasks = [group.create_task(part.run(), name=part.name) for part in made]
        await cluster.run_for(15 * SECOND)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def label(cluster: SimCluster, name: str, value: str | None) -> None:
    patch = MergePatch({"metadata": {"labels": {LABEL: value}}})
    await cluster.client().patch(NAMESPACES, name, patch)
    await cluster.run_for(5 * SECOND)


async def found(cluster: SimCluster) -> dict[str, str]:
    """Return every VPA with its mode."""
    listed = (await cluster.client().list(VPAS)).items
    return {
        f"{vpa.metadata.namespace}/{vpa.metadata.name}": (
            vpa.spec.update_policy.update_mode or "" if vpa.spec.update_policy is not None else ""
        )
        for vpa in listed
    }


def test_vpas_follow_labels_and_workloads() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply([namespace("shop"), namespace("other"), make_deployment("web", "shop", cpu="1")])
        async with policies(cluster):
            assert await found(cluster) == {}
            await label(cluster, "shop", "Off")
            assert await found(cluster) == {"shop/web-deployment": "Off"}
            await cluster.apply([make_stateful_set("db", "shop", cpu="1"), make_deployment("web", "other", cpu="1")])
            await cluster.run_for(5 * SECOND)
            assert sorted(await found(cluster)) == ["shop/db-statefulset", "shop/web-deployment"]
            await label(cluster, "shop", "Initial")
            assert set((await found(cluster)).values()) == {"Initial"}
            # What somebody deletes comes back; what somebody else made is left alone, and ours goes.
            await cluster.client().delete(VPAS, "db-statefulset", namespace="shop")
            await cluster.apply(make_vpa("own", "shop", target="web", mode="Off"))
            await cluster.run_for(5 * SECOND)
            assert await found(cluster) == {"shop/db-statefulset": "Initial", "shop/own": "Off"}
            await label(cluster, "shop", "disabled")
            assert await found(cluster) == {"shop/own": "Off"}

    run(main, nodes=1)


def test_a_vpa_outlives_its_workload_and_its_label_for_a_while() -> None:
    async def main(cluster: SimCluster) -> None:
        web = make_deployment("web", "shop", cpu="1")
        await cluster.apply([namespace("shop"), web])
        client = cluster.client()
        async with policies(cluster, removal_delay=10 * MINUTE):
            await label(cluster, "shop", "Off")
            await client.delete(DEPLOYMENTS, "web", namespace="shop")
            await cluster.run_for(9 * MINUTE)
            assert list(await found(cluster)) == ["shop/web-deployment"]
            await cluster.apply(web)
            await cluster.run_for(9 * MINUTE)
            assert list(await found(cluster)) == ["shop/web-deployment"]
            await label(cluster, "shop", None)
            await cluster.run_for(9 * MINUTE)
            assert list(await found(cluster)) == ["shop/web-deployment"]
            await cluster.run_for(2 * MINUTE)
            assert await found(cluster) == {}

    run(main, nodes=1)


def test_a_selector_chooses_and_a_mistake_is_an_event() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply([namespace("shop", team="shop"), namespace("wrong", kubetide_io__vpa="maybe")])
        await cluster.apply([make_deployment("web", each, cpu="1") for each in ("shop", "wrong")])
        async with policies(cluster, namespace_selector="team=shop"):
            assert await found(cluster) == {"shop/web-deployment": "Off"}
            (event,) = events(cluster, reason="VPAPolicyNotApplied")
            assert event["message"].startswith("the label kubetide.io/vpa=maybe is none of Off, Initial")

    run(main, nodes=1)
