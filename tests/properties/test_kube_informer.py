"""Whatever a stream does, once it behaves again the informer's store equals the server's state.

The fault plan is drawn line by line and request by request: connections refused and reset, refusals, streams that
end, lines cut in half, lines that are no JSON, lines repeated, old lines replayed, neighbours swapped, versions that
are too old. Bookmarks alone are never sent before what they vouch for.
"""

import asyncio
import json
import random
from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.core import ConfigMap
from kubetide.api.meta import ObjectKey
from kubetide.api.scheme import CONFIG_MAPS
from kubetide.embedded.sim.loop import run_virtual, virtual_clock
from kubetide.kube.client import Client
from kubetide.kube.errors import ConnectionLost
from kubetide.kube.informer import Informer
from kubetide.kube.transport import Response
from kubetide.testing.memory_api import EndOfStream, Faults, MemoryApi, MemoryTransport

COLLECTION = "/api/v1/configmaps"
NAMES = ("a", "b", "c", "d")

LINE_FAULTS = ("deliver", "deliver", "deliver", "repeat", "replay", "swap", "cut", "garble", "reset", "end", "gone")
REQUEST_FAULTS = ("serve", "serve", "serve", "refuse", "busy", "reset")

operations = st.lists(
    st.tuples(
        st.sampled_from(("put", "put", "put", "remove", "forget", "wait", "wait")),
        st.sampled_from(NAMES),
        st.integers(0, 40),
    ),
    max_size=30,
)


class Plan(Faults):
    """Misbehaves as drawn, until told to stop."""

    def __init__(self, lines: list[str], requests: list[str]) -> None:
        self._lines = lines
        self._requests = requests
        self._past: list[bytes] = []
        self._held: bytes | None = None
        self.active = True

    def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
        # A new stream knows nothing of what an old one held back.
        self._held = None
        fault = self._requests.pop() if self.active and self._requests else "serve"
        if fault == "reset":
            raise ConnectionLost("reset by peer")
        if fault == "serve":
            return None
        code, reason = (500, "InternalError") if fault == "refuse" else (429, "TooManyRequests")
        body = json.dumps({"kind": "Status", "code": code, "reason": reason}).encode()
        return Response(code, {"retry-after": "1"} if code == 429 else {}, body)

    def lines(self, line: bytes) -> Iterable[bytes | Exception]:
        held, self._held = self._held, None
        if b'"BOOKMARK"' in line:
            return (line,) if held is None else (held, line)
        fault = self._lines.pop() if self.active and self._lines else "deliver"
        sent = self._sent(line, fault)
        self._past.append(line)
        return sent if held is None else (*sent, held)

    def _sent(self, line: bytes, fault: str) -> tuple[bytes | Exception, ...]:
        match fault:
            case "repeat":
                return (line, line)
            case "replay":
                return (*self._past[-5:], line)
            case "swap":
                self._held = line
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


@settings(max_examples=300)
@given(
    history=operations,
    line_faults=st.lists(st.sampled_from(LINE_FAULTS), max_size=60),
    request_faults=st.lists(st.sampled_from(REQUEST_FAULTS), max_size=30),
    seed=st.integers(0, 10),
)
def test_the_store_ends_equal_to_the_servers_state(
    history: list[tuple[str, str, int]], line_faults: list[str], request_faults: list[str], seed: int
) -> None:
    async def main() -> None:
        api, plan = MemoryApi(), Plan(line_faults, request_faults)
        clock = virtual_clock()
        client = Client(MemoryTransport(api, plan, bookmark_seconds=20), clock=clock, chance=random.Random(seed))
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
            for number, (operation, name, seconds) in enumerate(history):
                await _apply(api, operation, name, seconds, number)
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


async def _apply(api: MemoryApi, operation: str, name: str, seconds: int, number: int) -> None:
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
