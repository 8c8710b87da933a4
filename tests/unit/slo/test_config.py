"""Reading, merging and refusing the ConfigMap."""

import pytest

from kubetide.api.core import Node
from kubetide.api.meta import ObjectMeta
from kubetide.slo.config import (
    COLOCATION_KEY,
    COLOCATION_NOT_ACCEPTABLE,
    COLOCATION_UNREADABLE,
    SYSTEM_KEY,
    THRESHOLD_KEY,
    ColocationState,
    NodeSLOConfig,
    choose,
    merge_key,
)
from kubetide.slo.nodeslo import render, same_spec
from kubetide.slo.strategy import colocation_disabled, node_strategy
from kubetide.slo.validate import CHECKED_KEYS, validate_configmap


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


def test_one_bad_key_does_not_spoil_the_others() -> None:
    config, problems = NodeSLOConfig().updated(
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
    ],
)
def test_a_bad_colocation_text_leaves_the_last_good_one_in_force(text: str, reason: str) -> None:
    good, _ = ColocationState().updated({COLOCATION_KEY: '{"enable": true}'})
    state, problems = good.updated({COLOCATION_KEY: text})
    assert state.config == good.config
    assert state.error
    assert [problem.reason for problem in problems] == [reason]


def test_a_bad_node_entry_falls_back_to_the_cluster_strategy_and_names_itself() -> None:
    text = '{"enable": true, "nodeConfigs": [{"name": "edge", "nodeSelector": {}, "degradeTimeMinutes": -1}]}'
    state, problems = ColocationState().updated({COLOCATION_KEY: text})
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
        assert render(NodeSLOConfig(), {}, old)["extensions"] == {"Object": {"theirs": 1}}


def test_specs_compare_by_meaning() -> None:
    assert same_spec({"a": [], "b": "1Gi"}, {"b": 1073741824})
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
