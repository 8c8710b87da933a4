"""Adapters for NodeSLO and NodeMetric specs completed on the agent (set node)."""

from collections.abc import Iterable
from typing import Any

from conformance.adapters.node_slo_config import settled
from conformance.compare import differences
from conformance.registry import suite
from kubetide.api.values.compat import Compat
from kubetide.errors import SettingsError
from kubetide.node.core import features, slo
from kubetide.node.core.compat import NEWEST, parse_compat
from kubetide.node.core.report import report_interval
from kubetide.slo.core.gates import MAIN, known_gates

Case = dict[str, Any]

OLDEST = parse_compat("1.4")
_ON_HERE = ("AuditEvents", "AuditEventsHTTPHandler")
"""Gates that kubetide has on by default where upstream has them off."""


@suite("node/gates_parse")
def gates_parse(case: Case) -> Iterable[str]:
    try:
        enabled = features.parse_gates(case["input"]["text"])
    except SettingsError:
        return differences(case["expected"], {"error": True})
    if case["expected"]["error"]:
        return ["accepted"]
    expected = {name: on for name, on in case["expected"]["enabled"].items() if name not in _ON_HERE}
    return differences(expected, {name: enabled.get(name) for name in expected})


@suite("node/gates_table")
def gates_table(case: Case) -> Iterable[str]:
    given = case["input"]
    if given["component"] == "manager":
        version = MAIN if given["version"] == "main" else parse_compat(given["version"]).version
        gates = known_gates(version).items()
        manager = {name: {"default": gate.default_in(version), "stage": gate.stage} for name, gate in gates}
        return differences(case["expected"]["gates"], manager)
    table = features.GATES if given["component"] == "agent" else features.HOOK_GATES
    newest = features.UNRELEASED if given["version"] == "main" else parse_compat(given["version"]).version
    known = {
        name: {"stage": gate.stage, "default": gate.default and name not in _ON_HERE}
        for name, gate in table.items()
        if gate.since <= newest
    }
    return differences(case["expected"]["gates"], known)


@suite("node/nodeslo_agent_merge")
def nodeslo_agent_merge(case: Case) -> Iterable[str]:
    return _agent_merge(case, OLDEST)


@suite("node/nodeslo_agent_merge_18")
def nodeslo_agent_merge_18(case: Case) -> Iterable[str]:
    return _agent_merge(case, NEWEST)


def _agent_merge(case: Case, compat: Compat) -> Iterable[str]:
    actual = slo.complete(case["input"]["spec"], compat)
    yield from differences(case["expected"]["merged"], actual, drop_empty=True, quantities=("totalNetworkBandwidth",))


@suite("node/nodemetric_spec_merge")
def nodemetric_spec_merge(case: Case) -> Iterable[str]:
    spec = slo.complete_collect_policy(case["input"]["spec"])
    actual = {"spec": spec, "reportIntervalSeconds": int(report_interval(spec).total_seconds())}
    yield from differences(settled(case["expected"]), settled(actual), drop_empty=True)
