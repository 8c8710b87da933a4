"""What the server answered to a write is in the cache at once, and its echo on the watch brings nothing new."""

import asyncio
import json

import pytest

from faulty_api import FaultyApi, FaultyTransport
from kubetide.api.objects.core import ConfigMap
from kubetide.api.objects.meta import ObjectKey, ObjectMeta
from kubetide.api.objects.scheme import CONFIG_MAPS
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import MODIFIED, WatchEvent, find_expected

COLLECTION = "/api/v1/configmaps"
KEY = ObjectKey("shop", "web")
EXPECTED = {"41": WatchEvent(MODIFIED, ConfigMap(metadata=ObjectMeta(name="web")), KEY, "41")}


def line(kind: str = MODIFIED, version: str = "41", name: str = "web", note: str = "") -> bytes:
    metadata = {"name": name, "annotations": {"note": note}, "resourceVersion": version}
    return json.dumps({"type": kind, "object": {"metadata": metadata}}, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param(line(), True, id="the-echo"),
        pytest.param(line(version="42"), False, id="another-version"),
        pytest.param(line(kind="DELETED"), False, id="a-deletion"),
        pytest.param(line(name="other"), False, id="another-object"),
        pytest.param(line(version="42", note='"resourceVersion":"41"'), False, id="text-that-looks-like-it"),
        pytest.param(b'{"type":"MODIFIED","object":{}}', False, id="no-version"),
        pytest.param(b'{"type":"MODIFIED","object":{"resourceVersion":"\xff', False, id="no-text"),
    ],
)
def test_an_expected_change_is_recognised_by_its_version(given: bytes, found: bool) -> None:
    assert (find_expected(given, EXPECTED) is not None) is found


def test_an_answer_is_in_the_cache_before_the_watch_brings_it_and_handlers_hear_of_it_once() -> None:
    async def main() -> None:
        clock, api = virtual_clock(), FaultyApi()
        client = Client(FaultyTransport(api), clock=clock)
        informer = Informer(client, CONFIG_MAPS, clock=clock)
        heard: list[str] = []
        informer.add_handler(lambda _, new: heard.append(new.metadata.resource_version if new is not None else ""))
        stored = {"metadata": {"namespace": "shop", "name": "web", "uid": "1"}, "data": {"colour": "red"}}
        api.put(COLLECTION, stored)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(informer.run())
            await informer.wait_synced()
            listed = informer.store.get(KEY)
            assert listed is not None
            api.put(COLLECTION, {**stored, "data": {"colour": "blue"}})
            saved = await client.get(CONFIG_MAPS, "web", namespace="shop")
            informer.written(saved)
            informer.written(listed)
            assert informer.store.get(KEY) is saved
            await asyncio.sleep(5)
            assert informer.store.get(KEY) is saved
            assert informer.latest_version == saved.metadata.resource_version
            assert heard == [listed.metadata.resource_version, saved.metadata.resource_version]
            assert not informer._written
            # A change by somebody else is news, and the stream goes on.
            api.put(COLLECTION, {**stored, "data": {"colour": "green"}})
            await asyncio.sleep(5)
            changed = informer.store.get(KEY)
            assert changed is not None
            assert changed.data == {"colour": "green"}
            assert informer.relists == 1
            running.cancel()

    run_virtual(main())


def test_an_object_of_the_same_name_made_anew_is_not_taken_for_the_one_that_was_written() -> None:
    async def main() -> None:
        clock, api = virtual_clock(), FaultyApi()
        client = Client(FaultyTransport(api), clock=clock)
        informer = Informer(client, CONFIG_MAPS, clock=clock)
        api.put(COLLECTION, {"metadata": {"namespace": "shop", "name": "web", "uid": "1"}})
        async with asyncio.TaskGroup() as group:
            running = group.create_task(informer.run())
            await informer.wait_synced()
            listed = informer.store.get(KEY)
            meta = ObjectMeta(namespace="shop", name="web", uid="2", resource_version="999")
            informer.written(ConfigMap(metadata=meta))
            assert informer.store.get(KEY) is listed
            running.cancel()

    run_virtual(main())
