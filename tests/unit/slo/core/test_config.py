"""Reading, merging and refusing the ConfigMap."""

from typing import Any

import msgspec
import pytest

from kubetide.api.objects.core import Node
from kubetide.api.objects.meta import ObjectMeta
from kubetide.slo.core.config import (
    AMPLIFICATION_KEY,
    AMPLIFICATION_UNREADABLE,
    COLOCATION_KEY,
    COLOCATION_NOT_ACCEPTABLE,
    COLOCATION_UNREADABLE,
    SYSTEM_KEY,
    THRESHOLD_KEY,
    AmplificationState,
    ColocationState,
    NodeSLOConfig,
    choose,
    merge_key,
)
from kubetide.slo.core.nodeslo import render, same_spec
from kubetide.slo.core.strategy import colocation_disabled, node_strategy
from kubetide.slo.core.validate import CHECKED_KEYS, validate_configmap


def node(**labels: str) -> Node:
    return Node(metadata=ObjectMeta(name="n", labels={key.replace("__", "/"): text for key, text in labels.items()}))


def test_keys_match_without_regard_to_case_and_zero_counts_as_given() -> None:
    text = '{"ClusterStrategy": {"ENABLE": false, "cpusuppressthresholdpercent": 0}}'
    merged, error = merge_key(THRESHOLD_KEY, {THRESHOLD_KEY: text}, None)
    assert error is None
    assert merged["clusterStrategy"]["cpuSuppressThresholdPercent"] == 0
    assert merged["clusterStrategy"]["memoryEvictThresholdPercent"] == 70


@pytest.mark.parametrize("text", ["", "{", '{"clusterStrategy": {"enable": "yes"}}', "[]", '{"clusterStrategy": 3}'])
def test_an_unreadable_key_keeps_its_previous_configuration(text: str) -> None:
    previous = {"clusterStrategy": {"enable": True}}
    merged, error = merge_key(THRESHOLD_KEY, {THRESHOLD_KEY: text}, previous)
    assert merged == previous
    assert error is not None
    assert THRESHOLD_KEY in error


@pytest.mark.parametrize("text", ["", "{", "[]", '{"resourceAmplificationRatio": {"cpu": "much"}}'])
def test_unreadable_amplification_keeps_the_previous_ratios_and_an_absent_key_ends_them(text: str) -> None:
    good = '{"enable": true, "resourceAmplificationRatio": {"cpu": 1.5}}'
    state, problems = AmplificationState().updated({AMPLIFICATION_KEY: good})
    assert (state.config["resourceAmplificationRatio"], problems) == ({"cpu": 1.5}, ())
    after, problems = state.updated({AMPLIFICATION_KEY: text})
    assert after == state
    assert [(one.reason, one.key) for one in problems] == [(AMPLIFICATION_UNREADABLE, AMPLIFICATION_KEY)]
    assert after.updated({}) == after.updated(None) == (AmplificationState(), ())


def test_one_bad_key_does_not_spoil_the_others() -> None:
    config, problems = NodeSLOConfig.initial().updated(
        {THRESHOLD_KEY: "broken", SYSTEM_KEY: '{"clusterStrategy": {"minFreeKbytesFactor": 7}}'}
    )
    assert [problem.key for problem in problems] == [THRESHOLD_KEY]
    assert config.keys[SYSTEM_KEY]["clusterStrategy"]["minFreeKbytesFactor"] == 7
    assert config.keys[THRESHOLD_KEY]["clusterStrategy"]["enable"] is False


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("{", COLOCATION_UNREADABLE, id="unreadable"),
        pytest.param('{"enable": true, "degradeTimeMinutes": 0}', COLOCATION_NOT_ACCEPTABLE, id="unacceptable"),
        pytest.param('{"metricAggregatePolicy": {"durations": [5]}}', COLOCATION_UNREADABLE, id="number-as-duration"),
        pytest.param('{"metricAggregatePolicy": {"durations": ["5"]}}', COLOCATION_UNREADABLE, id="no-unit"),
        pytest.param('{"metricAggregatePolicy": {"durations": [null]}}', COLOCATION_UNREADABLE, id="null-as-duration"),
        pytest.param('{"degradeTimeMinutes": 9223372036854775808}', COLOCATION_UNREADABLE, id="beyond-64-bits"),
        pytest.param('{"degradeTimeMinutes": 5.0}', COLOCATION_UNREADABLE, id="fraction-for-an-integer"),
    ],
)
def test_a_bad_colocation_text_leaves_the_last_good_one_in_force(text: str, reason: str) -> None:
    good, _ = ColocationState.initial().updated({COLOCATION_KEY: '{"enable": true}'})
    state, problems = good.updated({COLOCATION_KEY: text})
    assert state.config == good.config
    assert state.error
    assert [problem.reason for problem in problems] == [reason]


def test_a_bad_node_entry_falls_back_to_the_cluster_strategy_and_names_itself() -> None:
    text = '{"enable": true, "nodeConfigs": [{"name": "edge", "nodeSelector": {}, "degradeTimeMinutes": -1}]}'
    state, problems = ColocationState.initial().updated({COLOCATION_KEY: text})
    assert not state.error
    assert state.config["nodeConfigs"][0]["degradeTimeMinutes"] == 15
    assert "edge" in problems[0].message


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        pytest.param(None, False, id="absent-matches-nothing"),
        pytest.param({}, True, id="empty-matches-everything"),
        pytest.param({"matchExpressions": [{"key": "a", "operator": "Like"}]}, False, id="unreadable-is-passed-over"),
    ],
)
def test_choosing_by_selector(selector: object, chosen: bool) -> None:
    entry = {"name": "x"} if selector is None else {"name": "x", "nodeSelector": selector}
    assert (choose([entry], {"b": "c"}) is entry) is chosen


