"""The three kinds of patches, applied to raw objects."""

import copy
from typing import Any

import pytest

from kubetide.api.values.patch import RESULT_LIMIT, JsonPatch, MergePatch, StrategicMergePatch
from kubetide.api.values.pointer import escape_step
from kubetide.errors import PatchError, PatchTooLarge

POD: dict[str, Any] = {
    "metadata": {"name": "web", "finalizers": ["a", "b"], "labels": {"app": "web"}},
    "spec": {
        "containers": [
            {"name": "app", "image": "app:1", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]},
            {"name": "log", "image": "log:1"},
        ],
        "tolerations": [{"key": "x"}],
    },
}


def test_merge_patch_replaces_members_and_null_removes() -> None:
    patch = MergePatch({"metadata": {"labels": {"app": None, "tier": "front"}}, "spec": {"tolerations": []}})
    result = patch.apply(POD)
    assert result["metadata"]["labels"] == {"tier": "front"}
    assert result["spec"]["tolerations"] == []
    assert result["spec"]["containers"] == POD["spec"]["containers"]


@pytest.mark.parametrize(
    ("operations", "path", "expected"),
    [
        pytest.param([("add", "/metadata/labels/x~1y", "1")], ["metadata", "labels", "x/y"], "1", id="escaped-key"),
        pytest.param(
            [("replace", "/spec/containers/0/image", "app:2")],
            ["spec", "containers", 0, "image"],
            "app:2",
            id="replace",
        ),
        pytest.param(
            [("add", "/metadata/finalizers/0", "z")], ["metadata", "finalizers"], ["z", "a", "b"], id="insert"
        ),
        pytest.param(
            [("add", "/metadata/finalizers/-", "z")], ["metadata", "finalizers"], ["a", "b", "z"], id="append"
        ),
        pytest.param([("remove", "/metadata/finalizers/0", None)], ["metadata", "finalizers"], ["b"], id="remove"),
    ],
)
def test_json_patch_changes_places(operations: list[tuple[str, str, Any]], path: list[Any], expected: Any) -> None:
    changes = [{"op": op, "path": where, "value": value} for op, where, value in operations]
    result: Any = JsonPatch(changes).apply(POD)
    for step in path:
        result = result[step]
    assert result == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/nothing"},
        {"op": "replace", "path": "/nothing", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "add", "path": "metadata", "value": 1},
        {"op": "add", "path": "/metadata/finalizers/9", "value": 1},
        {"op": "add", "path": "/metadata/finalizers/01", "value": 1},
        {"op": "add", "path": "/metadata"},
        {"op": "test", "path": "/metadata/name", "value": "other"},
        {"op": "move", "from": "/metadata", "path": "/metadata/labels"},
        {"op": "explode", "path": "/metadata"},
    ],
    ids=lambda o: f"{o['op']}-{o['path']}",
)
def test_an_operation_that_does_not_fit_is_refused_with_its_number(operation: dict[str, Any]) -> None:
    with pytest.raises(PatchError, match=r"\[1\]"):
        JsonPatch([{"op": "test", "path": "/metadata/name", "value": "web"}, operation]).apply(POD)


def test_json_test_distinguishes_true_from_one() -> None:
    with pytest.raises(PatchError):
        JsonPatch([{"op": "test", "path": "/a", "value": True}]).apply({"a": 1})


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param(
            {"spec": {"containers": [{"name": "app", "image": "app:2"}]}},
            [("app", "app:2"), ("log", "log:1")],
            id="merges-by-name",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "new", "image": "new:1"}]}},
            [("new", "new:1"), ("app", "app:1"), ("log", "log:1")],
            id="puts-a-new-element-first",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "app", "$patch": "delete"}]}}, [("log", "log:1")], id="deletes-one"
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "only", "image": "o:1"}, {"$patch": "replace"}]}},
            [("only", "o:1")],
            id="replaces-the-list",
        ),
        pytest.param(
            {"spec": {"$setElementOrder/containers": [{"name": "log"}, {"name": "app"}]}},
            [("log", "log:1"), ("app", "app:1")],
            id="reorders",
        ),
    ],
)
def test_strategic_merge_knows_containers(patch: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    result = StrategicMergePatch(patch).apply(POD)
    assert [(c["name"], c["image"]) for c in result["spec"]["containers"]] == expected


def test_strategic_merge_of_nested_lists_sets_and_atomic_lists() -> None:
    patch = {
        "metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]},
        "spec": {
            "containers": [
                {"name": "app", "env": [{"name": "B", "value": "2"}], "ports": [{"containerPort": 80, "name": "http"}]}
            ],
            "tolerations": [{"key": "y"}],
        },
    }
    result = StrategicMergePatch(patch).apply(POD)
    app = result["spec"]["containers"][0]
    assert app["env"] == [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]
    assert app["ports"] == [{"containerPort": 80, "name": "http"}]
    assert result["metadata"]["finalizers"] == ["b", "c"]
    assert result["spec"]["tolerations"] == [{"key": "y"}]


def test_retain_keys_drops_the_others() -> None:
    patch = {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}
    result = StrategicMergePatch(patch).apply({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}})
    assert result == {"strategy": {"type": "Recreate"}}


