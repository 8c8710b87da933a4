"""A watch never keeps a change back."""

import asyncio
import json
from datetime import timedelta
from typing import Any

from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock

PATH = "/api/v1/namespaces/default/configmaps"


def config_map(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def test_a_change_that_comes_while_a_bookmark_is_sent_is_told_at_once() -> None:
    async def main() -> list[tuple[str, float]]:
        api = ApiServer(clock=virtual_clock())
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []
        query = {"resourceVersion": str(api.store.revision), "allowWatchBookmarks": "true", "timeoutSeconds": "100"}
        async with InProcessTransport(api).watch(PATH, query=query) as lines:
            async for line in lines:
                event = json.loads(line)
                seen.append((event["type"], loop.time()))
                if len(seen) == 1:
                    # The reader is still busy with the bookmark.
                    api.insert(config_map("a"))
        return seen

    assert run_virtual(main(), limit=timedelta(minutes=5))[:2] == [("BOOKMARK", 60.0), ("ADDED", 60.0)]
