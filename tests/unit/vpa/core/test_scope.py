import json
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.testing.builders import make_pod, make_vpa
from kubetide.vpa.core.scope import (
    checkpoint_name,
    for_group,
    group_key,
    groups_of,
    placed,
    scope_of,
    scope_value,
    vpa_name,
)

GROUPS = [{"scopeValue": "large", "containerRecommendations": [{"containerName": "main", "target": {"cpu": "2"}}]}]


def vpa(
    *, kind: str = "DaemonSet", scope: str = "", status: Any = None, annotations: Any = None
) -> VerticalPodAutoscaler:
    raw = make_vpa("agent", target="agent", kind=kind)
    raw["spec"]["scope"] = scope
    raw["metadata"]["annotations"] = annotations
    raw["status"] = status
    return convert(raw, VerticalPodAutoscaler)


def test_only_a_daemon_set_is_sized_by_node() -> None:
    assert scope_of(vpa(scope="pool")) == "pool"
    assert scope_of(vpa(annotations={"kubetide.io/vpa-scope": "zone"})) == "zone"
    assert scope_of(vpa(scope="pool", annotations={"kubetide.io/vpa-scope": "zone"})) == "pool"
    assert scope_of(vpa(kind="Deployment", scope="pool")) == ""


def test_a_label_that_is_absent_is_not_an_empty_one() -> None:
    assert scope_value({"pool": ""}, "pool") == ""
    assert scope_value({}, "pool") == "__absent__"
    assert scope_value(None, "pool") == "__absent__"


def test_the_name_of_a_group_cannot_be_that_of_a_vpa_and_its_checkpoint_has_a_valid_name() -> None:
    key = group_key(ObjectKey("shop", "agent"), "Large_Nodes.v2")
    assert (key.name, vpa_name(key.name), vpa_name("agent")) == ("agent@Large_Nodes.v2", "agent", "agent")
    name = checkpoint_name(key.name, "main")
    assert name.startswith("agent-main-")
    assert name.removeprefix("agent-main-").isalnum()
    assert name != checkpoint_name("agent@large", "main")
    assert checkpoint_name("agent", "main") == "agent-main"


def test_pods_see_the_recommendation_of_their_own_group() -> None:
    found = vpa(status={"groups": GROUPS, "recommendation": {}})
    assert groups_of(found).keys() == {"large"}
    status = for_group(found, "large").status
    assert status is not None
    assert status.recommendation is not None
    assert [e.container_name for e in status.recommendation.container_recommendations or ()] == ["main"]
    for other in ("small", None):
        status = for_group(found, other).status
        assert status is not None
        assert status.recommendation is None


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        pytest.param(json.dumps(GROUPS), {"large"}, id="read-from-the-annotation"),
        pytest.param("[{", set(), id="unreadable-is-none"),
        pytest.param('{"a": 1}', set(), id="another-shape-is-none"),
    ],
)
def test_groups_may_be_in_an_annotation(text: str, groups: set[str]) -> None:
    assert groups_of(vpa(status={}, annotations={"kubetide.io/vpa-groups": text})).keys() == groups


def test_a_daemon_set_pod_names_its_node_by_affinity() -> None:
    raw = make_pod("agent-x")
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-7"]}]}
    raw["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    pod = convert(raw, Pod)
    assert pod.spec.node_name == ""
    assert placed(pod, json.dumps(raw).encode()).spec.node_name == "node-7"
    del raw["spec"]["affinity"]
    assert placed(pod, json.dumps(raw).encode()).spec.node_name == ""
