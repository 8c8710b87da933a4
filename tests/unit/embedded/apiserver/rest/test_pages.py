"""Pages of a list with a selector: the whole list, as it was, and little more looked at than is shown."""

import json
from typing import Any

import pytest

from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.filters import Filter
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.objects import Entry
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock

PATH = "/api/v1/configmaps"


def config_map(number: int) -> dict[str, Any]:
    labels = {"half": str(number % 2)}
    metadata = {"name": f"c-{number:03}", "namespace": f"ns-{number % 7}", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def test_pages_of_a_selection_are_one_list_and_end_where_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, matches = 0, Filter.matches

    def counting(self: Filter, entry: Entry) -> bool:
        nonlocal looked
        looked += 1
        return matches(self, entry)

    async def main() -> tuple[list[list[str]], list[int]]:
        api = ApiServer(clock=virtual_clock())
        for number in range(200):
            api.insert(config_map(number))
        client, token, pages, costs = InProcessTransport(api), "", [], []
        while True:
            before = looked
            query = {"labelSelector": "half=1", "limit": "10", **({"continue": token} if token else {})}
            answer = json.loads((await client.request("GET", PATH, query=query)).body)
            pages.append([item["metadata"]["name"] for item in answer["items"]])
            costs.append(looked - before)
            # What changes between two pages is not part of the list.
            api.insert(config_map(1000 + len(pages)))
            token = answer["metadata"].get("continue", "")
            if not token:
                return pages, costs

    monkeypatch.setattr(Filter, "matches", counting)
    pages, costs = run_virtual(main())
    assert [len(page) for page in pages] == [10] * 10
    assert sorted(name for page in pages for name in page) == [f"c-{number:03}" for number in range(1, 200, 2)]
    assert max(costs) <= 2 * 10 + 10
