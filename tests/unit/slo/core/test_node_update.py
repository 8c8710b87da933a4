"""From calculated resources to the node: origin, other schedulers, whether to write at all."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.qos.qos import ANNOTATION_CPU_NORMALIZATION
from kubetide.api.values.quantity import Quantity
from kubetide.slo.core.node_update import (
    ORIGIN_ANNOTATION,
    THIRD_PARTY_ANNOTATION,
    NodeState,
    annotations_to_write,
    prepare,
    prepare_batch,
    status_needs_write,
)
from kubetide.slo.core.normalization import AMPLIFICATION_ANNOTATION, Amplification
from kubetide.slo.core.overcommit.result import BATCH_CPU, BATCH_MEMORY, MID_CPU, ResourceItem

STRATEGY = {"resourceDiffThreshold": 0.1, "updateTimeThresholdSeconds": 300}
PLAIN = {"cpu": "10", "memory": "10Gi", "example.com/gpu": "2"}


def node(annotations: dict[str, str] | None = None, **extended: str) -> NodeState:
    found = {f"kubernetes.io/{name.replace('_', '-')}": text for name, text in extended.items()}
    return NodeState({**PLAIN, **found}, {**PLAIN, **found}, annotations or {})


def items(**amounts: int) -> dict[str, ResourceItem]:
    names = {name: f"kubernetes.io/{name.replace('_', '-')}" for name in amounts}
    return {names[name]: ResourceItem(names[name], Quantity.of(amount)) for name, amount in amounts.items()}


def origin(state: NodeState) -> Any:
    return msgspec.json.decode(state.annotations[ORIGIN_ANNOTATION])["resources"]


def allocations(*found: tuple[str, str]) -> dict[str, str]:
    entries = [{"name": "yarn", "priority": priority, "resources": {BATCH_CPU: cpu}} for priority, cpu in found]
    return {THIRD_PARTY_ANNOTATION: msgspec.json.encode({"allocations": entries}).decode()}


def test_the_origin_is_recorded_before_other_schedulers_are_taken_off() -> None:
    old = node(allocations(("koord-batch", "1000"), ("koord-batch", "500"), ("koord-mid", "700")))
    new = prepare_batch(old, items(batch_cpu=4000, batch_memory=2**30), {})
    assert (new.allocatable[BATCH_CPU], new.capacity[BATCH_CPU]) == ("2500", "2500")
    assert origin(new) == {BATCH_CPU: "4k", BATCH_MEMORY: "1073741824"}
    assert new.allocatable["example.com/gpu"] == "2"


def test_other_schedulers_cannot_take_more_than_there_is() -> None:
    new = prepare_batch(node(allocations(("koord-batch", "9000"))), items(batch_cpu=4000), {})
    assert new.allocatable[BATCH_CPU] == "0"


def test_an_unreadable_list_of_other_schedulers_is_an_error_and_takes_nothing_off() -> None:
    for text in ("{", '{"allocations": [{"priority": "koord-prod", "resources": {"cpu": "much"}}]}'):
        new = prepare_batch(node({THIRD_PARTY_ANNOTATION: text}), items(batch_cpu=4000), {})
        assert new.allocatable[BATCH_CPU] == "4k"
        assert new.error


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param('{"resources": {"example.com/theirs": "1"}}', {"example.com/theirs": "1"}, id="others-stay"),
        pytest.param("{broken", {}, id="broken-content-is-replaced"),
        pytest.param('{"resources": {"example.com/theirs": "much"}}', {}, id="no-quantity-is-broken-too"),
        pytest.param('{"Resources": {"example.com/theirs": "1"}}', {"example.com/theirs": "1"}, id="any-case"),
        pytest.param('["a"]', {}, id="another-shape-is-replaced"),
    ],
)
def test_what_others_recorded_beside_the_origin_stays(text: str, kept: dict[str, str]) -> None:
    new = prepare_batch(node({ORIGIN_ANNOTATION: text}), items(batch_cpu=1), {})
    assert origin(new) == {**kept, BATCH_CPU: "1", BATCH_MEMORY: "0"}


def test_normalization_scales_batch_cpu_and_nothing_else() -> None:
    ratio = {ANNOTATION_CPU_NORMALIZATION: "1.50"}
    new = prepare(node(), items(batch_cpu=1001, batch_memory=100, mid_cpu=1000), ratio)
    found = {name: int(Quantity.parse(new.allocatable[name]).value) for name in (BATCH_CPU, BATCH_MEMORY, MID_CPU)}
    assert found == {BATCH_CPU: 1502, BATCH_MEMORY: 100, MID_CPU: 1000}
    assert new.annotations[ANNOTATION_CPU_NORMALIZATION] == "1.50"


def test_a_reset_removes_the_keys_instead_of_writing_zero() -> None:
    gone = {BATCH_CPU: ResourceItem(BATCH_CPU, reset=True)}
    new = prepare(node(batch_cpu="5", batch_memory="6", mid_cpu="7"), gone, {}, Amplification(None))
    assert dict(new.allocatable) == PLAIN
    assert dict(new.capacity) == PLAIN


@pytest.mark.parametrize(
    ("old", "new", "since", "written"),
    [
        pytest.param("1000", "1100", 0, False, id="at-the-threshold"),
        pytest.param("1000", "1101", 0, True, id="past-the-threshold"),
        pytest.param("1000", "1050", 300, False, id="drift-at-the-time-limit"),
        pytest.param("1000", "1050", 301, True, id="drift-past-the-time-limit"),
        pytest.param("1000", "1050", None, True, id="drift-never-written-by-this-process"),
        pytest.param("1000", "1k", 9999, False, id="nothing-differs"),
        pytest.param("1000", "1000", None, False, id="nothing-differs-after-a-restart"),
        pytest.param("0", "1", 0, True, id="anything-differs-from-zero"),
    ],
)
def test_when_the_status_is_written(old: str, new: str, since: int | None, written: bool) -> None:
    age = None if since is None else timedelta(seconds=since)
    assert status_needs_write(STRATEGY, node(batch_cpu=old), node(batch_cpu=new), age) is written


def test_a_node_without_resources_of_its_own_is_not_written() -> None:
    empty = NodeState({}, {}, {})
    assert not status_needs_write(STRATEGY, node(batch_cpu="1"), empty, None)


def test_a_changed_origin_alone_is_written_with_time() -> None:
    old, new = (node({ORIGIN_ANNOTATION: f'{{"resources":{{"{BATCH_CPU}":"{n}"}}}}'}) for n in (1, 2))
    assert not status_needs_write(STRATEGY, old, new, timedelta(seconds=1))
    assert status_needs_write(STRATEGY, old, new, timedelta(seconds=301))


def test_metadata_is_written_for_normalization_and_amplification() -> None:
    assert annotations_to_write(node(), node()) == ()
    assert annotations_to_write(node(), node({ANNOTATION_CPU_NORMALIZATION: "1.20"})) == (ANNOTATION_CPU_NORMALIZATION,)
    assert annotations_to_write(node({AMPLIFICATION_ANNOTATION: '{"cpu":1.20}'}), node()) == (AMPLIFICATION_ANNOTATION,)


@given(st.integers(0, 10**6), st.integers(0, 10**12), st.integers(0, 10**6))
def test_preparing_twice_changes_nothing_and_never_touches_others(cpu: int, memory: int, taken: int) -> None:
    first = prepare(node(allocations(("koord-batch", str(taken)))), items(batch_cpu=cpu, batch_memory=memory), {})
    again = prepare(first, items(batch_cpu=cpu, batch_memory=memory), {})
    assert again == first
    assert {name: first.allocatable[name] for name in PLAIN} == PLAIN
    assert 0 <= Quantity.parse(str(first.allocatable[BATCH_CPU])).value <= cpu
    assert not status_needs_write(STRATEGY, first, again, None)
