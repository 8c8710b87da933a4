"""Two never act at once: whatever the network does between the candidates and the Lease."""

import asyncio
import random
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from faulty_api import FaultPlan, FaultyApi, FaultyTransport
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.transport import Response
from kubetide.kube.control.leader_election import LeaderElector

CANDIDATES = 3


class Network(FaultPlan):
    """Cuts a candidate off, or makes its requests slow, or loses the answers to its writes."""

    def __init__(self) -> None:
        self.cut = False

    def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
        if self.cut:
            raise ConnectionLost("partitioned")
        return None


class SlowTransport(FaultyTransport):
    """Answers after a delay, or after the write happened not at all."""

    delay = 0.0
    lose_answers = False

    async def request(self, method: str, path: str, **options: object) -> Response:
        await asyncio.sleep(self.delay)
        response = await super().request(method, path, **options)  # type: ignore[arg-type]
        await asyncio.sleep(self.delay)
        if self.lose_answers and method != "GET":
            raise ConnectionLost("the answer was lost")
        return response


steps = st.lists(
    st.tuples(
        st.sampled_from(("cut", "heal", "slow", "fast", "lose", "keep", "stop")),
        st.integers(0, CANDIDATES - 1),
        st.integers(0, 25),
    ),
    max_size=25,
)


@settings(max_examples=150)
@given(plan=steps, seed=st.integers(0, 1000))
def test_no_two_candidates_act_at_the_same_time(plan: list[tuple[str, int, int]], seed: int) -> None:
    acting: set[str] = set()
    overlaps: list[set[str]] = []

    async def main() -> None:
        api, clock = FaultyApi(), virtual_clock()
        networks = [Network() for _ in range(CANDIDATES)]
        transports = [SlowTransport(api, network) for network in networks]
        electors = [
            LeaderElector(
                Client(transport, clock=clock, rng=random.Random(seed + index)),
                clock=clock,
                lease_name="hpa",
                namespace="kube-system",
                identity=f"candidate-{index}",
            )
            for index, transport in enumerate(transports)
        ]

        async def act(name: str) -> None:
            acting.add(name)
            try:
                while True:
                    if len(acting) > 1:
                        overlaps.append(set(acting))
                    await asyncio.sleep(0.25)
            finally:
                # Winding down takes time too, as much as the workers' stop grace allows; a second stop cuts it short.
                try:
                    await asyncio.sleep(3)
                finally:
                    if len(acting) > 1:
                        overlaps.append(set(acting))
                    acting.discard(name)

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(elector.run(lambda name=elector.identity: act(name)))  # type: ignore[misc]
                for elector in electors
            ]
            for step, index, seconds in plan:
                match step:
                    case "cut" | "heal":
                        networks[index].cut = step == "cut"
                    case "slow" | "fast":
                        transports[index].delay = 4.0 if step == "slow" else 0.0
                    case "lose" | "keep":
                        transports[index].lose_answers = step == "lose"
                    case _:
                        tasks[index].cancel()
                await asyncio.sleep(seconds)
                assert sum(elector.is_leader for elector in electors) <= 1
            for network, transport in zip(networks, transports, strict=True):
                network.cut, transport.delay, transport.lose_answers = False, 0.0, False
            await asyncio.sleep(60)
            # Once everything is well again, somebody leads, if anybody is left.
            alive = [elector for elector, task in zip(electors, tasks, strict=True) if not task.done()]
            assert sum(elector.is_leader for elector in electors) == (1 if alive else 0)
            for task in tasks:
                task.cancel()

    run_virtual(main())
    assert not overlaps, overlaps
