"""The three kinds of patches, applied to raw objects."""

import copy
from typing import Any

import pytest

from kubetide.api.patch import JsonPatch, MergePatch, StrategicMergePatch, merge_diff
from kubetide.api.pointer import escape_step
from kubetide.errors import PatchError

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


def test_json_test_tells_true_from_one() -> None:
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


def test_the_difference_of_two_objects_is_a_merge_patch() -> None:
    old = {"a": 1, "b": {"x": 1, "y": [1]}, "gone": True}
    new = {"a": 1, "b": {"x": 2, "y": [1]}, "new": {"z": 1}}
    assert merge_diff(old, new) == {"b": {"x": 2}, "gone": None, "new": {"z": 1}}
    assert merge_diff(old, old) == {}
    assert merge_diff({"a": 1}, {"a": True}) == {"a": True}


def test_pointer_steps_escape_slash_and_tilde() -> None:
    assert escape_step("a/b~c") == "a~1b~0c"
