"""Overcommit: batch and mid resources, zones, writing them to the node, normalization, devices."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from conformance.compare import differences
from conformance.registry import suite
from kubetide.api.objects.core import Node, Pod
from kubetide.api.objects.resources import format_list, maximum, parse_list
from kubetide.api.objects.slo import Device, NodeMetric, NodeResourceTopology, ResourceMap
from kubetide.api.values.codec import convert
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.node.core.topology.zones import merge_zones
from kubetide.slo.core import arithmetic, config, devices, node_update, normalization, patches
from kubetide.slo.core.compat import NEWEST, parse_compat
from kubetide.slo.core.overcommit import batch, loads, mid
from kubetide.slo.core.overcommit.claims import claim_of
from kubetide.slo.core.overcommit.result import BATCH_RESOURCES, ResourceItem

Case = dict[str, Any]
OLD = parse_compat("1.4")
"""The version that the older set was measured on."""


def compare(case: Case, actual: Mapping[str, Any]) -> Iterable[str]:
    """Compare; when the operation must fail, only the keys that the collection names count."""
    expected = case["expected"]
    if expected.get("error") is True and set(expected) == {"error"}:
        return () if actual.get("error") is True else ("expected an error",)
    return differences(expected, dict(actual), drop_empty=True, quantities=True)


def shown(items: Iterable[ResourceItem]) -> dict[str, Any]:
    return {
        item.name: {
            "quantity": None if item.quantity is None else str(item.quantity),
            "zoneQuantity": format_list(item.zones),
            "reset": item.reset,
        }
        for item in items
    }


def text_of(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return format_list(amounts)


def parsed_annotations(annotations: Mapping[str, str] | None) -> dict[str, Any]:
    def parse(text: str) -> Any:
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text

    return {name: parse(text) for name, text in (annotations or {}).items()}


@suite("node/batch_calculate")
def batch_calculate(case: Case) -> Iterable[str]:
    return batch_calculate_under(case, OLD)


@suite("node/batch_calculate_18")
def batch_calculate_18(case: Case) -> Iterable[str]:
    return batch_calculate_under(case, NEWEST)


def batch_calculate_under(case: Case, compat: Compat) -> Iterable[str]:
    given = case["input"]
    if any(given[name] is None for name in ("strategy", "node", "pods", "nodeMetric")):
        return compare(case, {"error": True})
    topology = given["nrt"]
    result = batch.calculate_batch(
        given["strategy"],
        convert(given["node"], Node),
        [claim_of(convert(pod, Pod)) for pod in given["pods"]],
        convert(given["nodeMetric"], NodeMetric),
        None if topology is None else convert(topology, NodeResourceTopology),
        datetime.fromisoformat(given["now"]),
        compat=compat,
    )
    return compare(case, {"error": False, "items": shown(result.items)})


@suite("node/mid_calculate")
def mid_calculate(case: Case) -> Iterable[str]:
    return mid_calculate_under(case, OLD)


@suite("node/mid_calculate_18")
def mid_calculate_18(case: Case) -> Iterable[str]:
    return mid_calculate_under(case, NEWEST)


def mid_calculate_under(case: Case, compat: Compat) -> Iterable[str]:
    given = case["input"]
    missing = any(given[name] is None for name in ("strategy", "node", "pods", "nodeMetric"))
    if missing or (given["node"].get("status") or {}).get("allocatable") is None:
        return compare(case, {"error": True})
    items = mid.calculate_mid(
        given["strategy"],
        convert(given["node"], Node),
        [claim_of(convert(pod, Pod)) for pod in given["pods"]],
        convert(given["nodeMetric"], NodeMetric),
        datetime.fromisoformat(given["now"]),
        compat,
    )
    return compare(case, {"error": False, "items": shown(items)})


@suite("node/batch_by_policy")
def batch_by_policy(case: Case) -> Iterable[str]:
    return batch_by_policy_under(case, OLD)


@suite("node/batch_by_policy_18")
def batch_by_policy_18(case: Case) -> Iterable[str]:
    return batch_by_policy_under(case, NEWEST)


def batch_by_policy_under(case: Case, compat: Compat) -> Iterable[str]:
    given = case["input"]
    amounts = {name: parse_list(value) for name, value in given.items() if name != "strategy"}
    sums = batch.Sums(
        capacity=amounts["nodeCapacity"],
        node_reserved=amounts["nodeReserved"],
        system_reserved=amounts["systemReserved"],
        system_used=maximum(amounts["systemUsed"], amounts["systemReserved"]),
        requested=amounts["podHPReq"],
        used=amounts["podHPUsed"],
        max_used_requested=amounts["podHPMaxUsedReq"],
    )
    cpu, memory = batch.by_policy(given["strategy"], sums, compat)
    return compare(case, {"cpuMilli": cpu.milli, "memory": memory.value})


@suite("node/node_reserve")
def node_reserve(case: Case) -> Iterable[str]:
    given = case["input"]
    reserved = batch.reserve(given["strategy"], parse_list(given["allocatable"]))
    return compare(case, {"cpuMilli": reserved["cpu"].milli, "memory": reserved["memory"].value})


@suite("node/divide_resource_list")
def divide_resource_list(case: Case) -> Iterable[str]:
    given = case["input"]
    shares = arithmetic.divide(parse_list(given["list"]), given["divisor"])
    return compare(case, {"milli": {name: amount.milli for name, amount in shares.items()}})


@suite("node/pod_numa_split")
def pod_numa_split(case: Case) -> Iterable[str]:
    given = case["input"]
    count = given["numaNum"]
    where = claim_of(convert(given["pod"], Pod)).zones(count)

    def split(amounts: Mapping[str, str]) -> list[dict[str, str]]:
        part = loads.share(loads.usage_pair(ResourceMap(resources=dict(amounts))), len(where))
        shares = (loads.total([part] * where.count(index)) for index in range(count))
        return [{name: text for name, text in text_of(share).items() if name in amounts} for share in shares]

    return compare(case, {"requests": split(given["request"]), "usages": split(given["usage"])})


@suite("node/nrt_zone_update")
def nrt_zone_update(case: Case) -> Iterable[str]:
    given = case["input"]
    values = {name: parse_list(resources) for name, resources in (given["zoneResources"] or {}).items()}
    updated, changed = patches.update_zones(given["zones"] or (), values, given["annotations"], given["threshold"])
    return compare(case, {"changed": changed, "zones": updated})


@suite("node/batch_prepare")
def batch_prepare(case: Case) -> Iterable[str]:
    given = case["input"]
    items = {
        name: ResourceItem(name, parse_quantity(text), reset=bool((given["resets"] or {}).get(name)))
        for name, text in (given["resources"] or {}).items()
    }
    state = node_update.prepare_batch(node_update.NodeState.of(given["node"]), items, given["annotations"] or {})
    expected = {**case["expected"], "annotations": parsed_annotations(case["expected"].get("annotations"))}
    actual = {
        "error": bool(state.error),
        "allocatable": state.allocatable,
        "capacity": state.capacity,
        "annotations": parsed_annotations(state.annotations),
    }
    return differences(expected, actual, drop_empty=True, quantities=True)


@suite("node/batch_need_sync")
def batch_need_sync(case: Case) -> Iterable[str]:
    given = case["input"]
    old, new = node_update.NodeState.of(given["old"]), node_update.NodeState.of(given["new"])
    threshold = given["strategy"]["resourceDiffThreshold"]
    needed = node_update.resources_need_write(old, new, threshold, BATCH_RESOURCES)
    return compare(case, {"needSync": needed})


@suite("node/node_sync_needed")
def node_sync_needed(case: Case) -> Iterable[str]:
    given = case["input"]
    old, new = node_update.NodeState.of(given["old"]), node_update.NodeState.of(given["new"])
    ago = given["lastSyncSecondsAgo"]
    since = None if ago is None else timedelta(seconds=ago)
    status = node_update.status_needs_write(given["strategy"], old, new, since)
    return compare(case, {"status": status, "meta": bool(node_update.annotations_to_write(old, new))})


@suite("node/cpu_normalization")
def cpu_normalization(case: Case) -> Iterable[str]:
    return cpu_normalization_under(case, OLD)


@suite("node/cpu_normalization_18")
def cpu_normalization_18(case: Case) -> Iterable[str]:
    return cpu_normalization_under(case, NEWEST)


def cpu_normalization_under(case: Case, compat: Compat) -> Iterable[str]:
    given = case["input"]
    before = config.NormalizationState(compat=compat)
    data = {} if given["config"] is None else {config.CPU_NORMALIZATION_KEY: given["config"]}
    state, problems = before.updated(data)
    node = convert(given["node"], Node)
    strategy = normalization.strategy_of(state.config, node)
    info = ((given["nrt"] or {}).get("annotations") or {}).get(normalization.CPU_BASIC_INFO_ANNOTATION)
    annotation: str | None
    try:
        annotation = normalization.normalization_annotation(strategy, node, info)
    except normalization.NormalizationError:
        annotation = None
    actual = {
        "configChanged": state.config != before.config,
        "event": problems[0].reason if problems else None,
        "error": annotation is None,
        "strategy": strategy,
        "annotation": annotation,
    }
    return differences(case["expected"], actual, drop_empty=True)


@suite("node/cpu_norm_need_sync")
def cpu_norm_need_sync(case: Case) -> Iterable[str]:
    given = case["input"]
    old, new = node_update.NodeState.of(given["old"]), node_update.NodeState.of(given["new"])
    return compare(case, {"needSync": normalization.annotation_needs_write(old.annotations, new.annotations)})


@suite("node/resource_amplification")
def resource_amplification(case: Case) -> Iterable[str]:
    found = normalization.amplification(convert(case["input"]["node"], Node), {})
    annotations = None
    if found.annotation is not None:
        annotations = {normalization.AMPLIFICATION_ANNOTATION: found.annotation}
    return compare(case, {"error": bool(found.error), "annotations": annotations})


@suite("node/amplification_config")
def amplification_config(case: Case) -> Iterable[str]:
    given, expected = case["input"], case["expected"]
    state = config.AmplificationState()
    steps = []
    for data in given["configMaps"]:
        new, problems = state.updated(data)
        events = [f"Warning {problem.reason}" for problem in problems]
        steps.append({"changed": new.config != state.config, "events": events, "cfg": new.config})
        state = new
    node = convert(given["node"], Node)
    strategy = normalization.strategy_of(state.config, node)
    found = normalization.amplification(node, strategy)
    actual: dict[str, Any] = {"steps": steps, "strategy": strategy, "error": bool(found.error)}
    if not found.error:
        old = node_update.NodeState.of_node(node)
        after = node_update.prepare(old, {}, {}, found, owned=())
        needed = node_update.annotations_to_write(old, after)
        actual |= {"annotation": found.annotation, "node": after.annotations, "needSync": bool(needed)}
    return differences(expected, actual, drop_empty=True)


@suite("node/gpu_node_resources")
def gpu_node_resources(case: Case) -> Iterable[str]:
    return with_devices(case, devices.DeviceOptions(rdma=False, compat=OLD))


@suite("node/device_node_resources")
def device_node_resources(case: Case) -> Iterable[str]:
    return with_devices(case, devices.DeviceOptions(share_count=case["input"]["syncShare"]))


def with_devices(case: Case, options: devices.DeviceOptions) -> Iterable[str]:
    given = case["input"]
    device = None if given["device"] is None else convert(given["device"], Device)
    new = devices.with_devices(node_update.NodeState.of(given["node"]), device, options)
    labels = dict((given["node"].get("metadata") or {}).get("labels") or {})
    labels |= devices.device_labels(device, labels, options)
    return compare(case, {"error": False, "labels": labels, "allocatable": new.allocatable, "capacity": new.capacity})


@suite("node/quantity_multiply")
def quantity_multiply(case: Case) -> Iterable[str]:
    quantity, factor = parse_quantity(case["input"]["quantity"]), case["input"]["factor"]
    actual = {
        "milliScaled": str(arithmetic.scale_milli(quantity, factor)),
        "valueScaled": str(arithmetic.scale_value(quantity, factor)),
    }
    return compare(case, actual)


@suite("node/resource_diff")
def resource_diff(case: Case) -> Iterable[str]:
    given = case["input"]
    old = None if given["old"] is None else parse_list(given["old"])
    new = None if given["new"] is None else parse_list(given["new"])
    return compare(case, {"diff": arithmetic.differs(old, new, given["name"], given["threshold"])})


@suite("node/zone_list_merge")
def zone_list_merge(case: Case) -> Iterable[str]:
    given = case["input"]
    return compare(case, {"merged": merge_zones(given["a"] or (), given["b"] or ())})
