"""Recommendations of many VPAs at once, and what is not made again."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import PodResourcePolicy
from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import parse_selector
from kubetide.stats.instants import microseconds
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import Options, merge_rows, recommend, rows_of

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
WEB, API = ObjectKey("shop", "web"), ObjectKey("shop", "api")


def learned() -> Model:
    model = Model()
    for name in ("web", "api"):
        key = ObjectKey("shop", name)
        model.set_vpa(VpaState(key, parse_selector(f"app={name}"), created=NOW), keep_history=False)
        model.set_pod(key, {"app": name}, "Running", now=NOW)
        for container in ("main", "proxy"):
            model.set_container(key, container, now=NOW)
    use(model, 0)
    use(model, 1)
    return model


def use(model: Model, minute: int, app: str = "") -> None:
    for name in ("web", "api"):
        if app in ("", name):
            rows = np.array(list(model.pods[ObjectKey("shop", name)].containers.values()))
            at = np.full(rows.size, microseconds(NOW + timedelta(minutes=minute)))
            model.containers.add_cpu(rows, at, np.array([200, 700]))
            model.containers.add_memory(rows, at, np.array([2, 5]) * 10**9)


def policy(**entry: Any) -> PodResourcePolicy:
    return convert({"containerPolicies": [{"containerName": "*", **entry}]}, PodResourcePolicy)


def test_a_vpa_whose_amounts_stay_gets_the_very_recommendation_it_had() -> None:
    model = learned()
    vpas = list(model.vpas.values())
    first = recommend(model, vpas, Options(), remember=True)
    use(model, 2, "web")
    second = recommend(model, vpas, Options(), remember=True)
    assert second[API] is first[API]
    assert second[WEB] is not first[WEB]
    assert second == recommend(model, vpas, Options())


def test_another_policy_annotation_or_exclusion_is_a_reason_to_look_again() -> None:
    model = learned()
    web = model.vpas[WEB]
    first = recommend(model, [web], Options(), remember=True)[WEB]
    alone: Mapping[ObjectKey, frozenset[str]] = {WEB: frozenset({"cpu"})}
    assert set(recommend(model, [web], Options(), excluded=alone, remember=True)[WEB][0].target) == {"memory"}
    web.policy = policy(maxAllowed={"cpu": "100m"})
    capped = recommend(model, [web], Options(), remember=True)[WEB]
    assert str(capped[0].target["cpu"]) == "100m"
    assert capped[0].uncapped == first[0].uncapped
    web.policy = policy(mode="Off")
    assert recommend(model, [web], Options(), remember=True)[WEB] == ()
    web.policy = None
    web.annotations = {"vpa-post-processor.kubernetes.io/main_integerCPU": "true"}
    whole = recommend(model, [web], Options(integer_cpu=True), remember=True)[WEB]
    assert [str(one.target["cpu"]) for one in whole] == ["1", str(first[1].target["cpu"])]


def test_the_minimum_is_shared_by_the_containers_that_are_recommended() -> None:
    model = learned()
    empty = VpaState(ObjectKey("shop", "idle"), parse_selector("app=idle"), created=NOW)
    model.set_vpa(empty, keep_history=False)
    model.set_pod(empty.key, {"app": "idle"}, "Running", now=NOW)
    for container in ("main", "proxy"):
        model.set_container(empty.key, container, now=NOW)
    shared = recommend(model, [empty], Options())[empty.key]
    assert [str(one.target["cpu"]) for one in shared] == ["12m", "12m"]
    empty.policy = convert({"containerPolicies": [{"containerName": "proxy", "mode": "Off"}]}, PodResourcePolicy)
    alone = recommend(model, [empty], Options())[empty.key]
    assert [(one.container, str(one.target["cpu"])) for one in alone] == [("main", "25m")]


def test_a_container_of_which_nothing_is_controlled_has_an_entry_without_amounts() -> None:
    model = learned()
    web = model.vpas[WEB]
    web.policy = policy(controlledResources=[])
    found = recommend(model, [web], Options())[WEB]
    assert [one.container for one in found] == ["main", "proxy"]
    assert [(one.target, one.lower, one.upper, one.uncapped) for one in found] == [({}, {}, {}, {})] * 2


@pytest.mark.parametrize(
    ("text", "switched_on", "uncapped"),
    [
        pytest.param("true", True, "1", id="whole-cores"),
        pytest.param("True", True, "247m", id="exactly-true"),
        pytest.param("false", True, "247m", id="false"),
        pytest.param("true", False, "247m", id="flag-off"),
    ],
)
def test_whole_cores_are_rounded_before_the_policy_is_looked_at(text: str, switched_on: bool, uncapped: str) -> None:
    model = learned()
    web = model.vpas[WEB]
    web.annotations = {"vpa-post-processor.kubernetes.io/main_integerCPU": text}
    web.policy = policy(maxAllowed={"cpu": "100m"})
    main = recommend(model, [web], Options(integer_cpu=switched_on))[WEB][0]
    assert main.uncapped is not None
    assert str(main.uncapped["cpu"]) == uncapped
    assert str(main.target["cpu"]) == "100m"


def test_a_forgotten_vpa_is_made_again() -> None:
    model = learned()
    vpas = list(model.vpas.values())
    first = recommend(model, vpas, Options(), remember=True)
    model.vpas[API].memo = None
    second = recommend(model, vpas, Options(), remember=True)
    assert second[WEB] is first[WEB]
    assert second[API] is not first[API]
    assert second == first


@pytest.mark.parametrize("which", [[0, 1, 2, 3], [2], [3, 0], []])
def test_some_rows_of_a_merge_equal_the_merge_of_some_rows(which: list[int]) -> None:
    model = learned()
    model.set_vpa(VpaState(API, parse_selector("app=api"), created=NOW), keep_history=False)
    rows = rows_of(model.vpas.values())
    part = merge_rows(model.aggregates, rows).select(which)
    direct = merge_rows(model.aggregates, [rows[i] for i in which])
    assert part.count.tolist() == direct.count.tolist()
    for resource, blocks in direct.blocks.items():
        for (members, block), (others, other) in zip(blocks, part.blocks[resource], strict=True):
            assert sorted(others.tolist()) == members.tolist()
            assert np.array_equal(block.weights[:, others], other.weights)
