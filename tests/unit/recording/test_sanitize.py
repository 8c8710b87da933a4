"""Nothing gets into a recording that is not on the list."""

from typing import Any

import msgspec

from kubetide.recording.core.pseudonyms import Pseudonyms
from kubetide.recording.core.sanitize import sanitized

POD: dict[str, Any] = {
    "metadata": {
        "name": "web-1",
        "namespace": "shop",
        "labels": {"app": "web"},
        "annotations": {"kubetide.io/x": "1", "vault/secret": "hunter2"},
        "managedFields": [{"manager": "hunter2"}],
    },
    "spec": {
        "nodeName": "node-1",
        "volumes": [{"secret": {"secretName": "hunter2"}}],
        "containers": [
            {
                "name": "app",
                "image": "registry/hunter2",
                "command": ["hunter2"],
                "env": [{"name": "PASSWORD", "value": "hunter2"}],
                "resources": {"requests": {"cpu": "1"}},
            }
        ],
    },
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "containerStatuses": [
            {
                "name": "app",
                "restartCount": 1,
                "imageID": "hunter2",
                "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137, "message": "hunter2"}},
            }
        ],
    },
}


def test_a_pod_keeps_what_autoscaling_reads_and_nothing_else() -> None:
    kept = sanitized("Pod", POD)
    assert kept is not None
    assert "hunter2" not in msgspec.json.encode(kept).decode()
    assert kept["metadata"]["annotations"] == {"kubetide.io/x": "1"}
    assert kept["spec"]["containers"] == [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]
    assert kept["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] == "OOMKilled"


def test_other_kinds_are_not_recorded() -> None:
    assert sanitized("Secret", {"data": {"a": "b"}}) is None
    assert sanitized("ConfigMap", {"data": {"a": "b"}}) is None


def test_pseudonyms_are_consistent_and_keyed() -> None:
    one, same, other = Pseudonyms(b"a"), Pseudonyms(b"a"), Pseudonyms(b"b")
    assert one.name("shop") == same.name("shop") != other.name("shop")
    assert one.name("") == ""
    hidden = one.object(sanitized("Pod", POD))
    text = msgspec.json.encode(hidden).decode()
    for name in ("web", "shop", "node-1"):
        assert f'"{name}' not in text
    assert hidden["metadata"]["name"] == one.name("web-1")
    assert hidden["metadata"]["annotations"] == {"kubetide.io/x": "1"}
    assert hidden["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}


def test_selectors_match_the_labels_they_matched() -> None:
    names = Pseudonyms(b"a")
    spec = {
        "selector": {
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["front", "back"]}],
        },
        "metrics": [{"type": "Resource", "resource": {"name": "cpu"}}],
    }
    hidden = names.object(spec)
    assert hidden["selector"]["matchLabels"] == names.object({"labels": {"app": "web"}})["labels"]
    assert hidden["selector"]["matchExpressions"][0]["values"] == [names.name("front"), names.name("back")]
    assert hidden["metrics"] == spec["metrics"]


def test_a_policy_for_every_container_stays_one() -> None:
    policies = {"resourcePolicy": {"containerPolicies": [{"containerName": "*"}, {"containerName": "app"}]}}
    hidden = Pseudonyms(b"key").object({"spec": policies})["spec"]["resourcePolicy"]["containerPolicies"]
    assert hidden[0] == {"containerName": "*"}
    assert hidden[1]["containerName"].startswith("x-")
