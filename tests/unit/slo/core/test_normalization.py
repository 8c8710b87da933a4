"""The ratio of a CPU model, and the annotations that follow from it."""

import json
from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.objects.meta import ObjectMeta
from kubetide.api.values.codec import convert
from kubetide.slo.core.config import CPU_NORMALIZATION_KEY, NormalizationState
from kubetide.slo.core.decide import decide_node
from kubetide.slo.core.normalization import (
    AMPLIFICATION_ANNOTATION,
    NormalizationError,
    amplification,
    annotation_needs_write,
    normalization_annotation,
    strategy_of,
)
from kubetide.slo.settings import SloSettings
from unit.slo.scenes import NOW, observe

RATIO = "node.koordinator.sh/cpu-normalization-ratio"
SWITCH = "node.koordinator.sh/cpu-normalization-enabled"
MODEL = {
    "baseRatio": 1.5,
    "hyperThreadEnabledRatio": 1.0,
    "turboEnabledRatio": 1.65,
    "hyperThreadTurboEnabledRatio": 1.1,
}


def node(ratio: str | None = None, **labels: str) -> Node:
    marks = {SWITCH if key == "switch" else key: text for key, text in labels.items()}
    annotations = {} if ratio is None else {RATIO: ratio}
    return Node(metadata=ObjectMeta(name="n", labels=marks, annotations=annotations))


def annotation(strategy: dict[str, Any], info: str | None = '{"cpuModel": "X"}', **labels: str) -> str:
    return normalization_annotation(strategy, node(None, **labels), info)


@pytest.mark.parametrize(
    ("info", "text"),
    [
        ({}, "1.50"),
        ({"hyperThreadEnabled": True}, "1.00"),
        ({"turboEnabled": True}, "1.65"),
        ({"hyperThreadEnabled": True, "turboEnabled": True}, "1.10"),
    ],
)
def test_the_ratio_follows_what_is_switched_on(info: dict[str, bool], text: str) -> None:
    strategy = {"enable": True, "ratioModel": {"X": MODEL}}
    assert annotation(strategy, json.dumps({"cpuModel": "X", **info})) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(1, "1.00"), (5, "5.00"), (1.005, "1.00"), (1.115, "1.11"), (2.675, "2.67")]
)
def test_two_decimals_of_the_binary_value(ratio: float, text: str) -> None:
    assert annotation({"enable": True, "ratioModel": {"X": {"baseRatio": ratio}}}) == text


@pytest.mark.parametrize(
    ("model", "info"),
    [
        pytest.param({"X": {"baseRatio": 0.99}}, '{"cpuModel": "X"}', id="below-one"),
        pytest.param({"X": {"baseRatio": 5.01}}, '{"cpuModel": "X"}', id="above-five"),
        pytest.param({"X": {"turboEnabledRatio": 2}}, '{"cpuModel": "X"}', id="ratio-not-given"),
        pytest.param({"Y": MODEL}, '{"cpuModel": "X"}', id="another-model"),
        pytest.param(None, '{"cpuModel": "X"}', id="no-model"),
        pytest.param({"X": MODEL}, "bad", id="unreadable-information"),
        pytest.param({"X": MODEL}, None, id="no-information"),
    ],
)
def test_what_cannot_be_known_is_not_written(model: dict[str, Any] | None, info: str | None) -> None:
    with pytest.raises(NormalizationError):
        annotation({"enable": True, "ratioModel": model}, info)


@pytest.mark.parametrize(("switch", "text"), [("1", "1.50"), ("True", "1.50"), ("f", "1.00"), ("FALSE", "1.00")])
def test_the_label_beats_the_strategy(switch: str, text: str) -> None:
    for enable in (True, False):
        assert annotation({"enable": enable, "ratioModel": {"X": MODEL}}, switch=switch) == text


@pytest.mark.parametrize("switch", ["", "yes", "tRUE", " true"])
def test_a_switch_that_is_no_boolean_changes_nothing(switch: str) -> None:
    with pytest.raises(NormalizationError):
        annotation({"enable": False}, switch=switch)


def test_switched_off_is_a_ratio_of_one_whatever_is_known() -> None:
    assert annotation({"enable": False, "ratioModel": {"X": MODEL}}, None) == "1.00"


