"""The admission check: ranges, names, selectors and overlaps, one key after the other."""

import json
from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import LabelSelector
from kubetide.slo.core.config import (
    COLOCATION_KEY,
    CPU_BURST_KEY,
    QOS_KEY,
    SYSTEM_KEY,
    THRESHOLD_KEY,
    ColocationState,
    choose,
)
from kubetide.slo.core.validate import PARAM_INVALID, Rejection, conflicting_entries, label_sets, validate_configmap


def check(key: str, content: Any, *, nodes: tuple[dict[str, str], ...] = (), names: bool = False) -> Rejection | None:
    text = content if isinstance(content, str) else json.dumps(content)
    existing = [
        convert({"metadata": {"name": f"n{index}", "labels": labels}}, Node) for index, labels in enumerate(nodes)
    ]
    return validate_configmap(None, {key: text}, nodes=existing, names_needed=names)


def entry(name: str = "", selector: Any = None, **fields: Any) -> dict[str, Any]:
    chosen = {"matchLabels": {"pool": name}} if selector is None else selector
    return {"name": name, "nodeSelector": chosen, **fields}


def nested(path: str, value: float) -> dict[str, Any]:
    result: Any = value
    for part in reversed(path.split(".")):
        result = {part: result}
    return result if isinstance(result, dict) else {}


RANGES = [
    (COLOCATION_KEY, "metricAggregateDurationSeconds", 1, None),
    (COLOCATION_KEY, "metricReportIntervalSeconds", 1, None),
    (COLOCATION_KEY, "cpuReclaimThresholdPercent", 0, None),
    (COLOCATION_KEY, "memoryReclaimThresholdPercent", 0, None),
    (COLOCATION_KEY, "midUnallocatedPercent", 0, 100),
    (COLOCATION_KEY, "midStaticCPUReservedPercent", 0, 100),
    (COLOCATION_KEY, "midStaticMemoryReservedPercent", 0, 100),
    (COLOCATION_KEY, "batchCPUThresholdPercent", 0, None),
    (COLOCATION_KEY, "batchMemoryThresholdPercent", 0, None),
    (THRESHOLD_KEY, "cpuSuppressMinPercent", 0, 100),
    (THRESHOLD_KEY, "cpuEvictThresholdPercent", 0, 100),
    (THRESHOLD_KEY, "cpuEvictLowerPercent", 0, 100),
    (THRESHOLD_KEY, "cpuAllocatableEvictThresholdPercent", 0, None),
    (THRESHOLD_KEY, "memoryAllocatableEvictLowerPercent", 0, None),
    (THRESHOLD_KEY, "allocatableEvictPriorityThreshold", 0, 7999),
    (COLOCATION_KEY, "degradeTimeMinutes", 1, None),
    (COLOCATION_KEY, "updateTimeThresholdSeconds", 1, None),
    (COLOCATION_KEY, "midCPUThresholdPercent", 0, 100),
    (COLOCATION_KEY, "midMemoryThresholdPercent", 0, 100),
    (THRESHOLD_KEY, "cpuSuppressThresholdPercent", 0, 100),
    (THRESHOLD_KEY, "memoryEvictThresholdPercent", 0, 100),
    (THRESHOLD_KEY, "memoryEvictLowerPercent", 0, 100),
    (THRESHOLD_KEY, "cpuEvictBESatisfactionUpperPercent", 0, 100),
    (THRESHOLD_KEY, "cpuEvictBESatisfactionLowerPercent", 0, 100),
    (THRESHOLD_KEY, "cpuEvictBEUsageThresholdPercent", 0, 100),
    (THRESHOLD_KEY, "cpuEvictTimeWindowSeconds", 1, None),
    (QOS_KEY, "lsrClass.cpuQOS.groupIdentity", -1, 2),
    (QOS_KEY, "lsClass.cpuQOS.schedIdle", 0, 1),
    (QOS_KEY, "beClass.memoryQOS.minLimitPercent", 0, 100),
    (QOS_KEY, "systemClass.memoryQOS.lowLimitPercent", 0, 100),
    (QOS_KEY, "cgroupRoot.memoryQOS.throttlingPercent", 0, 100),
    (QOS_KEY, "lsClass.memoryQOS.wmarkRatio", 0, 100),
    (QOS_KEY, "lsClass.memoryQOS.wmarkScalePermill", 1, 1000),
    (QOS_KEY, "lsClass.memoryQOS.wmarkMinAdj", -25, 50),
    (QOS_KEY, "lsClass.memoryQOS.priorityEnable", 0, 1),
    (QOS_KEY, "lsClass.memoryQOS.priority", 0, 12),
    (QOS_KEY, "lsClass.memoryQOS.oomKillGroup", 0, 1),
    (QOS_KEY, "lsClass.resctrlQOS.catRangeStartPercent", 0, 100),
    (QOS_KEY, "lsClass.resctrlQOS.catRangeEndPercent", 0, 100),
    (QOS_KEY, "lsClass.resctrlQOS.mbaPercent", 0, 100),
    (CPU_BURST_KEY, "cpuBurstPercent", 1, 10000),
    (CPU_BURST_KEY, "cfsQuotaBurstPercent", 100, None),
    (CPU_BURST_KEY, "cfsQuotaBurstPeriodSeconds", -1, None),
    (CPU_BURST_KEY, "sharePoolThresholdPercent", 0, 100),
    (SYSTEM_KEY, "minFreeKbytesFactor", 1, None),
    (SYSTEM_KEY, "watermarkScaleFactor", 1, 400),
    (SYSTEM_KEY, "memcgReapBackGround", 0, 1),
]


