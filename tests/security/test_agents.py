"""A node agent that was taken over: what it can do ends at its node."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubetide.api.objects.sample_frames import STREAM_GROUP, STREAM_RESOURCE
from kubetide.embedded.apiserver.cel.rules import evaluate_conditions
from kubetide.install.rbac import CLUSTER
from kubetide.metrics.core.identity import User, bound_node

ROOT = Path(__file__).resolve().parents[2]
POLICY, BINDING = yaml.safe_load_all((ROOT / "deploy/policies/agents-own-node.yaml").read_text())
AGENT = "system:serviceaccount:kube-system:kubetide-node"
NODE_NAME = "authentication.kubernetes.io/node-name"


def request(operation: str, name: str, *, user: str = AGENT, node: str | None = "node-1") -> dict[str, Any]:
    """Return an admission request about the object of a node."""
    thing = {"metadata": {"name": name}}
    info: dict[str, Any] = {"username": user}
    if node is not None:
        info["extra"] = {NODE_NAME: [node]}
    return {
        "operation": operation,
        "userInfo": info,
        "object": None if operation == "DELETE" else thing,
        "oldObject": None if operation == "CREATE" else thing,
    }


def allowed(asked: dict[str, Any]) -> bool:
    """Return what the policy decides."""
    spec = POLICY["spec"]
    if not evaluate_conditions(tuple(spec["matchConditions"]), asked):
        return True
    return evaluate_conditions(tuple(spec["validations"]), asked)


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
@pytest.mark.parametrize(
    ("name", "node", "right"),
    [
        pytest.param("node-1", "node-1", True, id="its-own"),
        pytest.param("node-2", "node-1", False, id="another"),
        pytest.param("node-1", None, False, id="a-token-of-no-node"),
    ],
)
def test_an_agent_writes_about_its_own_node_only(operation: str, name: str, node: str | None, right: bool) -> None:
    assert allowed(request(operation, name, node=node)) == right


def test_the_policy_is_about_agents_alone() -> None:
    assert allowed(request("UPDATE", "node-2", user="system:serviceaccount:kube-system:kubetide-slo", node=None))
    assert BINDING["spec"] == {"policyName": POLICY["metadata"]["name"], "validationActions": ["Deny"]}
    assert POLICY["spec"]["failurePolicy"] == "Fail"


def test_the_policy_covers_everything_that_agents_may_write_about_nodes() -> None:
    covered = {
        (group, resource)
        for rule in POLICY["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    writes = {"create", "update", "patch", "delete"}
    written = [
        (one.group, resource) for one in CLUSTER["node"] if writes & set(one.verbs) for resource in one.resources
    ]
    # Sending samples is bound to the node by the metrics server; disruption budgets bound evictions.
    others = {("", "events"), ("", "pods/eviction"), (STREAM_GROUP, STREAM_RESOURCE)}
    assert set(written) - others <= covered


@pytest.mark.parametrize(
    ("claims", "node"),
    [
        pytest.param({NODE_NAME: ("node-1",)}, "node-1", id="its-own-claim"),
        pytest.param({NODE_NAME: ("node-1", "node-2")}, "", id="two-nodes-are-none"),
        pytest.param({}, "", id="no-claim-no-node"),
    ],
)
def test_the_metrics_server_reads_the_node_off_the_token(claims: dict[str, tuple[str, ...]], node: str) -> None:
    assert bound_node(User(name=AGENT, extra=claims), lambda *pod: "node-of-a-pod") == node
