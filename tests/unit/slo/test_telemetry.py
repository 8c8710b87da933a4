"""What the SLO controller shows of itself: the names and reasons of the original."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from kubetide.api.values.quantity import Quantity
from kubetide.kube.client.errors import Conflict, NotFound
from kubetide.slo.core.config import COLOCATION_NOT_ACCEPTABLE, QOS_KEY, ConfigProblem
from kubetide.slo.core.observation import NodeDecision, PluginProblem
from kubetide.slo.core.overcommit.result import BATCH_CPU, BATCH_MEMORY, MID_CPU, ResourceItem
from kubetide.slo.telemetry import NODE_METRIC, NODE_RESOURCE, NODE_SLO, SloInstruments
from kubetide.telemetry import Telemetry

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ITEMS = (
    ResourceItem(BATCH_CPU, Quantity.of(3500)),
    ResourceItem(BATCH_MEMORY, Quantity.of(4096)),
    ResourceItem(MID_CPU, Quantity.of(1200)),
)


def shown(telemetry: Telemetry, name: str) -> dict[tuple[str, ...], float]:
    """Return the values of a metric by its label values, in the order in which the text shows them."""
    lines = re.findall(rf"^{name}{{(.*)}} (.*)$", telemetry.render().decode(), flags=re.MULTILINE)
    return {tuple(re.findall(r'="([^"]*)"', labels)): float(value) for labels, value in lines}


async def ends(error: Exception | None = None) -> None:
    if error is not None:
        raise error


def absent() -> NotFound:
    return NotFound(404)


@pytest.mark.parametrize(
    ("controller", "metric", "reason"),
    [
        (NODE_SLO, "slo_controller_nodeslo_reconcile_count", "createNodeSLO"),
        (NODE_METRIC, "slo_controller_nodemetric_reconcile_count", "updateNodeMetric"),
        (NODE_RESOURCE, "slo_controller_node_resource_reconcile_count", "updateNodeStatus"),
    ],
)
async def test_a_write_is_counted_by_its_reason(controller: str, metric: str, reason: str) -> None:
    telemetry = Telemetry()
    audit = SloInstruments(telemetry)
    await audit.counted(controller, reason, ends())
    with pytest.raises(Conflict):
        await audit.counted(controller, reason, ends(Conflict(409)))
    assert shown(telemetry, metric) == {(reason, "succeeded"): 1, (reason, "failed"): 1}


async def test_an_object_that_has_gone_is_no_failure_of_a_delete_but_has_its_own_reason_elsewhere() -> None:
    telemetry = Telemetry()
    audit = SloInstruments(telemetry)
    await audit.counted(NODE_SLO, "deleteNodeSLO", ends(absent()))
    await audit.counted(NODE_RESOURCE, "updateNodeStatus", ends(absent()), gone="updateNodeNotFound")
    assert shown(telemetry, "slo_controller_nodeslo_reconcile_count") == {("deleteNodeSLO", "succeeded"): 1}
    assert shown(telemetry, "slo_controller_node_resource_reconcile_count") == {("updateNodeNotFound", "failed"): 1}


def test_every_part_of_a_spec_is_counted_and_the_part_with_a_bad_text_as_failed() -> None:
    telemetry = Telemetry()
    audit = SloInstruments(telemetry)
    audit.rendered_slo({QOS_KEY})
    audit.rendered_metric(failed=False)
    audit.rendered_metric(failed=True)
    assert shown(telemetry, "slo_controller_nodeslo_spec_parse_count") == {
        ("getResourceThresholdSpec", "succeeded"): 1,
        ("getResourceQOSSpec", "failed"): 1,
        ("getCPUBurstConfigSpec", "succeeded"): 1,
        ("getSystemConfigSpec", "succeeded"): 1,
        ("getHostApplicationConfig", "succeeded"): 1,
        ("getNodeSLOExtension", "succeeded"): 1,
    }
    assert shown(telemetry, "slo_controller_nodemetric_spec_parse_count") == {
        ("getNodeMetricCollectPolicy", "succeeded"): 1,
        ("getNodeMetricCollectPolicy", "failed"): 1,
    }


def test_a_text_that_cannot_be_used_is_counted_by_key_and_reason() -> None:
    telemetry = Telemetry()
    SloInstruments(telemetry).config_problem(ConfigProblem(COLOCATION_NOT_ACCEPTABLE, "colocation-config", "why"))
    assert shown(telemetry, "kubetide_slo_config_problems_total") == {
        ("colocation-config", "ColocationCfgNotAcceptable"): 1
    }


def stages(decision: NodeDecision, plugins: Iterable[str]) -> dict[tuple[str, ...], float]:
    telemetry = Telemetry()
    SloInstruments(telemetry, plugins).decided("n", decision, NOW)
    return shown(telemetry, "slo_controller_node_resource_run_plugin_status")


def test_plugins_are_counted_stage_by_stage_and_only_those_that_run() -> None:
    broken = NodeDecision(problems=(PluginProblem("BatchResource", "NodePrepare", "why"),))
    assert stages(broken, ("BatchResource",)) == {
        ("BatchResource", "Setup", "succeeded"): 1,
        ("BatchResource", "ResourceCalculate", "succeeded"): 1,
        ("BatchResource", "NodePreUpdate", "succeeded"): 1,
        ("BatchResource", "NodePrepare", "failed"): 1,
        ("BatchResource", "NodeStatusCheck", "succeeded"): 1,
    }
    assert stages(NodeDecision(disabled=True), ("CPUNormalization",)) == {
        ("CPUNormalization", "Setup", "succeeded"): 1,
        ("CPUNormalization", "ResourceReset", "succeeded"): 1,
        ("CPUNormalization", "NodePrepare", "succeeded"): 1,
        ("CPUNormalization", "NodeStatusCheckMeta", "succeeded"): 1,
    }


def test_batch_cpu_is_shown_in_cores_mid_cpu_in_milli_cores_and_old_series_go() -> None:
    telemetry, name = Telemetry(), "slo_controller_node_extended_resource_allocatable_internal"
    audit = SloInstruments(telemetry)
    audit.decided("n", NodeDecision(items=ITEMS), NOW)
    assert shown(telemetry, name) == {
        ("n", BATCH_CPU, "integer"): 3.5,
        ("n", BATCH_MEMORY, "byte"): 4096,
        ("n", MID_CPU, "integer"): 1200,
    }
    audit.decided("n", NodeDecision(items=ITEMS[:1]), NOW)
    audit.decided("m", NodeDecision(items=ITEMS[:1]), NOW + timedelta(minutes=4))
    audit.expire(NOW + timedelta(minutes=5))
    assert set(shown(telemetry, name)) == {("n", BATCH_CPU, "integer"), ("m", BATCH_CPU, "integer")}
    audit.expire(NOW + timedelta(minutes=5, seconds=1))
    assert set(shown(telemetry, name)) == {("m", BATCH_CPU, "integer")}
    audit.forget("m")
    audit.forget("unknown")
    assert shown(telemetry, name) == {}