@pytest.mark.parametrize(("key", "path", "low", "high"), RANGES, ids=[path for _, path, _, _ in RANGES])
def test_the_ends_of_a_range_pass_and_the_next_values_do_not(key: str, path: str, low: int, high: int | None) -> None:
    field = path.rpartition(".")[2]
    for value in (low, high if high is not None else 10**9):
        assert check(key, written(key, nested(path, value))) is None
    for value in (low - 1, *(() if high is None else (high + 1,))):
        for content in (written(key, nested(path, value)), written(key, {}, entry("a", **nested(path, value)))):
            refusal = check(key, content)
            assert refusal is not None
            assert (refusal.reason, set(refusal.fields)) == ("ConfigParamInvalid", {field})


def written(key: str, cluster: dict[str, Any], *entries: dict[str, Any]) -> dict[str, Any]:
    if key == COLOCATION_KEY:
        return {**cluster, **({"nodeConfigs": list(entries)} if entries else {})}
    return {"clusterStrategy": cluster, "nodeStrategies": list(entries)}


@pytest.mark.parametrize(("value", "passes"), [(0, False), (0.001, True), (1, True), (1.001, False), (-0.1, False)])
def test_the_difference_threshold_is_a_share_above_nothing(value: float, passes: bool) -> None:
    assert (check(COLOCATION_KEY, {"resourceDiffThreshold": value}) is None) is passes


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ("memoryEvictLowerPercent", "memoryEvictThresholdPercent"),
        ("cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"),
    ],
)
def test_a_complete_pair_must_be_in_order_and_half_a_pair_passes(lower: str, upper: str) -> None:
    for half in ({lower: 60}, {upper: 60}, {lower: 60, upper: 61}):
        assert check(THRESHOLD_KEY, {"clusterStrategy": half}) is None
    for values in ((60, 60), (61, 60)):
        refusal = check(THRESHOLD_KEY, {"clusterStrategy": dict(zip((lower, upper), values, strict=True))})
        assert refusal is not None
        assert set(refusal.fields) == {lower, upper}