def test_an_element_without_its_merge_key_is_refused() -> None:
    with pytest.raises(PatchError, match="merge key"):
        StrategicMergePatch({"spec": {"containers": [{"name": "a"}, {"image": "x"}]}}).apply(POD)


def test_applying_never_changes_the_input() -> None:
    before = copy.deepcopy(POD)
    MergePatch({"metadata": {"labels": {"app": None}}}).apply(POD)
    JsonPatch([{"op": "remove", "path": "/spec/containers/0"}]).apply(POD)
    StrategicMergePatch({"spec": {"containers": [{"name": "app", "image": "x"}]}}).apply(POD)
    assert before == POD


def test_pointer_steps_escape_slash_and_tilde() -> None:
    assert escape_step("a/b~c") == "a~1b~0c"


def doubling(times: int) -> JsonPatch:
    """Copies a list into itself again and again."""
    return JsonPatch([{"op": "copy", "from": "/data", "path": "/data/-"}] * times)


def test_copies_that_double_the_document_are_refused_before_they_are_made() -> None:
    assert doubling(3).apply({"data": [1]}) == {"data": [1, [1], [1, [1]], [1, [1], [1, [1]]]]}
    for times in (25, 40, 5000):
        with pytest.raises(PatchTooLarge, match="copies more than"):
            doubling(times).apply({"data": ["x" * 20]})


def test_a_patch_with_copies_leaves_no_object_larger_than_a_request() -> None:
    text = "x" * (RESULT_LIMIT // 2)
    patch = JsonPatch([{"op": "copy", "from": "/a", "path": "/b"}])
    assert patch.apply({"a": text[:-100]})["b"] == text[:-100]
    with pytest.raises(PatchTooLarge, match="the result is larger than"):
        patch.apply({"a": text})


def test_many_operations_on_a_long_list_are_refused() -> None:
    long = {"data": [0] * 100_000}
    append = {"op": "add", "path": "/data/-", "value": 1}
    assert len(JsonPatch([append] * 10).apply(long)["data"]) == 100_010
    with pytest.raises(PatchTooLarge, match="too many members and elements"):
        JsonPatch([append] * 5000).apply(long)
    with pytest.raises(PatchTooLarge, match="more than 10000"):
        JsonPatch([append] * 10_001).apply({"data": []})


def test_a_pointer_deeper_than_any_object_is_refused() -> None:
    with pytest.raises(PatchError, match="more than 500 steps"):
        JsonPatch([{"op": "remove", "path": "/a" * 501}]).apply({})


def test_long_lists_merge_in_time_linear_in_their_length() -> None:
    many = [{"name": f"c{number}"} for number in range(50_000)]
    images = [{**item, "image": "x"} for item in many]
    assert StrategicMergePatch({"containers": images}).apply({"containers": many}) == {"containers": images}
    gone = [{**item, "$patch": "delete"} for item in many]
    assert StrategicMergePatch({"containers": gone}).apply({"containers": many}) == {"containers": []}
    texts = [f"f{number}" for number in range(50_000)]
    assert StrategicMergePatch({"finalizers": texts}).apply({"finalizers": texts}) == {"finalizers": texts}


def test_of_elements_with_one_key_the_first_is_merged_and_deleted_first() -> None:
    twice = {"containers": [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}]}
    delete = {"name": "a", "$patch": "delete"}
    assert StrategicMergePatch({"containers": [delete]}).apply(twice) == {"containers": [{"name": "a", "image": "2"}]}
    changed = StrategicMergePatch({"containers": [delete, {"name": "a", "image": "3"}]}).apply(twice)
    assert changed == {"containers": [{"name": "a", "image": "3"}]}
