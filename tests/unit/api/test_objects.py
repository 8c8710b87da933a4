"""Every object that kubetide reads is tolerant: of fields it does not know, of nulls, of times in all spellings."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kubetide.api.objects import scheme
from kubetide.api.objects.core import ConfigMap
from kubetide.api.objects.events import EventType, RecordedEvent, normal, reference_to, warning
from kubetide.api.objects.meta import ObjectMeta, TypedObject
from kubetide.api.objects.scheme import Resource
from kubetide.api.values.codec import decode

RESOURCES: dict[str, Resource[Any]] = {
    name: found for name, found in vars(scheme).items() if isinstance(found, Resource)
}


@pytest.mark.parametrize("name", sorted(RESOURCES))
def test_unknown_fields_and_nulls_are_read_as_absent(name: str) -> None:
    kind = RESOURCES[name].type
    empty = decode(b"{}", kind)
    nulls = b'{"apiVersion":"x/v1","kind":"X","metadata":{"labels":null,"annotations":null,"ownerReferences":null},'
    found = decode(nulls + b'"spec":null,"status":null,"data":null,"added":{"later":[1,{}]}}', kind)
    assert found.metadata == empty.metadata
    for field in ("spec", "status", "data"):
        assert getattr(found, field, None) == getattr(empty, field, None)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        pytest.param("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), id="seconds"),
        pytest.param("2026-01-02T03:04:05.678901Z", datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), id="fractions"),
        pytest.param("2026-01-02T04:04:05+01:00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), id="offset"),
    ],
)
def test_times_are_aware_in_every_spelling(text: str, moment: datetime) -> None:
    found = decode(f'{{"metadata":{{"creationTimestamp":"{text}"}}}}'.encode(), TypedObject)
    assert found.metadata.creation_timestamp == moment
    assert found.metadata.creation_timestamp is not None
    assert found.metadata.creation_timestamp.tzinfo is not None


def test_events_are_read_in_both_of_their_shapes() -> None:
    core = decode(b'{"involvedObject":{"name":"web"},"message":"m","count":3}', RecordedEvent)
    newer = decode(b'{"regarding":{"name":"web"},"note":"m"}', RecordedEvent)
    assert core.involved_object is not None
    assert newer.regarding is not None
    assert (core.involved_object.name, core.message, core.count) == ("web", "m", 3)
    assert (newer.regarding.name, newer.note) == ("web", "m")


def test_an_event_names_its_object_although_a_listed_object_does_not_know_its_kind() -> None:
    config = ConfigMap(metadata=ObjectMeta(name="c", namespace="n", uid="u", resource_version="7"))
    about = reference_to(config, kind="ConfigMap", api_version="v1")
    assert (about.kind, about.namespace, about.name, about.uid, about.resource_version) == (
        "ConfigMap",
        "n",
        "c",
        "u",
        "7",
    )
    assert warning(about, "R", "m").type is EventType.WARNING
    assert normal(about, "R", "m").type is EventType.NORMAL


@pytest.mark.parametrize("name", sorted(RESOURCES))
def test_paths_are_those_of_the_api_server(name: str) -> None:
    found = RESOURCES[name]
    root = f"/apis/{found.group}/{found.version}" if found.group else f"/api/{found.version}"
    assert found.path() == f"{root}/{found.plural}"
    if found.namespaced:
        assert found.path(namespace="n", name="x") == f"{root}/namespaces/n/{found.plural}/x"
    else:
        assert found.path(name="x", subresource="status") == f"{root}/{found.plural}/x/status"