@pytest.mark.parametrize("text", ["x", "[]", '{"clusterStrategy": {"enable": "yes"}}', "{} {}"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    refusal = check(THRESHOLD_KEY, text)
    assert refusal is not None
    assert refusal.reason == "ParseConfigFail"


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param({}, id="selects-everything"),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["x"]}]}, id="bad-operator"),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "In"}]}, id="no-values"),
        pytest.param({"matchLabels": {"a b": "c"}}, id="no-label-name"),
    ],
)
def test_every_entry_must_select_by_something_readable(selector: dict[str, Any]) -> None:
    refusal = check(THRESHOLD_KEY, {"nodeStrategies": [entry("a", selector)]})
    assert refusal is not None
    assert refusal.reason == "ConfigParamInvalid"


def test_names_are_needed_and_unique_only_when_asked_for() -> None:
    twice = {"nodeStrategies": [entry("a"), entry("a", {"matchLabels": {"pool": "b"}})]}
    unnamed = {"nodeStrategies": [entry("", {"matchLabels": {"pool": "b"}})]}
    for content in (twice, unnamed):
        assert check(THRESHOLD_KEY, content) is None
        refusal = check(THRESHOLD_KEY, content, names=True)
        assert refusal is not None
        assert refusal.reason == "ConfigParamInvalid"


def test_entries_that_could_pick_the_same_node_overlap() -> None:
    some = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["x", "b"]}]}
    refusal = check(THRESHOLD_KEY, {"nodeStrategies": [entry("a", some), entry("b")]})
    assert refusal is not None
    assert (refusal.reason, refusal.detail) == (
        "NodeStrategiesOverlap",
        {"config": THRESHOLD_KEY, "strategies": ["a", "b"]},
    )


def test_an_existing_node_that_two_entries_pick_is_a_conflict() -> None:
    content = {"nodeStrategies": [entry("a"), entry("z", {"matchLabels": {"zone": "z"}})]}
    assert check(THRESHOLD_KEY, content, nodes=({"pool": "a"}, {"zone": "z"})) is None
    refusal = check(THRESHOLD_KEY, content, nodes=({}, {"pool": "a", "zone": "z"}))
    assert refusal is not None
    assert refusal.reason == "ExistNodeConfict"
    assert refusal.detail == {"config": THRESHOLD_KEY, "strategies": ["a", "z"], "exampleNodes": ["n1"]}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"a": "1"}}, [{"a": "1"}]),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, [{}]),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1", "2"]}]}, [{"a": "1"}, {"a": "2"}]),
        (
            {
                "matchLabels": {"c": "x"},
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["1", "2"]},
                    {"key": "b", "operator": "In", "values": ["3", "4"]},
                ],
            },
            [{"c": "x", "a": "1", "b": "3"}, {"c": "x", "a": "2", "b": "4"}],
        ),
    ],
)
def test_label_sets_take_each_value_in_turn(selector: dict[str, Any], expected: list[dict[str, str]]) -> None:
    assert list(label_sets(convert(selector, LabelSelector))) == expected


@pytest.mark.parametrize("selectors", ["null", '{"matchLabels":null,"matchExpressions":null}'])
def test_a_null_selector_in_a_list_of_node_entries_picks_nobody_and_is_refused(selectors: str) -> None:
    text = f'{{"nodeConfigs":[{{"name":"a","nodeSelector":{selectors},"enable":true}}]}}'
    refusal = check(COLOCATION_KEY, text)
    assert refusal is not None
    assert (refusal.reason, refusal.message) == (PARAM_INVALID, "colocation-config: node entry 'a' has no selector")
    assert conflicting_entries({COLOCATION_KEY: text}, {"pool": "a"}) is None


def test_a_null_entry_is_an_entry_without_a_selector() -> None:
    config, problems = ColocationState.initial().updated({COLOCATION_KEY: '{"enable":true,"nodeConfigs":[null]}'})
    assert problems == ()
    assert choose(config.config.get("nodeConfigs"), {"pool": "a"}) is None
    assert list(label_sets(None)) == []
