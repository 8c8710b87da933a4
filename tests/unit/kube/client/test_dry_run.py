"""The transport of a dry run: reads pass, writes are answered as the server would, and none is sent."""

from typing import Any

import msgspec
import pytest

from faulty_api import FaultyApi, FaultyTransport
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import CONFIG_MAPS
from kubetide.api.values.patch import JsonPatch, MergePatch
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.dry_run import DryRunTransport, HeldWrite, parse_path
from kubetide.kube.client.errors import Invalid, NotFound

COLLECTION = "/api/v1/configmaps"
KEY = ObjectKey("default", "settings")


@pytest.mark.parametrize(
    ("path", "plural", "key", "subresource"),
    [
        ("/api/v1/nodes/node-1/status", "nodes", ObjectKey("", "node-1"), "status"),
        ("/api/v1/namespaces/shop/pods/web/eviction", "pods", ObjectKey("shop", "web"), "eviction"),
        ("/api/v1/namespaces/shop", "namespaces", ObjectKey("", "shop"), ""),
        ("/apis/apps/v1/namespaces/shop/deployments", "deployments", ObjectKey("shop", ""), ""),
        ("/apis/a.b/v1/things/a%2Fb", "things", ObjectKey("", "a/b"), ""),
    ],
)
def test_a_path_is_taken_apart(path: str, plural: str, key: ObjectKey, subresource: str) -> None:
    place = parse_path(path)
    assert (place.plural, place.key, place.subresource) == (plural, key, subresource)


def test_writes_are_answered_and_not_sent() -> None:
    held: list[HeldWrite] = []

    async def main() -> None:
        api = FaultyApi()
        api.put(COLLECTION, {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "data": {"a": "1"}})
        client = Client(DryRunTransport(FaultyTransport(api), held.append), clock=virtual_clock())
        patched = await client.patch(CONFIG_MAPS, KEY.name, MergePatch({"data": {"a": "2"}}), namespace=KEY.namespace)
        assert patched.data == {"a": "2"}, "who writes sees what it wrote"
        again = await client.patch(CONFIG_MAPS, KEY.name, MergePatch({"data": {"a": "2"}}), namespace=KEY.namespace)
        assert again == patched
        made: dict[str, Any] = {"metadata": {"name": "new"}, "data": {"b": "1"}}
        assert (await client.create(CONFIG_MAPS, made, namespace="default")).data == {"b": "1"}
        await client.delete(CONFIG_MAPS, KEY.name, namespace=KEY.namespace)
        with pytest.raises(NotFound):
            await client.patch(CONFIG_MAPS, "nosuch", MergePatch({}), namespace=KEY.namespace)
        wrong = JsonPatch([{"op": "test", "path": "/data/a", "value": "9"}])
        with pytest.raises(Invalid):
            await client.patch(CONFIG_MAPS, KEY.name, wrong, namespace=KEY.namespace)
        read = await client.get(CONFIG_MAPS, KEY.name, namespace=KEY.namespace)
        assert read.data == {"a": "1"}, "nothing was written"
        assert set(api.objects(COLLECTION)) == {KEY}

    run_virtual(main())
    assert [write.method for write in held] == ["PATCH", "PATCH", "POST", "DELETE"]
    assert held[0].before is not None
    assert held[0].after is not None
    assert (held[0].before["data"], held[0].after["data"]) == ({"a": "1"}, {"a": "2"})
    assert held[2].place.key == ObjectKey("default", "new")
    assert msgspec.json.encode(held[2].after)
