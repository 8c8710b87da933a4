"""Adapters for NodeSLO and NodeMetric specs completed on the agent (set node)."""

from collections.abc import Iterable
from typing import Any

from conformance.adapters.node_slo_config import settled
from conformance.compare import differences
from conformance.registry import suite
from kubetide.node.core import slo
from kubetide.node.core.report import report_interval

Case = dict[str, Any]


@suite("node/nodeslo_agent_merge")
def nodeslo_agent_merge(case: Case) -> Iterable[str]:
    actual = slo.complete(case["input"]["spec"])
    yield from differences(case["expected"]["merged"], actual, drop_empty=True, quantities=("totalNetworkBandwidth",))


@suite("node/nodemetric_spec_merge")
def nodemetric_spec_merge(case: Case) -> Iterable[str]:
    spec = slo.complete_collect_policy(case["input"]["spec"])
    actual = {"spec": spec, "reportIntervalSeconds": int(report_interval(spec).total_seconds())}
    yield from differences(settled(case["expected"]), settled(actual), drop_empty=True)
