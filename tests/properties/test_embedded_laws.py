"""Laws of the embedded API server, whatever is written in whatever order."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.values.selectors import parse_selector
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock

Raw = dict[str, Any]
PATH = "/api/v1/namespaces/default/configmaps"
NAMES = ("a", "b", "c", "d")
LABELS = ("x", "y", "")

actions = st.lists(
    st.tuples(st.sampled_from(["put", "label", "delete"]), st.sampled_from(NAMES), st.sampled_from(LABELS)), max_size=25
)


class Session:
    """A server, what it holds by its own word, and the revisions on the way."""

    def __init__(self) -> None:
        self.api = ApiServer(clock=virtual_clock())
        self.transport = InProcessTransport(self.api)
        self.states: list[tuple[int, dict[str, str]]] = [(self.api.store.revision, {})]

    async def act(self, action: str, name: str, label: str) -> None:
        labels = {"tier": label} if label else {}
        document = {"metadata": {"name": name, "labels": labels}}
        match action:
            case "put":
                await self._send("POST", PATH, document)
            case "label":
                patch = {"metadata": {"labels": {"tier": label or None}}}
                await self._send("PATCH", f"{PATH}/{name}", patch, "application/merge-patch+json")
            case _:
                await self._send("DELETE", f"{PATH}/{name}")
        self.states.append((self.api.store.revision, await self.listed()))

    async def _send(self, method: str, path: str, body: Raw | None = None, kind: str = "application/json") -> None:
        data = json.dumps(body).encode() if body is not None else None
        await self.transport.request(method, path, body=data, content_type=kind)

    async def listed(self, **query: str) -> dict[str, str]:
        answer = await self.transport.request("GET", PATH, query=query)
        assert answer.status == 200, answer.body
        return {item["metadata"]["name"]: _tier(item) for item in json.loads(answer.body)["items"]}

    async def told(self, revision: int, **query: str) -> list[Raw]:
        """Return what a watch from a revision tells."""
        asked = {"watch": "true", "timeoutSeconds": "1", "resourceVersion": str(revision), **query}
        async with self.transport.watch(PATH, query=asked) as lines:
            return [json.loads(line) async for line in lines]


def _tier(item: Raw) -> str:
    return str((item["metadata"].get("labels") or {}).get("tier", ""))


def replayed(state: dict[str, str], events: list[Raw]) -> dict[str, str]:
    """Apply the events of a watch to a state, as an informer does; each must fit what is there."""
    result = dict(state)
    for event in events:
        name = event["object"]["metadata"]["name"]
        if event["type"] == "DELETED":
            assert name in result
            del result[name]
        else:
            assert (name in result) is (event["type"] == "MODIFIED")
            result[name] = _tier(event["object"])
    return result


@settings(max_examples=60)
@given(actions, st.integers(0, 25), st.sampled_from(["", "tier=x", "tier!=x", "!tier"]))
def test_a_list_and_the_watch_after_it_give_the_present_state(
    script: list[tuple[str, str, str]], point: int, selector: str
) -> None:
    async def main() -> None:
        session = Session()
        for action in script:
            await session.act(*action)
        revision, state = session.states[min(point, len(session.states) - 1)]
        chosen = parse_selector(selector)

        def matching(all_of_them: dict[str, str]) -> dict[str, str]:
            return {name: tier for name, tier in all_of_them.items() if chosen.matches({"tier": tier} if tier else {})}

        events = await session.told(revision, labelSelector=selector)
        assert replayed(matching(state), events) == matching(session.states[-1][1])
        revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert revisions == sorted(set(revisions))

    run_virtual(main())


@settings(max_examples=40)
@given(actions)
def test_every_past_state_can_be_read_again(script: list[tuple[str, str, str]]) -> None:
    async def main() -> None:
        session = Session()
        for action in script:
            await session.act(*action)
        for revision, state in session.states:
            exact = {"resourceVersion": str(revision), "resourceVersionMatch": "Exact"}
            assert await session.listed(**exact) == state

    run_virtual(main())


@settings(max_examples=40)
@given(actions, st.integers(1, 3))
def test_pages_are_the_list_cut_into_pieces(script: list[tuple[str, str, str]], limit: int) -> None:
    async def main() -> None:
        session = Session()
        for action in script:
            await session.act(*action)
        whole = await session.listed()
        pages: dict[str, str] = {}
        query = {"limit": str(limit)}
        while True:
            answer = json.loads((await session.transport.request("GET", PATH, query=query)).body)
            for item in answer["items"]:
                assert item["metadata"]["name"] not in pages
                pages[item["metadata"]["name"]] = _tier(item)
            if not answer["metadata"].get("continue"):
                break
            query = {"limit": str(limit), "continue": answer["metadata"]["continue"]}
            await session.act("put", "z", "")
        assert pages == whole

    run_virtual(main())
