"""The table of built-in fields: what is known, what is dropped, what is complained about."""

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects import hpa_versions
from kubetide.embedded.apiserver.builtin import builtin_resources
from kubetide.embedded.apiserver.validation import fields
from kubetide.embedded.apiserver.validation.fields import Members

RESOURCES = builtin_resources(hpa_versions.to_v2, hpa_versions.v1_from_v2)


def pod_type() -> Members:
    found = fields.type_of("v1", "Pod")
    assert found is not None
    return found


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "labels": {"any": "thing"}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"example.com/gpu": "1"}}}], **spec},
    }


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda each: f"{each.api_version}-{each.kind}")
def test_every_built_in_kind_is_in_the_table(resource: Any) -> None:
    kind = fields.type_of(resource.api_version, resource.kind)
    assert kind is not None
    assert {"apiVersion", "kind", "metadata"} <= set(kind.fields)


@pytest.mark.parametrize(
    ("obj", "dropped"),
    [
        pytest.param(pod(), [], id="nothing-unknown"),
        pytest.param(pod(foo=1), ["spec.foo"], id="beside-known-ones"),
        pytest.param(pod(volumes=[{"name": "v", "csi": {"x": 1}}]), ["spec.volumes[0].csi.x"], id="in-a-list"),
        pytest.param(pod(nodeSelector={"x": "y"}), [], id="keys-of-a-map-are-no-fields"),
        pytest.param({**pod(), "Spec": {}}, ["Spec"], id="case-counts"),
        pytest.param(pod(containers="none"), [], id="wrong-types-are-for-others-to-find"),
        pytest.param(pod(containers=None, overhead=None), [], id="null"),
    ],
)
def test_unknown_fields_are_dropped_and_named(obj: dict[str, Any], dropped: list[str]) -> None:
    before = copy.deepcopy(obj)
    assert fields.prune(obj, pod_type()) == dropped
    assert (obj == before) is not bool(dropped)
    assert fields.prune(obj, pod_type()) == []


def test_a_type_inside_itself_is_walked_through() -> None:
    kind = fields.type_of("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    assert kind is not None
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string", "typo": 1}}}
    crd = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}
    assert not fields.knows(kind, crd)
    assert fields.prune(crd, kind) == ["spec.versions[0].schema.openAPIV3Schema.properties.a.typo"]


def test_what_may_be_anything_is_left_alone() -> None:
    kind = fields.type_of("apps/v1", "ControllerRevision")
    assert kind is not None
    revision = {"data": {"any": {"thing": [1]}}, "metadata": {"managedFields": [{"fieldsV1": {"f:any": {}}}]}}
    assert fields.knows(kind, revision)
    assert fields.complaints(b'{"data":{"a":1,"a":2}}', kind) == []


def leaves() -> st.SearchStrategy[Any]:
    return st.none() | st.integers() | st.text(max_size=3)


def values() -> st.SearchStrategy[Any]:
    names = st.sampled_from(["metadata", "spec", "containers", "name", "env", "labels", "foo", "status", "conditions"])
    return st.recursive(
        leaves(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=12
    )


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "foo"]), values()))
def test_the_quick_answer_never_hides_an_unknown_field(obj: dict[str, Any]) -> None:
    if fields.knows(pod_type(), obj):
        assert fields.prune(copy.deepcopy(obj), pod_type()) == []
    fields.prune(obj, pod_type())
    assert fields.prune(obj, pod_type()) == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param(b'{"spec":{"nodeName":"a"}}', [], id="nothing"),
        pytest.param(b'{"spec":{"nodeName":"a","nodeName":"b"}}', ['duplicate field "spec.nodeName"'], id="twice"),
        pytest.param(
            b'{"spec":{"foo":1,"nodeName":"a","nodeName":"b","bar":1}}',
            ['unknown field "spec.foo"', 'duplicate field "spec.nodeName"', 'unknown field "spec.bar"'],
            id="in-the-order-of-the-text",
        ),
        pytest.param(b'{"spec":{"foo":1,"foo":2}}', ['unknown field "spec.foo"'], id="unknown-and-twice-is-told-once"),
        pytest.param(b'{"metadata":{"labels":{"a":"1","a":"1"}}}', ['duplicate field "metadata.labels.a"'], id="map"),
        pytest.param(b"not json", [], id="not-json"),
    ],
)
def test_complaints_are_about_what_was_written(body: bytes, told: list[str]) -> None:
    assert fields.complaints(body, pod_type()) == told


@given(values())
def test_what_our_own_encoder_wrote_has_nothing_twice(value: Any) -> None:
    assert not fields.has_duplicates(msgspec.json.encode(value), value)
    assert fields.complaints(msgspec.json.encode(value), None) == []


@given(values(), st.sampled_from([None, 2]), st.booleans(), st.integers(0, 60))
def test_a_name_that_is_there_twice_is_never_overlooked(value: Any, indent: int | None, ascii_: bool, at: int) -> None:
    body = json.dumps({"a": value, "b": {'" :': value}}, indent=indent, ensure_ascii=ascii_)
    opened = [place for place, letter in enumerate(body) if letter == "{"]
    place = opened[at % len(opened)] + 1
    for text in (body, body[:place] + '"a" : {"c":1}, ' + body[place:], body[:place] + '"a":1,"a":1,' + body[place:]):
        try:
            decoded = msgspec.json.decode(text)
        except msgspec.DecodeError:
            continue
        if fields.complaints(text.encode(), None):
            assert fields.has_duplicates(text.encode(), decoded)


@pytest.mark.parametrize(
    ("body", "twice"),
    [
        pytest.param(b'{"data": {"a": "x", "b": "y"}}', False, id="spaces"),
        pytest.param(b'{"data": {"a": "\\"a\\": 1", "b": "y"}}', False, id="text-that-looks-like-a-member"),
        pytest.param(b'{"data": {"a": "x", "a" : "y"}}', True, id="twice"),
        pytest.param(b'{"data": {"a": "\\u0022:", "b": 1, "b": 2}}', True, id="a-quote-by-its-code-point"),
    ],
)
def test_only_what_may_be_there_twice_is_read_again(body: bytes, twice: bool) -> None:
    assert fields.has_duplicates(body, None) is twice


def test_nulls_in_lists_and_maps_become_empty_and_nulls_for_fields_stay() -> None:
    obj: dict[str, Any] = {
        "metadata": {"labels": {"a": None}, "finalizers": [None], "creationTimestamp": None},
        "spec": {
            "containers": [None, {"args": [None], "resources": {"limits": {"cpu": None}}}],
            "securityContext": {"supplementalGroups": [None, 5]},
            "tolerations": None,
        },
    }
    assert not fields.knows(pod_type(), obj)
    assert fields.prune(obj, pod_type()) == []
    assert obj["metadata"] == {"labels": {"a": ""}, "finalizers": [""], "creationTimestamp": None}
    assert obj["spec"]["containers"] == [{}, {"args": [""], "resources": {"limits": {"cpu": "0"}}}]
    assert obj["spec"]["securityContext"]["supplementalGroups"] == [0, 5]
    assert obj["spec"]["tolerations"] is None
    assert fields.knows(pod_type(), obj)


def test_a_null_that_may_be_anything_stays_null() -> None:
    kind = fields.type_of("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    assert kind is not None
    versions = [{"schema": {"openAPIV3Schema": {"enum": [None, "a"]}}}, None]
    obj: dict[str, Any] = {"spec": {"versions": versions}}
    assert fields.prune(obj, kind) == []
    assert obj["spec"]["versions"] == [{"schema": {"openAPIV3Schema": {"enum": [None, "a"]}}}, {}]