def test_a_null_in_a_list_is_an_entry_that_says_nothing() -> None:
    text = '{"clusterStrategy": {"enable": true}, "nodeStrategies": [null, {"name": "b", "nodeSelector": {}}]}'
    merged, error = merge_key(THRESHOLD_KEY, {THRESHOLD_KEY: text}, None)
    assert error is None
    assert [entry.get("name") for entry in merged["nodeStrategies"]] == [None, "b"]
    assert choose(merged["nodeStrategies"], {}) is merged["nodeStrategies"][1]


def test_extensions_merge_by_key_and_are_not_looked_into() -> None:
    cluster = {"a": {"kept": 1}, "b": {"replaced": 1}}
    entry = {"nodeSelector": {}, "extensions": {"b": {"new": 2}, "metricAggregatePolicy": {"durations": 5}}}
    text = msgspec.json.encode({"extensions": cluster, "nodeConfigs": [entry]}).decode()
    state, problems = ColocationState.initial().updated({COLOCATION_KEY: text})
    assert problems == ()
    strategy = node_strategy(state.config, node())
    assert strategy is not None
    assert strategy["extensions"] == {
        "a": {"kept": 1},
        "b": {"new": 2},
        "metricAggregatePolicy": {"durations": 5},
    }


@pytest.mark.parametrize("text", ["1_0", " 1", "１", "inf", "1e400", "0x1", "-0.1", "", "nan", "1e30"])
def test_a_ratio_that_go_would_not_read_is_passed_over(text: str) -> None:
    strategy = node_strategy({"enable": True}, node(**{"node.koordinator.sh__cpu-reclaim-ratio": text}))
    assert strategy == {"enable": True}


def test_labels_beat_the_configmap_and_nonsense_is_ignored() -> None:
    labels = {"node.koordinator.sh__cpu-reclaim-ratio": "0.29", "node.koordinator.sh__memory-reclaim-ratio": "NaN"}
    strategy = node_strategy({"enable": True, "memoryReclaimThresholdPercent": 65}, node(**labels))
    assert strategy is not None
    assert strategy["cpuReclaimThresholdPercent"] == 28
    assert strategy["memoryReclaimThresholdPercent"] == 65


def test_a_node_cannot_switch_on_what_the_cluster_switched_off() -> None:
    entry = {"nodeSelector": {}, "enable": True}
    assert colocation_disabled({"enable": False, "nodeConfigs": [entry]}, node())
    assert not colocation_disabled({"enable": True, "nodeConfigs": [entry]}, node())


def test_extensions_of_others_survive_in_both_shapes() -> None:
    for old in ({"extensions": {"Object": {"theirs": 1}}}, {"extensions": {"theirs": 1}}):
        assert render(NodeSLOConfig.initial(), Node(), old)["extensions"] == {"Object": {"theirs": 1}}
    for broken in ({"extensions": [1]}, {"extensions": {"Object": "text"}}, None):
        assert render(NodeSLOConfig.initial(), Node(), broken)["extensions"] == {"Object": {}}


def test_specs_compare_by_meaning() -> None:
    assert same_spec({"a": [], "totalNetworkBandwidth": "1Gi"}, {"totalNetworkBandwidth": 1073741824})
    assert not same_spec({"ingressLimit": 50}, {"ingressLimit": "50"})
    assert not same_spec({"enable": False}, {"enable": 0})
    assert not same_spec({"a": [1]}, {"a": [1, 2]})


def test_half_a_pair_is_not_refused_but_a_wrong_pair_is() -> None:
    def refused(text: str) -> set[str]:
        refusal = validate_configmap(None, {THRESHOLD_KEY: text}, nodes=(), names_needed=False)
        return set(refusal.fields) if refusal else set()

    assert refused('{"clusterStrategy": {"memoryEvictThresholdPercent": 70}}') == set()
    assert refused('{"clusterStrategy": {"memoryEvictThresholdPercent": 70, "memoryEvictLowerPercent": 70}}') == {
        "memoryEvictThresholdPercent",
        "memoryEvictLowerPercent",
    }


def test_only_changed_texts_are_checked() -> None:
    broken = dict.fromkeys(CHECKED_KEYS, "broken")
    assert validate_configmap(broken, broken, nodes=(), names_needed=False) is None
    refusal = validate_configmap(None, broken, nodes=(), names_needed=False)
    assert refusal is not None
    assert refusal.text.startswith('___{"reason":"ParseConfigFail"')


def test_selectors_with_many_values_are_checked_in_bounded_time() -> None:
    def entry(name: str, pools: range) -> dict[str, Any]:
        many = [{"key": f"k{size}", "operator": "In", "values": [str(n) for n in range(size)]} for size in pools]
        return {"name": name, "nodeSelector": {"matchExpressions": many}}

    text = msgspec.json.encode({"nodeConfigs": [entry("a", range(90, 99)), entry("b", range(99, 105))]}).decode()
    refusal = validate_configmap(None, {COLOCATION_KEY: text}, nodes=(), names_needed=False)
    assert refusal is None

    same = msgspec.json.encode({"nodeConfigs": [entry("a", range(2, 5)), entry("b", range(2, 5))]}).decode()
    refusal = validate_configmap(None, {COLOCATION_KEY: same}, nodes=(), names_needed=False)
    assert refusal is not None
    assert refusal.reason == "NodeStrategiesOverlap"
