"""Recommendations of many VPAs at once, and what is not made again."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from kubetide.api.codec import convert
from kubetide.api.meta import ObjectKey
from kubetide.api.selectors import parse_selector
from kubetide.api.vpa import PodResourcePolicy
from kubetide.stats.instants import microseconds
from kubetide.vpa.recommender.entities import VpaState
from kubetide.vpa.recommender.model import Model
from kubetide.vpa.recommender.recommend import Memo, Options, merge_rows, recommend, rows_of

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
    model, memo = learned(), Memo()
    vpas = list(model.vpas.values())
    first = recommend(model, vpas, Options(), memo=memo)
    use(model, 2, "web")
    second = recommend(model, vpas, Options(), memo=memo)
    assert second[API] is first[API]
    assert second[WEB] is not first[WEB]
    assert second == recommend(model, vpas, Options())


def test_another_policy_annotation_or_exclusion_is_a_reason_to_look_again() -> None:
    model, memo = learned(), Memo()
    web = model.vpas[WEB]
    first = recommend(model, [web], Options(), memo=memo)[WEB]
    alone: Mapping[ObjectKey, frozenset[str]] = {WEB: frozenset({"cpu"})}
    assert set(recommend(model, [web], Options(), excluded=alone, memo=memo)[WEB][0].target) == {"memory"}
    web.policy = policy(maxAllowed={"cpu": "100m"})
    capped = recommend(model, [web], Options(), memo=memo)[WEB]
    assert str(capped[0].target["cpu"]) == "100m"
    assert capped[0].uncapped == first[0].uncapped
    web.policy = policy(mode="Off")
    assert recommend(model, [web], Options(), memo=memo)[WEB] == ()
    web.policy = None
    web.annotations = {"vpa-post-processor.kubernetes.io/main_integerCPU": "true"}
    whole = recommend(model, [web], Options(integer_cpu=True), memo=memo)[WEB]
    assert [str(one.target["cpu"]) for one in whole] == ["1", str(first[1].target["cpu"])]


def test_a_forgotten_vpa_is_made_again() -> None:
    model, memo = learned(), Memo()
    vpas = list(model.vpas.values())
    first = recommend(model, vpas, Options(), memo=memo)
    memo.keep({WEB})
    second = recommend(model, vpas, Options(), memo=memo)
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
