"""Marks of the built-in controller on a target: read where they are not known, and believed where they are."""

from datetime import timedelta

import pytest

from faulty_api import FaultyApi, FaultyTransport
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, ManagedFieldsEntry
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.hpa.builtin_controller import BuiltInWatch
from kubetide.hpa.core.annotations import NO_OVERRIDES
from kubetide.hpa.core.takeover import BUILT_IN_MANAGER, Stance
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.client.discovery import DiscoveredResource
from kubetide.kube.scale import ScaleTarget

DEPLOYMENTS = DiscoveredResource(group="apps", version="v1", plural="deployments", kind="Deployment", namespaced=True)


@pytest.mark.parametrize(
    ("known", "age", "rescale", "warns", "reads"),
    [
        pytest.param(True, 5, True, True, 0, id="known-and-written-lately"),
        pytest.param(True, 600, True, False, 0, id="known-and-written-long-ago"),
        pytest.param(False, 0, True, False, 1, id="not-known"),
        pytest.param(True, 5, False, False, 0, id="nothing-is-written"),
    ],
)
def test_writers_that_are_known_are_not_read(known: bool, age: int, rescale: bool, warns: bool, reads: int) -> None:
    async def main() -> tuple[Stance, int]:
        clock = virtual_clock()
        api = FaultyApi(clock)
        api.put("/apis/apps/v1/deployments", {"metadata": {"name": "web", "namespace": "shop"}})
        at = clock.now() - timedelta(seconds=age)
        entry = ManagedFieldsEntry(manager=BUILT_IN_MANAGER, operation="Update", subresource="scale", time=at)
        target = ScaleTarget(
            resource=DEPLOYMENTS,
            namespace="shop",
            name="web",
            spec_replicas=1,
            status_replicas=1,
            selector="app=web",
            raw={},
            managed_fields=(entry,) if known else None,
        )
        client = Client(FaultyTransport(api), clock=clock)
        watch = BuiltInWatch(client, clock, HpaSettings(take_over=True))
        found = await watch.stance(HorizontalPodAutoscaler(), NO_OVERRIDES, target, rescale=rescale)
        return found, len(api.requests)

    stance, asked = run_virtual(main())
    assert stance.acts
    assert (stance.warn, asked) == (warns, reads)