def test_models_of_a_node_entry_replace_those_of_the_cluster_one_by_one() -> None:
    config = {
        "enable": True,
        "ratioModel": {"X": MODEL, "Y": {"baseRatio": 2}},
        "nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "a"}}, "ratioModel": {"X": {"baseRatio": 3}}}],
    }
    state, problems = NormalizationState().updated({CPU_NORMALIZATION_KEY: json.dumps(config)})
    assert problems == ()
    found = strategy_of(state.config, node(pool="a"))
    assert (found["enable"], found["ratioModel"]) == (True, {"X": {"baseRatio": 3}, "Y": {"baseRatio": 2}})
    assert strategy_of(state.config, node())["ratioModel"]["X"] == MODEL


def test_an_unreadable_text_keeps_what_was_there() -> None:
    good, _ = NormalizationState().updated({CPU_NORMALIZATION_KEY: '{"enable": true}'})
    for text in ("", "{bad", '{"enable": "yes"}'):
        state, problems = good.updated({CPU_NORMALIZATION_KEY: text})
        assert state.config == good.config
        assert [problem.reason for problem in problems] == ["CPUNormalizationCfgUnmarshalFailed"]
    assert good.updated({})[0].config["enable"] is False


@pytest.mark.parametrize(
    ("old", "new", "written"),
    [
        pytest.param(None, None, False, id="neither"),
        pytest.param(None, "1.00", True, id="new"),
        pytest.param("1.00", None, True, id="gone"),
        pytest.param("1.00", "1.005", False, id="less-than-a-hundredth"),
        pytest.param("1.00", "1.02", True, id="more"),
        pytest.param("x", "1.00", True, id="old-unreadable"),
        pytest.param("1.00", "x", False, id="new-unreadable"),
        pytest.param("0", "1.00", True, id="old-is-no-ratio"),
    ],
)
def test_when_the_ratio_is_written(old: str | None, new: str | None, written: bool) -> None:
    before, after = ({} if text is None else {RATIO: text} for text in (old, new))
    assert annotation_needs_write(before, after) is written


@pytest.mark.parametrize(
    ("ratio", "text", "wrong"),
    [
        ("1.20", '{"cpu":1.20}', False),
        ("5", '{"cpu":5.00}', False),
        ("1.00", None, False),
        ("0.5", None, False),
        (None, None, False),
        ("0", None, True),
        ("-1", None, True),
        ("bad", None, True),
    ],
)
def test_amplification_follows_the_ratio_on_the_node(ratio: str | None, text: str | None, wrong: bool) -> None:
    found = amplification(node(ratio), {})
    assert (found.annotation, bool(found.error)) == (text, wrong)


def metadata_patch(on_node: dict[str, str]) -> dict[str, Any] | None:
    metadata = {"name": "n", "labels": {SWITCH: "true"}, "annotations": on_node}
    status = {"capacity": {"cpu": "10", "memory": "10Gi"}, "allocatable": {"cpu": "10", "memory": "10Gi"}}
    seen = observe(
        node=convert({"metadata": metadata, "status": status}, Node),
        normalization={"ratioModel": {"m": {"baseRatio": 1.1}}},
        topology_annotations={"node.koordinator.sh/cpu-basic-info": '{"cpuModel":"m"}'},
    )
    return decide_node(seen, SloSettings(), NOW).metadata_patch


def test_a_node_whose_ratio_is_right_already_is_not_written_again() -> None:
    amplified = {AMPLIFICATION_ANNOTATION: '{"cpu":1.10}'}
    assert metadata_patch({RATIO: "1.10", **amplified}) is None
    assert metadata_patch({RATIO: "1.1", **amplified}) is None, "another spelling of the same ratio"
    wrong = metadata_patch({RATIO: "1.30", **amplified})
    assert wrong is not None
    assert wrong["metadata"]["annotations"][RATIO] == "1.10"


def test_a_ratio_that_is_right_is_left_alone_when_the_amplification_is_written() -> None:
    assert metadata_patch({RATIO: "1.1"}) == {"metadata": {"annotations": {AMPLIFICATION_ANNOTATION: '{"cpu":1.10}'}}}
