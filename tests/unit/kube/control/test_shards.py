"""What the fence knows of writes, and what a replica says of itself in its Lease."""

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest

from faulty_api import FaultyApi, FaultyTransport
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response
from kubetide.kube.control.core.ranges import RANGES, Division, range_of, ranges_text
from kubetide.kube.control.core.slots import Share
from kubetide.kube.control.leader_election import NotLeading
from kubetide.kube.control.range_fence import RangeFence, acting_for, range_of_write
from kubetide.kube.control.shards import CLAIMS, FORGET_SECONDS, GROUP_LABEL, ShardMembership

LEASES = "/apis/coordination.k8s.io/v1/leases"
STATUS = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web/status"


@pytest.mark.parametrize(
    ("path", "namespace"),
    [
        pytest.param(STATUS, "shop", id="in-a-namespace"),
        pytest.param("/api/v1/namespaces/shop", "shop", id="the-namespace-itself"),
        pytest.param("/apis/authentication.k8s.io/v1/tokenreviews", "", id="without-a-name"),
        pytest.param("/api/v1/nodes/node-7/status", "node-7", id="a-node"),
        pytest.param("/apis/slo.koordinator.sh/v1alpha1/nodeslos/node-7", "node-7", id="cluster-scoped"),
    ],
)
def test_a_write_is_in_the_range_of_its_namespace(path: str, namespace: str) -> None:
    assert range_of_write(path) == range_of(namespace)


def test_an_object_of_no_namespace_that_is_being_created_is_named_in_the_body() -> None:
    path = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
    assert range_of_write(path, b'{"kind": "NodeSLO", "metadata": {"name": "node-7"}}') == range_of("node-7")
    assert range_of_write(path, b"no JSON") == range_of("")


class SlowServer(FaultyTransport):
    """Answers after a second."""

    async def request(self, method: str, path: str, **options: object) -> Response:
        await asyncio.sleep(1)
        return Response(200, {}, b"{}")


def test_a_range_is_idle_once_the_writes_to_it_have_ended() -> None:
    async def main() -> None:
        clock, owned = virtual_clock(), {range_of("shop")}
        fence = RangeFence(SlowServer(FaultyApi()), lambda number: number in owned)
        await fence.idle(owned)
        assert clock.monotonic() == 0
        async with asyncio.TaskGroup() as group:
            group.create_task(fence.request("PUT", STATUS))
            await asyncio.sleep(0.5)
            ranges = set(owned)
            owned.clear()
            with pytest.raises(NotLeading, match="held back PUT"):
                await fence.request("PUT", STATUS)
            await fence.idle(ranges)
            assert clock.monotonic() == 1

    run_virtual(main())


def test_a_write_in_a_split_namespace_is_in_the_range_of_whom_it_is_for() -> None:
    async def main() -> None:
        owned = {range_of("mine")}
        fence = RangeFence(SlowServer(FaultyApi()), lambda number: number in owned, Division(split=frozenset({"shop"})))
        with acting_for("mine"):
            assert (await fence.request("PUT", STATUS)).status == 200
            async with asyncio.TaskGroup() as group:
                group.create_task(fence.request("PUT", STATUS))
        with acting_for("another"), pytest.raises(NotLeading):
            await fence.request("PUT", STATUS)
        with pytest.raises(NotLeading):
            await fence.request("PUT", STATUS)
        # Neither who owns the range of the namespace may write to it, nor does it matter elsewhere who it is for.
        owned.update({range_of("shop"), range_of("office")})
        with pytest.raises(NotLeading):
            await fence.request("PUT", STATUS)
        with acting_for("another"):
            assert (await fence.request("PUT", STATUS.replace("/shop/", "/office/"))).status == 200

    assert range_of("another") not in {range_of(name) for name in ("mine", "shop", "office")}
    run_virtual(main())


def membership(api: FaultyApi, seed: int = 1, **options: Any) -> ShardMembership:
    clock, rng = virtual_clock(), random.Random(seed)
    client = Client(FaultyTransport(api), clock=clock, rng=random.Random(seed))
    return ShardMembership(
        client, clock=clock, group="hpa", namespace="kube-system", identity="Node_1", rng=rng, **options
    )


async def forever() -> None:
    await asyncio.sleep(100_000)


def test_the_lease_of_a_member_names_its_ranges_and_is_left_without_them() -> None:
    async def main() -> None:
        api = FaultyApi()
        one = membership(api)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(one.run(forever))
            await asyncio.sleep(10)
            assert len(one.held) == RANGES
            (mine,) = (raw for key, raw in api.objects(LEASES).items() if key.name == one.lease_name)
            assert mine["metadata"]["labels"] == {GROUP_LABEL: "hpa"}
            assert mine["metadata"]["annotations"] == {CLAIMS: ranges_text(range(RANGES))}
            assert mine["metadata"]["name"].startswith("hpa-node-1-")
            task.cancel()
        (mine,) = (raw for key, raw in api.objects(LEASES).items() if key.name == one.lease_name)
        assert mine["spec"]["holderIdentity"] == ""
        assert mine["metadata"]["annotations"] == {CLAIMS: ranges_text(())}
        assert not one.held

    run_virtual(main())


def test_a_slot_rests_after_it_was_taken_and_whoever_lost_it_uses_it_no_more() -> None:
    async def main() -> None:
        api, minute = FaultyApi(), timedelta(minutes=1)
        one, other = (membership(api, seed, slots=4, slot_rest=minute) for seed in (1, 2))
        async with asyncio.TaskGroup() as group:
            first = group.create_task(one.run(forever))
            await asyncio.sleep(10)
            found = one.share()
            assert (found.slots, found.of) == (0, 4)
            assert found.opens_in is not None
            assert 50 < found.opens_in < 61
            await asyncio.sleep(60)
            assert one.share() == Share(4, 4)
            second = group.create_task(other.run(forever))
            await asyncio.sleep(10)
            assert (one.share().slots, other.share().slots) == (2, 0)
            await asyncio.sleep(60)
            assert (one.share(), other.share()) == (Share(2, 4), Share(2, 4))
            second.cancel()
            await asyncio.sleep(10)
            assert (one.share().slots, other.share().slots) == (2, 0)
            await asyncio.sleep(60)
            assert one.share() == Share(4, 4)
            first.cancel()

    run_virtual(main())


def test_the_lease_of_a_member_that_is_gone_is_removed_after_a_while() -> None:
    async def main() -> None:
        api = FaultyApi()
        gone, here = membership(api, 1), membership(api, 2)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(gone.run(forever))
            second = group.create_task(here.run(forever))
            await asyncio.sleep(30)
            assert here.live == 2
            first.cancel()
            await asyncio.sleep(30)
            assert (here.live, len(here.held)) == (1, RANGES)
            assert gone.lease_name in {key.name for key in api.objects(LEASES)}
            await asyncio.sleep(FORGET_SECONDS)
            assert gone.lease_name not in {key.name for key in api.objects(LEASES)}
            second.cancel()

    run_virtual(main())


def test_a_member_whose_lease_somebody_deleted_begins_anew() -> None:
    async def main() -> None:
        api = FaultyApi()
        one = membership(api)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(one.run(forever))
            await asyncio.sleep(10)
            moved = one.handed_over
            (key,) = (key for key in api.objects(LEASES) if key.name == one.lease_name)
            api.remove(LEASES, key)
            await asyncio.sleep(10)
            assert one.lease_name in {key.name for key in api.objects(LEASES)}
            assert len(one.held) == RANGES
            assert one.handed_over == moved + 2 * RANGES
            task.cancel()

    run_virtual(main())
