"""Leader election on a Lease, alone and against others."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from faulty_api import FaultPlan, FaultyApi, FaultyTransport
from kubetide.api.objects.core import LeaseSpec
from kubetide.api.objects.meta import ObjectKey
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.transport import Response
from kubetide.kube.control.leader_election import FencedTransport, LeaderElector, NotLeading
from kubetide.kube.control.lease import Move, Sighting, claim, next_move, released, see

NOW = datetime(2026, 1, 5, 12, 0, 0, 250, tzinfo=UTC)
LEASES = "/apis/coordination.k8s.io/v1/leases"
KEY = ObjectKey("kube-system", "kubetide-hpa")


def held_by(holder: str, *, duration: int = 15, at: float = 0.0) -> Sighting:
    return Sighting(version="1", spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=duration), at=at)


@pytest.mark.parametrize(
    ("sighting", "now", "expected"),
    [
        pytest.param(None, 0, Move.CREATE, id="no-lease-is-made"),
        pytest.param(held_by("me"), 100, Move.RENEW, id="mine-is-renewed-however-old"),
        pytest.param(held_by(""), 0, Move.TAKE, id="released-is-free-at-once"),
        pytest.param(held_by("other"), 14.9, Move.WAIT, id="held-is-waited-for"),
        pytest.param(held_by("other"), 15, Move.TAKE, id="silent-for-its-duration-is-free"),
        pytest.param(held_by("other", duration=60), 30, Move.WAIT, id="the-holders-duration-counts"),
        pytest.param(held_by("other", duration=0), 15, Move.TAKE, id="without-one-our-own-counts"),
    ],
)
def test_what_a_candidate_may_do(sighting: Sighting | None, now: float, expected: Move) -> None:
    assert next_move(sighting, "me", duration=15, now=now) is expected


def test_time_counts_from_when_a_state_was_first_seen() -> None:
    first = see(None, "7", LeaseSpec(holder_identity="other"), now=5)
    assert see(first, "7", LeaseSpec(holder_identity="other"), now=50) is first
    assert see(first, "8", LeaseSpec(holder_identity="other"), now=50).at == 50


def test_taking_over_counts_a_transition_and_renewing_does_not() -> None:
    old = LeaseSpec(holder_identity="other", lease_transitions=3, acquire_time=NOW - timedelta(hours=1))
    taken = claim(old, "me", duration=15, now=NOW)
    assert taken == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-05T12:00:00.000250Z",
        "renewTime": "2026-01-05T12:00:00.000250Z",
        "leaseTransitions": 4,
    }
    mine = LeaseSpec(holder_identity="me", lease_transitions=4, acquire_time=NOW)
    renewed = claim(mine, "me", duration=15, now=NOW + timedelta(seconds=2))
    assert (renewed["leaseTransitions"], renewed["acquireTime"]) == (4, "2026-01-05T12:00:00.000250Z")
    assert renewed["renewTime"] == "2026-01-05T12:00:02.000250Z"
    assert claim(None, "me", duration=15, now=NOW)["leaseTransitions"] == 0


def test_a_released_lease_has_no_holder_and_a_short_life() -> None:
    spec = released(LeaseSpec(holder_identity="me", lease_transitions=4), now=NOW)
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("", 1, 4)


class Network(FaultPlan):
    """Can be cut."""

    cut = False

    def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
        if self.cut:
            raise ConnectionLost("partitioned")
        return None


class Candidate:
    """An elector, its network and what it did."""

    def __init__(self, api: FaultyApi, name: str) -> None:
        self.network = Network()
        self.book: list[tuple[str, float]] = []
        clock = virtual_clock()
        self.elector = LeaderElector(
            Client(FaultyTransport(api, self.network), clock=clock),
            clock=clock,
            lease_name=KEY.name,
            namespace=KEY.namespace,
            identity=name,
        )

    def leads(self) -> bool:
        return self.elector.is_leader

    async def run(self) -> None:
        await self.elector.run(self._lead)

    async def _lead(self) -> None:
        self.book.append(("start", asyncio.get_running_loop().time()))
        try:
            await asyncio.Event().wait()
        finally:
            self.book.append(("stop", asyncio.get_running_loop().time()))


def test_the_first_leads_the_second_waits_and_takes_over_when_released() -> None:
    async def main() -> None:
        api = FaultyApi()
        first, second = Candidate(api, "first"), Candidate(api, "second")
        async with asyncio.TaskGroup() as group:
            one = group.create_task(first.run())
            await asyncio.sleep(1)
            two = group.create_task(second.run())
            await asyncio.sleep(60)
            assert first.leads()
            assert not second.leads()
            assert second.elector.holder == "first"
            one.cancel()
            await asyncio.sleep(5)
            assert second.leads()
            # Released, not expired: the second did not have to wait 15 seconds.
            assert second.book[0][1] - first.book[-1][1] < 4
            assert api.objects(LEASES)[KEY]["spec"]["leaseTransitions"] == 1
            two.cancel()
        assert api.objects(LEASES)[KEY]["spec"]["holderIdentity"] == ""

    run_virtual(main())


def test_a_leader_that_is_cut_off_stops_before_another_starts() -> None:
    async def main() -> None:
        api = FaultyApi()
        first, second = Candidate(api, "first"), Candidate(api, "second")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(first.run())]
            await asyncio.sleep(1)
            tasks.append(group.create_task(second.run()))
            await asyncio.sleep(30)
            cut = asyncio.get_running_loop().time()
            first.network.cut = True
            await asyncio.sleep(40)
            stopped, started = first.book[1][1], second.book[0][1]
            assert cut < stopped <= cut + 10
            assert started >= stopped + 3
            assert started <= cut + 20
            first.network.cut = False
            await asyncio.sleep(30)
            assert second.leads()
            assert not first.leads()
            for task in tasks:
                task.cancel()

    run_virtual(main())


def test_a_lease_that_is_deleted_is_made_anew_by_its_leader() -> None:
    async def main() -> None:
        api = FaultyApi()
        only = Candidate(api, "only")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(only.run())
            await asyncio.sleep(10)
            api.remove(LEASES, KEY)
            await asyncio.sleep(10)
            assert api.objects(LEASES)[KEY]["spec"]["holderIdentity"] == "only"
            assert [each[0] for each in only.book] == ["start"]
            task.cancel()

    run_virtual(main())


def test_fields_that_others_wrote_into_the_lease_survive() -> None:
    async def main() -> None:
        api = FaultyApi()
        meta = {"namespace": KEY.namespace, "name": KEY.name, "labels": {"team": "platform"}}
        api.put(LEASES, {"metadata": meta, "spec": {"holderIdentity": "", "strategy": "OldestEmulationVersion"}})
        only = Candidate(api, "only")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(only.run())
            await asyncio.sleep(10)
            stored = api.objects(LEASES)[KEY]
            assert stored["metadata"]["labels"] == {"team": "platform"}
            assert stored["spec"]["strategy"] == "OldestEmulationVersion"
            task.cancel()

    run_virtual(main())


def test_leading_is_a_question_of_time_even_when_nothing_runs() -> None:
    class FrozenClock:
        """A clock that can jump while the process stands still."""

        def __init__(self) -> None:
            self.inner = virtual_clock()
            self.ahead = 0.0

        def now(self) -> datetime:
            return self.inner.now() + timedelta(seconds=self.ahead)

        def monotonic(self) -> float:
            return self.inner.monotonic() + self.ahead

    async def main() -> None:
        api, clock = FaultyApi(), FrozenClock()
        elector = LeaderElector(
            Client(FaultyTransport(api), clock=clock),
            clock=clock,
            lease_name=KEY.name,
            namespace=KEY.namespace,
            identity="me",
        )
        fenced = Client(FencedTransport(FaultyTransport(api), lambda path: elector.is_leader), clock=clock)
        refused: list[Exception] = []
        path = LEASES.replace("/leases", f"/namespaces/{KEY.namespace}/leases")

        async def lead() -> None:
            await fenced.request("POST", path, body=json.dumps(lease("before")).encode())
            clock.ahead += 60  # the machine slept, and no task has run since
            try:
                await fenced.request("POST", path, body=json.dumps(lease("after")).encode())
            except NotLeading as error:
                refused.append(error)

        await elector.run(lead)
        assert len(refused) == 1
        assert {key.name for key in api.objects(LEASES)} == {KEY.name, "before"}
        assert (await fenced.request("GET", LEASES)).status == 200

    def lease(name: str) -> dict[str, Any]:
        return {"metadata": {"namespace": KEY.namespace, "name": name}}

    run_virtual(main())


def test_periods_that_would_let_two_lead_are_refused() -> None:
    async def main() -> None:
        clock = virtual_clock()
        with pytest.raises(ValueError, match="in this order"):
            LeaderElector(
                Client(FaultyTransport(FaultyApi()), clock=clock),
                clock=clock,
                lease_name="x",
                namespace="y",
                identity="z",
                renew_deadline=timedelta(seconds=20),
            )

    run_virtual(main())


def test_the_lease_says_where_its_holder_serves() -> None:
    """What is announced is written at every renewal, so that a new port is found, and goes with the holder."""

    async def main() -> None:
        api = FaultyApi()
        holder = Candidate(api, "a")
        announced = {"kubetide.io/status-address": "10.0.0.1:8941"}
        holder.elector.annotations = lambda: announced
        task = asyncio.get_running_loop().create_task(holder.run())
        await asyncio.sleep(1)
        lease = api.objects(LEASES)[KEY]
        assert lease["metadata"]["annotations"] == announced
        notes = {**announced, "team": "shop"}
        api.put(LEASES, {**lease, "metadata": {**lease["metadata"], "annotations": notes}})
        announced = {"kubetide.io/status-address": "10.0.0.1:9000"}
        await asyncio.sleep(5)
        assert api.objects(LEASES)[KEY]["metadata"]["annotations"] == {"team": "shop", **announced}
        task.cancel()
        await asyncio.wait({task})
        assert api.objects(LEASES)[KEY]["metadata"]["annotations"] == {"team": "shop"}

    run_virtual(main())
