"""The ConfigMap of the SLO controller: reading, merging, choosing, rendering, validating."""

from collections.abc import Iterable
from typing import Any

from conformance.compare import differences
from conformance.registry import suite
from kubetide.api.objects.core import Node
from kubetide.api.qos import slo_merge
from kubetide.api.values.codec import convert
from kubetide.api.values.compat import Compat
from kubetide.api.values.selectors import LabelSelector
from kubetide.durations import format_duration, parse_duration
from kubetide.slo.core import config, nodeslo, strategy, validate
from kubetide.slo.core.compat import NEWEST, parse_compat

Case = dict[str, Any]
OLD = parse_compat("1.4")
"""The version that the older set was measured on."""


def compare(expected: Any, actual: Any) -> Iterable[str]:
    return differences(settled(expected), settled(actual), drop_empty=True, quantities=True, sets=("invalidFields",))


def settled(value: Any) -> Any:
    """Write durations in one form, and drop a bandwidth of 0, which the reference prints for "not given"."""
    if isinstance(value, dict):
        kept = {name: inner for name, inner in value.items() if (name, inner) != ("totalNetworkBandwidth", "0")}
        if kept.get("durations"):
            kept["durations"] = [format_duration(parse_duration(text)) for text in kept["durations"]]
        return {name: settled(inner) for name, inner in kept.items()}
    return [settled(inner) for inner in value] if isinstance(value, list) else value


def node_of(raw: Any) -> Node | None:
    return None if raw is None else convert(raw, Node)


@suite("node/slo_defaults")
def defaults(case: Case) -> Iterable[str]:
    spec = {
        "resourceUsedThresholdWithBE": slo_merge.THRESHOLDS,
        "resourceQOSStrategy": slo_merge.COMPLETE_QOS,
        "cpuBurstStrategy": slo_merge.CPU_BURST,
        "systemStrategy": slo_merge.SYSTEM,
    }
    actual = {"colocation": slo_merge.COLOCATION, "nodeSLOSpec": spec}
    # What "off" means for a class is known where it is applied: memory QoS on the agent.
    return compare({name: case["expected"][name] for name in actual}, actual)


@suite("node/slo_defaults_18")
def defaults_18(case: Case) -> Iterable[str]:
    # Resource QoS travels as the user wrote it: its defaults are the agent's (nodeslo_agent_merge_18).
    expected = {name: value for name, value in case["expected"]["nodeSLOSpec"].items() if name != "resourceQOSStrategy"}
    spec = nodeslo.render(config.NodeSLOConfig.initial(), Node(), None)
    actual = {name: spec[name] for name in expected}
    return compare(
        {"colocation": case["expected"]["colocation"], "nodeSLOSpec": expected},
        {"colocation": config.colocation_defaults(), "nodeSLOSpec": actual},
    )


@suite("node/slo_config_merge")
def config_merge(case: Case) -> Iterable[str]:
    given = case["input"]
    merged, error = config.merge_key(given["key"], given["data"], given["old"], OLD)
    return compare(case["expected"], {"merged": merged, "error": error is not None})


@suite("node/slo_config_merge_18")
def config_merge_18(case: Case) -> Iterable[str]:
    key, data = case["input"]["key"], case["input"]["data"]
    if key == config.COLOCATION_KEY:
        state, problems = config.ColocationState.initial().updated(data)
        return compare(case["expected"], {"merged": state.config, "error": bool(problems)})
    merged, error = config.merge_key(key, data, config.complete(key, {}))
    return compare(case["expected"], {"merged": merged, "error": error is not None})


@suite("node/nodeslo_render")
def nodeslo_render(case: Case) -> Iterable[str]:
    return rendered(case, OLD)


@suite("node/nodeslo_render_18")
def nodeslo_render_18(case: Case) -> Iterable[str]:
    return rendered(case, NEWEST)


def rendered(case: Case, compat: Compat) -> Iterable[str]:
    given = case["input"]
    state = config.NodeSLOConfig.initial(compat)
    steps = []
    for data in given["configMaps"]:
        new, problems = state.updated(data)
        events = [{"type": "Warning", "reason": p.reason, "config": config.NODESLO_KEYS[p.key]} for p in problems]
        steps.append({"changed": new.keys != state.keys, "events": events})
        state = new
    node = convert(given["node"], Node)
    spec = nodeslo.render(state, node, given["oldSpec"])
    return compare(case["expected"], {"steps": steps, "spec": spec, "error": False})


