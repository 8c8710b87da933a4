"""Telemetry of the SLO controller, under the names and reasons of upstream.

A reconcile is counted where it has an effect: each read that fails and each write, by its reason. A reconcile that
finds everything as it should be is only seen in `controller_runtime_reconcile_total`. What upstream has no name
for, a configuration text that cannot be used, is counted by `kubetide_slo_config_problems_total`.
"""

from collections.abc import Awaitable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.values.quantity import Quantity
from kubetide.kube.client.errors import NotFound
from kubetide.log import get_logger
from kubetide.slo.core.config import (
    CPU_BURST_KEY,
    HOST_APPLICATION_KEY,
    QOS_KEY,
    SYSTEM_KEY,
    THRESHOLD_KEY,
    ConfigProblem,
)
from kubetide.slo.core.observation import NodeDecision
from kubetide.slo.core.overcommit.result import BATCH_CPU, MID_CPU
from kubetide.telemetry import Telemetry

log = get_logger("slo")

NODE_SLO, NODE_METRIC, NODE_RESOURCE = "nodeslo", "nodemetric", "noderesource"
KEEP_SERIES = timedelta(minutes=5)
PLUGINS = ("CPUNormalization", "ResourceAmplification", "MidResource", "BatchResource", "GPUDeviceResource")

_RECONCILE_COUNTERS = {
    NODE_RESOURCE: "slo_controller_node_resource_reconcile_count",
    NODE_METRIC: "slo_controller_nodemetric_reconcile_count",
    NODE_SLO: "slo_controller_nodeslo_reconcile_count",
}
_PARSE_COUNTERS = {
    NODE_METRIC: "slo_controller_nodemetric_spec_parse_count",
    NODE_SLO: "slo_controller_nodeslo_spec_parse_count",
}
_SLO_PARTS = {
    THRESHOLD_KEY: "getResourceThresholdSpec",
    QOS_KEY: "getResourceQOSSpec",
    CPU_BURST_KEY: "getCPUBurstConfigSpec",
    SYSTEM_KEY: "getSystemConfigSpec",
    HOST_APPLICATION_KEY: "getHostApplicationConfig",
    "": "getNodeSLOExtension",
}


class SloInstruments:
    """Counts what was decided and written."""

    def __init__(self, telemetry: Telemetry, plugins: Iterable[str] = PLUGINS) -> None:
        outcome = ("status", "reason")
        self._reconciles = {
            name: telemetry.counter(counter, "Effects of reconciles by outcome and reason.", outcome)
            for name, counter in _RECONCILE_COUNTERS.items()
        }
        self._parses = {
            name: telemetry.counter(counter, "Parts of a spec by whether their configuration could be used.", outcome)
            for name, counter in _PARSE_COUNTERS.items()
        }
        self._problems = telemetry.counter(
            "kubetide_slo_config_problems_total", "Configuration texts that could not be used.", ("key", "reason")
        )
        self._plugin_runs = telemetry.counter(
            "slo_controller_node_resource_run_plugin_status",
            "Runs of calculation plugins by outcome and stage.",
            ("plugin", "status", "reason"),
        )
        self._allocatable = telemetry.gauge(
            "slo_controller_node_extended_resource_allocatable_internal",
            "Calculated extended resources: batch-cpu in cores, mid-cpu in milli-cores, memory in bytes.",
            ("node", "resource", "unit"),
        )
        self._plugins = tuple(plugins)
        self._shown: dict[str, set[tuple[str, str]]] = {}
        self._shown_at: dict[str, datetime] = {}
        for plugin in self._plugins:
            self._plugin(plugin, "Setup", failed=False)

    async def counted(self, controller: str, reason: str, request: Awaitable[Any], *, gone: str = "") -> None:
        """Await a write and count it. That its object has gone meanwhile is fine, and counted as `gone`."""
        try:
            await request
        except NotFound:
            log.debug("the object has gone", controller=controller, reason=reason)
            self.reconciled(controller, gone or reason, failed=bool(gone))
        except Exception:
            self.reconciled(controller, reason, failed=True)
            raise
        else:
            self.reconciled(controller, reason, failed=False)

    def reconciled(self, controller: str, reason: str, *, failed: bool) -> None:
        """Count one effect of a reconcile."""
        self._reconciles[controller].labels(_status(failed), reason).inc()

    def rendered_slo(self, broken: Collection[str]) -> None:
        """Count the parts of a NodeSLO; those of the `broken` keys were made from an earlier text."""
        for key, reason in _SLO_PARTS.items():
            self._parses[NODE_SLO].labels(_status(key in broken), reason).inc()

    def rendered_metric(self, *, failed: bool) -> None:
        """Count a collect policy; `failed`: the text is bad, an existing policy stays."""
        self._parses[NODE_METRIC].labels(_status(failed), "getNodeMetricCollectPolicy").inc()

    def config_problem(self, problem: ConfigProblem) -> None:
        """Count a text that could not be used."""
        self._problems.labels(problem.key, problem.reason).inc()

    def decided(self, node: str, decision: NodeDecision, now: datetime) -> None:
        """Count the plugins stage by stage and show the calculated resources, before any threshold."""
        failed = {(problem.plugin, problem.stage) for problem in decision.problems}
        for plugin in self._plugins:
            for stage in _stages(plugin, decision):
                self._plugin(plugin, stage, failed=(plugin, stage) in failed)
        shown: set[tuple[str, str]] = set()
        for item in decision.items:
            if item.quantity is None:
                continue
            unit = "integer" if item.name in (BATCH_CPU, MID_CPU) else "byte"
            self._allocatable.labels(node, item.name, unit).set(_shown_value(item.name, item.quantity))
            shown.add((item.name, unit))
        self._drop(node, self._shown.get(node, set()) - shown)
        self._shown[node] = shown
        self._shown_at[node] = now

    def confirmed(self, node: str, now: datetime) -> None:
        """Note that what is shown of a node is still what would be calculated."""
        if node in self._shown_at:
            self._shown_at[node] = now

    def forget(self, node: str) -> None:
        """Drop the series of a node that has gone."""
        self._drop(node, self._shown.pop(node, set()))
        self._shown_at.pop(node, None)

    def expire(self, now: datetime) -> None:
        """Drop the series of nodes that were not calculated for a while: an old number must not look like a new one."""
        for node in [node for node, at in self._shown_at.items() if now - at > KEEP_SERIES]:
            self.forget(node)

    def _plugin(self, plugin: str, stage: str, *, failed: bool) -> None:
        self._plugin_runs.labels(plugin, _status(failed), stage).inc()

    def _drop(self, node: str, series: set[tuple[str, str]]) -> None:
        for resource, unit in series:
            self._allocatable.remove(node, resource, unit)


def _stages(plugin: str, decision: NodeDecision) -> Iterable[str]:
    """Return the stages through which a plugin went."""
    yield "ResourceReset" if decision.disabled else "ResourceCalculate"
    if plugin == "BatchResource" and not decision.disabled:
        yield "NodePreUpdate"
    yield "NodePrepare"
    yield "NodeStatusCheck" if plugin in ("MidResource", "BatchResource") else "NodeStatusCheckMeta"


def _status(failed: bool) -> str:
    return "failed" if failed else "succeeded"


def _shown_value(resource: str, quantity: Quantity) -> float:
    return quantity.value / 1000 if resource == BATCH_CPU else float(quantity.value)
