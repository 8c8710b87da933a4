"""Placement: what keeps a pod from a node, in the scheduler's words, and which node is best."""

from typing import Any

import pytest

from kubetide.embedded.sim.placement import SchedulerNode, choose, pod_amounts, tolerates, why_not

Raw = dict[str, Any]
GIB = 2**30


def make_state(name: str = "a", **changes: Any) -> SchedulerNode:
    state = SchedulerNode(
        name=name,
        labels={"zone": "east", "disk": "5"},
        taints=[],
        allocatable={"cpu": 4000, "memory": 8 * GIB, "pods": 10},
    )
    for key, value in changes.items():
        setattr(state, key, value)
    return state


def make(spec: Raw | None = None, *, cpu: str = "1", labels: dict[str, str] | None = None) -> Raw:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": {"namespace": "d", "labels": labels or {}}, "spec": {"containers": containers, **(spec or {})}}


def affinity(operator: str, key: str, *values: str) -> Raw:
    rule = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


MATCH = "node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("pod", "node", "reason"),
    [
        pytest.param(make(), make_state(), "", id="fits"),
        pytest.param(make(cpu="5"), make_state(), "Insufficient cpu", id="too-big"),
        pytest.param(make(), make_state(used={"cpu": 3500}), "Insufficient cpu", id="too-full"),
        pytest.param(make(), make_state(used={"pods": 10}), "Too many pods", id="too-many"),
        pytest.param(make(), make_state(unschedulable=True), "node(s) were unschedulable", id="cordoned"),
        pytest.param(make(), make_state(ready=False), "node(s) were not ready", id="not-ready"),
        pytest.param(
            make(),
            make_state(taints=[{"key": "gpu", "effect": "NoSchedule"}]),
            "node(s) had untolerated taint {gpu: }",
            id="tainted",
        ),
        pytest.param(
            make({"tolerations": [{"key": "gpu", "operator": "Exists"}]}),
            make_state(taints=[{"key": "gpu", "effect": "NoSchedule"}]),
            "",
            id="tolerated",
        ),
        pytest.param(make({"nodeSelector": {"zone": "west"}}), make_state(), MATCH, id="selector"),
        pytest.param(make(affinity("In", "zone", "east")), make_state(), "", id="affinity-in"),
        pytest.param(make(affinity("NotIn", "zone", "east")), make_state(), MATCH, id="affinity-not-in"),
        pytest.param(make(affinity("Exists", "gpu")), make_state(), MATCH, id="affinity-exists"),
        pytest.param(make(affinity("DoesNotExist", "gpu")), make_state(), "", id="affinity-does-not-exist"),
        pytest.param(make(affinity("Gt", "disk", "4")), make_state(), "", id="affinity-greater"),
        pytest.param(make(affinity("Lt", "disk", "4")), make_state(), MATCH, id="affinity-less"),
    ],
)
def test_a_node_is_refused_for_a_reason(pod: Raw, node: SchedulerNode, reason: str) -> None:
    assert why_not(pod, pod_amounts(pod), node) == reason


def test_the_least_loaded_node_wins_and_ties_go_by_name() -> None:
    pod = make()
    empty = [make_state("a"), make_state("b")]
    assert choose(pod, pod_amounts(pod), empty)[0] is empty[0]
    loaded = [make_state("a", used={"cpu": 1000}), make_state("b")]
    assert choose(pod, pod_amounts(pod), loaded)[0] is loaded[1]


def test_when_nothing_fits_the_reasons_are_counted() -> None:
    pod = make(cpu="5")
    nodes = [make_state("a"), make_state("b"), make_state("c", unschedulable=True)]
    node, message = choose(pod, pod_amounts(pod), nodes)
    assert node is None
    assert message == "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable."
    assert choose(pod, {}, [])[1] == "0/0 nodes are available: no nodes."


def pod_affinity(kind: str) -> Raw:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_pods_keep_to_or_away_from_others_by_zone() -> None:
    east = make_state("a", pods={"1": make(labels={"app": "db"})})
    west = make_state("b", labels={"zone": "west"})
    near, far = make(pod_affinity("podAffinity")), make(pod_affinity("podAntiAffinity"))
    assert choose(near, pod_amounts(near), [east, west])[0] is east
    assert choose(far, pod_amounts(far), [east, west])[0] is west
    lonely = make(pod_affinity("podAffinity"))
    assert choose(lonely, pod_amounts(lonely), [west])[0] is None
    first = make(pod_affinity("podAffinity"), labels={"app": "db"})
    assert choose(first, pod_amounts(first), [west])[0] is west


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param({"key": "a", "value": "1"}, True, id="equal"),
        pytest.param({"key": "a", "value": "2"}, False, id="other-value"),
        pytest.param({"key": "a", "operator": "Exists"}, True, id="exists"),
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param({"operator": "Exists", "effect": "NoExecute"}, False, id="other-effect"),
    ],
)
def test_a_toleration_covers_a_taint(toleration: Raw, expected: bool) -> None:
    assert tolerates([toleration], {"key": "a", "value": "1", "effect": "NoSchedule"}) is expected


def test_a_pod_takes_the_sum_of_its_containers_or_its_largest_init_container() -> None:
    pod = make(
        {
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "1", "kubernetes.io/batch-cpu": "500"}}},
                {"name": "b", "resources": {"requests": {"cpu": "500m"}}},
            ],
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}],
            "overhead": {"cpu": "100m"},
        }
    )
    assert pod_amounts(pod) == {"cpu": 2100, "kubernetes.io/batch-cpu": 500, "pods": 1}


def test_a_shrinking_pod_counts_with_what_it_still_holds() -> None:
    pod = make(cpu="1")
    pod["status"] = {
        "conditions": [{"type": "PodResizeInProgress", "status": "True"}],
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"}}],
    }
    assert pod_amounts(pod)["cpu"] == 3000