@suite("node/colocation_sync")
def colocation_sync(case: Case) -> Iterable[str]:
    given = case["input"]
    initial = given["initial"]
    state = config.ColocationState(dict(slo_merge.COLOCATION) if initial is None else initial, compat=OLD)
    steps = []
    for data in given["configMaps"]:
        new, problems = state.updated(data)
        events = [f"Warning {p.reason}" for p in problems if p.reason != config.COLOCATION_NOT_ACCEPTABLE]
        steps.append(
            {
                "changed": new.config != state.config,
                "available": new.available,
                "errorStatus": new.error,
                "cfg": new.config,
                "events": events,
            }
        )
        state = new
    return compare(case["expected"], {"steps": steps})


@suite("node/node_colocation_strategy")
def node_colocation_strategy(case: Case) -> Iterable[str]:
    given = case["input"]
    return compare(case["expected"], {"strategy": strategy.node_strategy(given["cfg"], node_of(given["node"]), OLD)})


@suite("node/node_colocation_strategy_18")
def node_colocation_strategy_18(case: Case) -> Iterable[str]:
    given = case["input"]
    return compare(case["expected"], {"strategy": strategy.node_strategy(given["cfg"], node_of(given["node"]))})


@suite("node/colocation_strategy_valid")
def colocation_strategy_valid(case: Case) -> Iterable[str]:
    return compare(case["expected"], {"valid": config.acceptance_problem(case["input"]["strategy"], OLD) is None})


@suite("node/colocation_strategy_valid_18")
def colocation_strategy_valid_18(case: Case) -> Iterable[str]:
    return compare(case["expected"], {"valid": config.acceptance_problem(case["input"]["strategy"]) is None})


@suite("node/colocation_disabled")
def colocation_disabled(case: Case) -> Iterable[str]:
    given = case["input"]
    return compare(case["expected"], {"disabled": strategy.colocation_disabled(given["cfg"], node_of(given["node"]))})


@suite("node/nodemetric_spec")
def nodemetric_spec(case: Case) -> Iterable[str]:
    given = case["input"]
    spec = strategy.metric_spec(
        given["cfg"], error=given["errorStatus"], node=convert(given["node"], Node), old=given["oldSpec"], compat=OLD
    )
    return compare(case["expected"], {"spec": spec, "error": False})


@suite("node/configmap_validate")
def configmap_validate(case: Case) -> Iterable[str]:
    refusal = refused(case, OLD)
    actual: dict[str, Any] = {"allowed": refusal is None}
    if refusal is not None:
        actual |= {"reason": refusal.reason, "invalidFields": sorted(refusal.fields), "detail": refusal.detail}
    return compare(case["expected"], actual)


@suite("node/configmap_validate_18")
def configmap_validate_18(case: Case) -> Iterable[str]:
    refusal = refused(case, NEWEST)
    expected = {name: value for name, value in case["expected"].items() if value is not None}
    actual: dict[str, Any] = {"allowed": refusal is None}
    if refusal is not None and "reason" in expected:
        actual["reason"] = refusal.reason
    return compare(expected, actual)


def refused(case: Case, compat: Compat) -> validate.Rejection | None:
    given = case["input"]
    return validate.validate_configmap(
        given["old"],
        given["new"],
        nodes=[convert(node, Node) for node in given["nodes"] or ()],
        names_needed=bool(given.get("nameCheck")),
        compat=compat,
    )


@suite("node/selector_virtual_nodes")
def selector_virtual_nodes(case: Case) -> Iterable[str]:
    raw = case["input"]["selector"]
    found = [labels or None for labels in validate.label_sets(None if raw is None else convert(raw, LabelSelector))]
    # The data repeats sets where several expressions have values; for the overlap check each counts once.
    expected = case["expected"]["nodes"] or []
    distinct = [labels for index, labels in enumerate(expected) if labels not in expected[:index]]
    return compare({"nodes": distinct}, {"nodes": found})
