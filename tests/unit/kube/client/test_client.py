"""The client's verbs against a small server in memory."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from faulty_api import FaultPlan, FaultyApi, FaultyTransport
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import CONFIG_MAPS, NODES, PODS
from kubetide.api.values.codec import decode_raw
from kubetide.api.values.patch import JsonPatch, MergePatch, StrategicMergePatch
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.errors import DecodeError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, Conflict, Gone, InternalError, NotFound, TooManyRequests
from kubetide.kube.client.transport import Response

COLLECTION = "/api/v1/configmaps"


def config_map(name: str, namespace: str = "shop", **data: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "data": data}


def refusal(code: int, reason: str = "", retry_after: str = "") -> Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": reason}
    return Response(code, {"retry-after": retry_after} if retry_after else {}, json.dumps(body).encode())


class Refuses(FaultPlan):
    """Refuses the first requests with the answers given."""

    def __init__(self, *answers: Response) -> None:
        self.answers = list(answers)

    def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
        return self.answers.pop(0) if self.answers else None


def client(api: FaultyApi, faults: FaultPlan | None = None, **options: Any) -> Client:
    return Client(FaultyTransport(api, faults), clock=virtual_clock(), **options)


def test_an_object_is_created_read_changed_and_deleted() -> None:
    async def main() -> None:
        api = FaultyApi()
        kube = client(api)
        made = await kube.create(CONFIG_MAPS, config_map("a", colour="red"), namespace="shop")
        assert made.metadata.resource_version
        read = await kube.get(CONFIG_MAPS, "a", namespace="shop")
        assert read.data == {"colour": "red"}
        patched = await kube.patch(CONFIG_MAPS, "a", MergePatch({"data": {"size": "xl"}}), namespace="shop")
        assert patched.data == {"colour": "red", "size": "xl"}
        raw = await kube.get_raw(CONFIG_MAPS, "a", namespace="shop")
        assert raw["data"] == patched.data
        await kube.delete(CONFIG_MAPS, "a", namespace="shop")
        with pytest.raises(NotFound):
            await kube.get(CONFIG_MAPS, "a", namespace="shop")

    run_virtual(main())


def test_rejections_are_raised_by_their_reason() -> None:
    async def main() -> None:
        api = FaultyApi()
        kube = client(api)
        await kube.create(CONFIG_MAPS, config_map("a"), namespace="shop")
        with pytest.raises(AlreadyExists):
            await kube.create(CONFIG_MAPS, config_map("a"), namespace="shop")
        stale = {**config_map("a"), "metadata": {"namespace": "shop", "name": "a", "resourceVersion": "1"}}
        with pytest.raises(Conflict):
            await kube.update(CONFIG_MAPS, "a", stale, namespace="shop")

    run_virtual(main())


def test_a_list_is_read_page_by_page() -> None:
    async def main() -> None:
        api = FaultyApi()
        for index in range(25):
            api.put(COLLECTION, config_map(f"c{index:02}", "shop" if index % 2 else "bar"))
        listing = await client(api).list(CONFIG_MAPS, limit=10)
        assert sorted(each.metadata.name for each in listing.items) == [f"c{index:02}" for index in range(25)]
        assert listing.resource_version == str(api.version)
        assert len(api.requests) == 3
        one = await client(api).list(CONFIG_MAPS, namespace="shop", limit=10)
        assert len(one.items) == 12

    run_virtual(main())


def test_an_expired_continue_token_starts_the_list_over_in_one_piece() -> None:
    class ForgetsAfterFirstPage(FaultPlan):
        def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
            if query.get("continue"):
                api.forget_history()
                api.put(COLLECTION, config_map("late"))
                api.forget_history()
            return None

    api: FaultyApi

    async def main() -> None:
        nonlocal api
        api = FaultyApi()
        for index in range(5):
            api.put(COLLECTION, config_map(f"c{index}"))
        listing = await client(api, ForgetsAfterFirstPage()).list(CONFIG_MAPS, limit=2)
        assert sorted(each.metadata.name for each in listing.items) == ["c0", "c1", "c2", "c3", "c4", "late"]
        assert "limit" not in api.requests[-1][2]

    run_virtual(main())


def test_a_server_that_is_busy_is_asked_again_when_it_reports_it() -> None:
    async def main() -> None:
        api = FaultyApi()
        api.put(COLLECTION, config_map("a"))
        kube = client(api, Refuses(refusal(429, "TooManyRequests", "7"), refusal(503, "", "3")))
        started = kube.clock.monotonic()
        await kube.get(CONFIG_MAPS, "a", namespace="shop")
        assert kube.clock.monotonic() - started == pytest.approx(10)

    run_virtual(main())


def test_an_error_without_retry_after_is_raised_at_once() -> None:
    async def main() -> None:
        kube = client(FaultyApi(), Refuses(refusal(500, "InternalError")))
        started = kube.clock.monotonic()
        with pytest.raises(InternalError):
            await kube.get(CONFIG_MAPS, "a", namespace="shop")
        assert kube.clock.monotonic() == started

    run_virtual(main())


def test_a_busy_server_is_not_asked_for_ever() -> None:
    async def main() -> None:
        api = FaultyApi()
        kube = client(api, Refuses(*[refusal(429, "TooManyRequests", "1")] * 50))
        with pytest.raises(TooManyRequests):
            await kube.get(CONFIG_MAPS, "a", namespace="shop")
        assert len(api.requests) == 11

    run_virtual(main())


def test_an_eviction_that_a_budget_forbids_is_answered_at_once() -> None:
    async def main() -> None:
        api = FaultyApi()
        kube = client(api, Refuses(refusal(429, "TooManyRequests", "10")))
        with pytest.raises(TooManyRequests):
            await kube.evict("web-1", namespace="shop", uid="u1", grace_period_seconds=5)
        method, path, _, body = api.requests[0]
        assert (method, path) == ("POST", "/api/v1/namespaces/shop/pods/web-1/eviction")
        assert decode_raw(body or b"") == {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "web-1", "namespace": "shop"},
            "deleteOptions": {"gracePeriodSeconds": 5, "preconditions": {"uid": "u1"}},
        }
        assert len(api.requests) == 1

    run_virtual(main())


@pytest.mark.parametrize(
    ("patch", "content_type"),
    [
        pytest.param(MergePatch({}), "application/merge-patch+json", id="merge"),
        pytest.param(JsonPatch([]), "application/json-patch+json", id="json"),
        pytest.param(StrategicMergePatch({}), "application/strategic-merge-patch+json", id="strategic"),
    ],
)
def test_a_patch_says_what_kind_it_is(patch: Any, content_type: str) -> None:
    class Records(FaultyTransport):
        async def request(self, method: str, path: str, **options: Any) -> Response:
            sent.append((method, path, options))
            return Response(200, {}, b"{}")

    sent: list[tuple[str, str, dict[str, Any]]] = []

    async def main() -> None:
        kube = Client(Records(FaultyApi()), clock=virtual_clock())
        await kube.patch(PODS, "p", patch, namespace="shop", subresource="resize", field_manager="me", dry_run=True)

    run_virtual(main())
    method, path, options = sent[0]
    assert (method, path) == ("PATCH", "/api/v1/namespaces/shop/pods/p/resize")
    assert options["content_type"] == content_type
    assert options["query"] == {"dryRun": "All", "fieldManager": "me"}


def test_a_deletion_carries_its_conditions() -> None:
    async def main() -> None:
        api = FaultyApi()
        version = api.put("/api/v1/nodes", {"metadata": {"name": "n1", "uid": "u"}})["metadata"]["resourceVersion"]
        await client(api).delete(
            NODES, "n1", grace_period_seconds=0, propagation="Background", uid="u", resource_version=version
        )
        assert api.objects("/api/v1/nodes") == {}
        assert decode_raw(api.requests[-1][3] or b"") == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Background",
            "preconditions": {"uid": "u", "resourceVersion": version},
        }

    run_virtual(main())


def test_a_watch_yields_changes_and_bookmarks_until_the_server_ends_it() -> None:
    async def main() -> None:
        api = FaultyApi()
        api.ensure_namespace("shop")
        start = api.version
        api.put(COLLECTION, config_map("a", colour="red"))
        api.put(COLLECTION, config_map("a", colour="blue"))
        api.remove(COLLECTION, ObjectKey("shop", "a"))
        stream = client(api).watch(CONFIG_MAPS, resource_version=str(start), timeout_seconds=90)
        seen = [(event.type, int(event.resource_version) - start) async for event in stream]
        assert seen[:3] == [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 3)]
        assert set(seen[3:]) == {("BOOKMARK", 3)}

    run_virtual(main())


def test_a_watch_from_too_old_a_version_raises_gone() -> None:
    async def main() -> None:
        api = FaultyApi()
        api.put(COLLECTION, config_map("a"))
        api.forget_history()
        with pytest.raises(Gone):
            async for _ in client(api).watch(CONFIG_MAPS, resource_version="5"):
                pass

    run_virtual(main())


def test_an_unreadable_object_is_named_in_the_list_and_does_not_hide_the_others() -> None:
    async def main() -> None:
        api = FaultyApi()
        api.put(COLLECTION, config_map("good", colour="red"))
        api.put(COLLECTION, {"metadata": {"namespace": "shop", "name": "bad"}, "data": {"colour": ["no", "text"]}})
        listing = await client(api).list(CONFIG_MAPS)
        assert [each.metadata.name for each in listing.items] == ["good"]
        assert [each.key for each in listing.rejected] == [ObjectKey("shop", "bad")]
        assert "shop/bad" in str(listing.rejected[0].error)

    run_virtual(main())


def test_an_unreadable_object_stops_a_plain_watch_with_its_name() -> None:
    async def main() -> None:
        api = FaultyApi()
        bad = api.put(COLLECTION, {"metadata": {"namespace": "shop", "name": "bad"}, "data": 7})
        before = int(bad["metadata"]["resourceVersion"]) - 1
        with pytest.raises(DecodeError, match="shop/bad"):
            await anext(aiter(client(api).watch(CONFIG_MAPS, resource_version=str(before))))

    run_virtual(main())


def test_requests_in_flight_are_bounded() -> None:
    class Counts(FaultyTransport):
        running = peak = 0

        async def request(self, method: str, path: str, **options: Any) -> Response:
            self.running += 1
            self.peak = max(self.peak, self.running)
            await asyncio.sleep(1)
            self.running -= 1
            return Response(200, {}, b"{}")

    async def main() -> None:
        transport = Counts(FaultyApi())
        kube = Client(transport, clock=virtual_clock(), concurrency=4)
        await asyncio.gather(*[kube.request("GET", "/api") for _ in range(20)])
        assert transport.peak == 4
        assert kube.clock.monotonic() == pytest.approx(5)

    run_virtual(main())


def test_a_rate_is_kept_where_one_is_set() -> None:
    async def main() -> None:
        api = FaultyApi()
        api.put(COLLECTION, config_map("a"))
        kube = client(api, qps=10, burst=5)
        for _ in range(25):
            await kube.get(CONFIG_MAPS, "a", namespace="shop")
        assert kube.clock.monotonic() == pytest.approx(2.0, abs=0.01)

    run_virtual(main())
