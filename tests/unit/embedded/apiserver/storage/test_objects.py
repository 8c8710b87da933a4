"""The store: revisions, order, history and its window."""

from typing import Any

import pytest

from kubetide.embedded.apiserver.rest.status import StatusError
from kubetide.embedded.apiserver.storage.objects import ObjectStore, ResourceKey, StoreKey

CONFIGS = ResourceKey("", "configmaps")
SECRETS = ResourceKey("", "secrets")


def put(store: ObjectStore, name: str, namespace: str = "default", **data: Any) -> int:
    obj = {"metadata": {"name": name, "namespace": namespace}, "data": data}
    return store.put(CONFIGS, StoreKey(namespace, name), obj).revision


def names(store: ObjectStore, namespace: str | None = None) -> list[str]:
    return [entry.key.name for entry in store.collection(CONFIGS).entries(namespace)]


def test_every_change_gets_the_next_revision_and_writes_it_into_the_object() -> None:
    store = ObjectStore(revision=10)
    assert [put(store, "a"), put(store, "b"), put(store, "a")] == [11, 12, 13]
    entry = store.get(CONFIGS, StoreKey("default", "a"))
    assert entry is not None
    assert entry.obj["metadata"]["resourceVersion"] == "13"


def test_a_deleted_object_leaves_its_last_state_with_the_revision_of_the_deletion() -> None:
    store = ObjectStore()
    put(store, "a", x="1")
    last = store.delete(CONFIGS, StoreKey("default", "a"))
    assert last.obj["data"] == {"x": "1"}
    assert last.obj["metadata"]["resourceVersion"] == str(store.revision)
    assert names(store) == []


def test_entries_are_sorted_within_and_across_namespaces() -> None:
    store = ObjectStore()
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y")):
        put(store, name, namespace)
    assert names(store) == ["y", "z", "x"]
    put(store, "y", "a")
    assert names(store, "a") == ["y", "z"]
    assert len(store.collection(CONFIGS)) == 3


def test_the_past_is_the_present_with_the_log_undone() -> None:
    store = ObjectStore()
    put(store, "kept", v="1")
    then = put(store, "changed", v="1")
    put(store, "changed", v="2")
    put(store, "added")
    store.delete(CONFIGS, StoreKey("default", "kept"))
    past = store.collection(CONFIGS).entries_at(then, None)
    assert [(entry.key.name, entry.obj["data"]) for entry in past] == [("changed", {"v": "1"}), ("kept", {"v": "1"})]


def test_history_is_kept_for_a_window_and_no_longer() -> None:
    store = ObjectStore(window=10)
    first = put(store, "a")
    for _ in range(30):
        newest = put(store, "a")
    log = store.collection(CONFIGS).log
    assert len(log) <= 20
    assert log.position_after(newest) == log.end
    with pytest.raises(StatusError) as gone:
        log.position_after(first)
    assert gone.value.code == 410
    with pytest.raises(StatusError):
        log.read(0)


def test_an_entry_encodes_once_and_copies_deeply() -> None:
    store = ObjectStore()
    put(store, "a", x="1")
    entry = store.get(CONFIGS, StoreKey("default", "a"))
    assert entry is not None
    assert entry.encoded is entry.encoded
    copy = entry.copy()
    copy["data"]["x"] = "changed"
    assert entry.obj["data"]["x"] == "1"


def test_listeners_hear_of_a_change_before_watches_do() -> None:
    store = ObjectStore()
    heard: list[str] = []
    store.listen(lambda resource, event: heard.append(f"listener {event.change}"))
    store.collection(CONFIGS).log.subscribe(lambda: heard.append("watch"))
    put(store, "a")
    assert heard == ["listener ADDED", "watch"]


def test_a_listener_of_some_resources_hears_of_no_others_whenever_it_came() -> None:
    store = ObjectStore()
    heard: list[str] = []
    store.listen(lambda resource, event: heard.append(f"all: {resource.plural}"))
    store.listen(lambda resource, event: heard.append(f"secrets: {resource.plural}"), SECRETS)
    put(store, "a")
    store.put(SECRETS, StoreKey("default", "s"), {"metadata": {"name": "s", "namespace": "default"}})
    store.listen(lambda resource, event: heard.append(f"configs: {resource.plural}"), CONFIGS)
    put(store, "a")
    told = ["all: configmaps", "all: secrets", "secrets: secrets", "all: configmaps", "configs: configmaps"]
    assert heard == told


def test_reading_makes_no_resource() -> None:
    store = ObjectStore()
    assert store.get(CONFIGS, StoreKey("default", "a")) is None
    assert store.resources() == []


def test_a_deletion_has_a_version_of_its_own_and_leaves_the_last_state_alone() -> None:
    store = ObjectStore()
    put(store, "a", v="1")
    before = store.get(CONFIGS, StoreKey("default", "a"))
    assert before is not None
    text = before.encoded
    gone = store.delete(CONFIGS, StoreKey("default", "a"))
    assert gone.obj["metadata"]["resourceVersion"] == str(store.revision)
    assert gone.obj["data"] == {"v": "1"}
    assert before.encoded == text
    assert before.obj["metadata"]["resourceVersion"] == str(store.revision - 1)


def test_a_replaced_object_can_still_be_read_once_its_encoded_form_is_all_that_is_left() -> None:
    store = ObjectStore()
    put(store, "a", v="1")
    first = store.get(CONFIGS, StoreKey("default", "a"))
    assert first is not None
    text = first.encoded
    put(store, "a", v="2")
    assert first.encoded == text
    assert first.obj["data"] == {"v": "1"}
    assert first.copy() == first.obj


def test_an_old_change_is_told_in_the_same_words_as_when_it_was_new() -> None:
    store = ObjectStore()
    for number in range(1200):
        put(store, "a", v=str(number))
        store.collection(CONFIGS).log.read(number)[0].line  # noqa: B018 - whoever reads it makes it
    lines = [event.line for event in store.collection(CONFIGS).log.read(0, 1200)]
    assert [b'"v":"%d"' % number in line for number, line in enumerate(lines)] == [True] * 1200
