"""Selectors of targets and the topmost controller, kind by kind, on the embedded API server."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubetide import crds
from kubetide.api.objects.meta import CrossVersionObjectReference, OwnerReference
from kubetide.api.objects.scheme import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.requests import ADMIN
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.testing.builders import (
    make_cron_job,
    make_daemon_set,
    make_deployment,
    make_job,
    make_replica_set,
    make_replication_controller,
    make_stateful_set,
)
from kubetide.vpa.targets import TargetNotFound, Targets


def on_a_server(test: Callable[[Client, Targets], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = virtual_clock()
        api = ApiServer(clock=clock)
        api.insert(crds.load("verticalpodautoscalers"))
        client = Client(InProcessTransport(api, user=ADMIN), clock=clock)
        targets = Targets(client, clock=clock)
        running = asyncio.get_running_loop().create_task(targets.run())
        try:
            await targets.wait_synced()
            await test(client, targets)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()

    run_virtual(main())


def reference(resource: Resource[Any], name: str) -> CrossVersionObjectReference:
    return CrossVersionObjectReference(api_version=resource.api_version, kind=resource.kind, name=name)


@pytest.mark.parametrize(
    ("resource", "body", "expected"),
    [
        pytest.param(DEPLOYMENTS, make_deployment("web"), "app=web", id="deployment"),
        pytest.param(REPLICA_SETS, make_replica_set("web"), "app=web", id="replica-set"),
        pytest.param(STATEFUL_SETS, make_stateful_set("web"), "app=web", id="stateful-set"),
        pytest.param(DAEMON_SETS, make_daemon_set("web"), "app=web", id="daemon-set"),
        pytest.param(REPLICATION_CONTROLLERS, make_replication_controller("web"), "app=web", id="a-map-of-labels"),
        pytest.param(CRON_JOBS, make_cron_job("web"), "app=web", id="the-labels-of-its-pods"),
    ],
)
def test_each_kind_has_its_selector(resource: Resource[Any], body: dict[str, Any], expected: str) -> None:
    async def test(client: Client, targets: Targets) -> None:
        with pytest.raises(TargetNotFound):
            await targets.selector("default", reference(resource, "web"))
        await client.create(resource, body, namespace="default")
        await asyncio.sleep(1)
        assert str(await targets.selector("default", reference(resource, "web"))) == expected
        # The version of a well-known kind is not looked at.
        older = CrossVersionObjectReference(api_version="example.com/v1", kind=resource.kind, name="web")
        assert str(await targets.selector("default", older)) == expected

    on_a_server(test)


def test_a_job_of_a_cron_job_leads_to_the_cron_job() -> None:
    async def test(client: Client, targets: Targets) -> None:
        cron = await client.create(CRON_JOBS, make_cron_job("nightly"), namespace="default")
        job = make_job("nightly-1")
        job["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "name": "nightly",
                "uid": cron.metadata.uid,
                "controller": True,
            }
        ]
        await client.create(JOBS, job, namespace="default")
        await asyncio.sleep(1)
        owner = OwnerReference(api_version="batch/v1", kind="Job", name="nightly-1", uid="u", controller=True)
        top = await targets.topmost("default", owner)
        assert top is not None
        assert (top.kind, top.name) == ("CronJob", "nightly")

    on_a_server(test)


def test_an_owner_that_nobody_knows_has_no_controller_above_it() -> None:
    async def test(client: Client, targets: Targets) -> None:
        for kind in ("ReplicaSet", "Strange", "Node"):
            owner = OwnerReference(api_version="apps/v1", kind=kind, name="gone", uid="u", controller=True)
            assert await targets.topmost("default", owner) is None

    on_a_server(test)
