"""Telemetry of the SLO controller, under the names of the original."""

from collections.abc import Callable

from kubetide.api.quantity import Quantity
from kubetide.kube.reconcile import Outcome
from kubetide.slo.config import Problem
from kubetide.slo.decide import NodeDecision
from kubetide.slo.overcommit.result import BATCH_CPU, MID_CPU
from kubetide.telemetry import Telemetry

_RECONCILE_COUNTERS = {
    "noderesource": "slo_controller_node_resource_reconcile_count",
    "nodemetric": "slo_controller_nodemetric_reconcile_count",
    "nodeslo": "slo_controller_nodeslo_reconcile_count",
}


class Audit:
    """Counts what was decided and written."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._reconciles = {
            name: telemetry.counter(counter, "Reconciles by outcome.", ("status", "reason"))
            for name, counter in _RECONCILE_COUNTERS.items()
        }
        self._parses = telemetry.counter(
            "slo_controller_nodeslo_spec_parse_count", "Configuration texts by outcome.", ("status", "reason")
        )
        self._plugins = telemetry.counter(
            "slo_controller_node_resource_run_plugin_status",
            "Runs of calculation plugins by outcome.",
            ("plugin", "status", "reason"),
        )
        self._allocatable = telemetry.gauge(
            "slo_controller_node_extended_resource_allocatable_internal",
            "Calculated extended resources: batch-cpu in cores, mid-cpu in milli-cores, memory in bytes.",
            ("node", "resource", "unit"),
        )
        self._shown: dict[str, set[tuple[str, str]]] = {}

    def observer(self, controller: str) -> Callable[[Outcome[str]], None]:
        """Return what counts the outcomes of one reconciler."""
        counter = self._reconciles[controller]

        def observe(outcome: Outcome[str]) -> None:
            reason = "" if outcome.error is None else type(outcome.error).__name__
            counter.labels("succeeded" if outcome.error is None else "failed", reason).inc()

        return observe

    def config_problem(self, problem: Problem) -> None:
        """Count a text that could not be used."""
        self._parses.labels("failed", problem.reason).inc()

    def decided(self, node: str, decision: NodeDecision) -> None:
        """Count the plugins and show the calculated resources, before any threshold."""
        failed = {plugin for plugin, _ in decision.problems}
        for plugin in ("CPUNormalization", "ResourceAmplification", "MidResource", "BatchResource"):
            status = "failed" if plugin in failed else "succeeded"
            self._plugins.labels(plugin, status, "ResourceCalculate").inc()
        shown: set[tuple[str, str]] = set()
        for item in decision.items:
            if item.quantity is None:
                continue
            unit = "integer" if item.name in (BATCH_CPU, MID_CPU) else "byte"
            self._allocatable.labels(node, item.name, unit).set(_shown_value(item.name, item.quantity))
            shown.add((item.name, unit))
        self._drop(node, self._shown.get(node, set()) - shown)
        self._shown[node] = shown

    def forget(self, node: str) -> None:
        """Drop the series of a node that has gone."""
        self._drop(node, self._shown.pop(node, set()))

    def _drop(self, node: str, series: set[tuple[str, str]]) -> None:
        for resource, unit in series:
            self._allocatable.remove(node, resource, unit)


def _shown_value(resource: str, quantity: Quantity) -> float:
    return quantity.value / 1000 if resource == BATCH_CPU else float(quantity.value)
