"""Whatever a stream does, once it behaves again the informer's store equals the server's state.

Faults are drawn line by line and request by request: connections refused and reset, refusals, streams that
end, lines cut in half, lines that are no JSON, lines repeated, old lines replayed, neighbours swapped, versions that
are too old. Bookmarks alone are never sent before what they vouch for.
"""

import asyncio
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from faulty_api import EndOfStream, FaultPlan, FaultyApi, FaultyTransport
from kubetide.api.objects.core import ConfigMap
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import CONFIG_MAPS
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.transport import Response

COLLECTION = "/api/v1/configmaps"
# Many, so that what goes wrong with an object is not mended by its next change.
NAMES = tuple(f"c{number}" for number in range(30))

LINE_FAULTS = ("repeat", "replay", "swap", "overtake", "cut", "garble", "reset", "end", "gone")
REQUEST_FAULTS = ("refuse", "busy", "reset")
OPERATIONS = ("put", "put", "put", "remove", "remove", "wait", "wait", "forget")


class Plan(FaultPlan):
    """Misbehaves in the ways given, at random, until told to stop.

    Few ways at a time: most of them end in a new list, which heals whatever the others have done.
    """

    def __init__(self, rng: random.Random, rate: float, lines: Sequence[str], requests: Sequence[str]) -> None:
        self._rng = rng
        self._rate = rate
        self._lines = lines
        self._requests = requests
        self._past: list[bytes] = []
        self._held: bytes | None = None
        self._breaking = False
        self.active = True

    def _drawn(self, faults: Sequence[str]) -> str:
        wanted = self.active and faults and self._rng.random() < self._rate
        return self._rng.choice(faults) if wanted else ""

    def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
        if method == "WATCH":
            # A new stream knows nothing of what an old one held back.
            self._held, self._breaking = None, False
        fault = self._drawn(self._requests)
        if fault == "reset":
            raise ConnectionLost("reset by peer")
        if not fault:
            return None
        code, reason = (500, "InternalError") if fault == "refuse" else (429, "TooManyRequests")
        body = json.dumps({"kind": "Status", "code": code, "reason": reason}).encode()
        return Response(code, {"retry-after": "1"} if code == 429 else {}, body)

    def lines(self, line: bytes) -> Iterable[bytes | Exception]:
        held, self._held = self._held, None
        if b'"BOOKMARK"' in line:
            return (line,) if held is None else (held, line)
        fault = "reset" if self._breaking else self._drawn(self._lines)
        sent = self._sent(line, fault)
        self._past.append(line)
        return sent if held is None else (*sent, held)

    def _sent(self, line: bytes, fault: str) -> tuple[bytes | Exception, ...]:
        match fault:
            case "repeat":
                return (line, line)
            case "replay":
                return (*self._rng.sample(self._past, min(3, len(self._past))), line)
            case "swap" | "overtake":
                self._held, self._breaking = line, fault == "overtake"
                return ()
            case "cut":
                return (ConnectionLost("the stream ended inside a line"),)
            case "garble":
                return (line[: len(line) // 2],)
            case "reset":
                return (line, ConnectionLost("reset by peer"))
            case "end":
                return (line, EndOfStream())
            case "gone":
                return (json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410}}).encode(),)
            case _:
                return (line,)


@settings(max_examples=500)
@given(
    seed=st.integers(0, 1_000_000),
    rate=st.sampled_from((0.1, 0.3, 0.6)),
    line_faults=st.sets(st.sampled_from(LINE_FAULTS), max_size=2),
    request_faults=st.sets(st.sampled_from(REQUEST_FAULTS), max_size=1),
)
def test_the_store_ends_equal_to_the_servers_state(
    seed: int, rate: float, line_faults: set[str], request_faults: set[str]
) -> None:
    rng = random.Random(seed)

    async def main() -> None:
        api, plan = FaultyApi(), Plan(rng, rate, sorted(line_faults), sorted(request_faults))
        clock = virtual_clock()
        client = Client(FaultyTransport(api, plan), clock=clock, rng=random.Random(seed))
        informer: Informer[ConfigMap] = Informer(client, CONFIG_MAPS, clock=clock)
        followed: dict[ObjectKey, str] = {}

        def follow(old: ConfigMap | None, new: ConfigMap | None) -> None:
            changed = new or old
            assert changed is not None
            key = ObjectKey(changed.metadata.namespace, changed.metadata.name)
            assert followed.get(key) == (old.metadata.resource_version if old is not None else None)
            if new is None:
                del followed[key]
            else:
                followed[key] = new.metadata.resource_version

        informer.add_handler(follow)
        errors: list[Exception] = []
        async with asyncio.TaskGroup() as group:
            running = group.create_task(informer.run())
            operations = OPERATIONS if rng.random() < 0.3 else OPERATIONS[:-1]
            for number in range(rng.randrange(80)):
                recent = [key.name for key in api.objects(COLLECTION)][-3:]
                name = rng.choice(recent) if recent and rng.random() < 0.4 else rng.choice(NAMES)
                await _apply(api, rng.choice(operations), name, rng.choice((0, 0, 1, 30)), number)
            plan.active = False
            # The longest backoff, a bookmark, and the time to make up.
            await asyncio.sleep(300)
            truth = {key: raw["metadata"]["resourceVersion"] for key, raw in api.objects(COLLECTION).items()}
            stored = {
                ObjectKey(each.metadata.namespace, each.metadata.name): each.metadata.resource_version
                for each in informer.store.values()
            }
            if stored != truth:
                errors.append(AssertionError(f"store {stored} is not the server's {truth}"))
            if followed != truth:
                errors.append(AssertionError(f"handlers were told {followed}, the server has {truth}"))
            running.cancel()
        assert not errors, errors

    run_virtual(main())


async def _apply(api: FaultyApi, operation: str, name: str, seconds: int, number: int) -> None:
    match operation:
        case "put":
            raw: dict[str, Any] = {"metadata": {"namespace": "shop", "name": name}, "data": {"n": str(number)}}
            api.put(COLLECTION, raw)
        case "remove":
            api.remove(COLLECTION, ObjectKey("shop", name))
        case "forget":
            api.forget_history()
        case _:
            await asyncio.sleep(seconds)
