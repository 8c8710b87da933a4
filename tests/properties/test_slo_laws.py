"""Laws of lending: never more than allowed, never more because prod uses more, and no text can do harm."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.objects.core import Node, Pod
from kubetide.api.objects.slo import NodeMetric
from kubetide.api.qos.slo_merge import COLOCATION, overlay
from kubetide.api.values.codec import convert
from kubetide.slo.core.config import (
    COLOCATION_KEY,
    CPU_NORMALIZATION_KEY,
    NODESLO_KEYS,
    ColocationState,
    NodeSLOConfig,
    NormalizationState,
)
from kubetide.slo.core.continuity import Departure
from kubetide.slo.core.decide import decide_node
from kubetide.slo.core.nodeslo import render, same_spec
from kubetide.slo.core.observation import NodeDecision, NodeObservation
from kubetide.slo.core.overcommit.claims import claim_of
from kubetide.slo.core.overcommit.loads import NO_PAIR, Load
from kubetide.slo.core.overcommit.result import BATCH_CPU
from kubetide.slo.core.validate import validate_configmap
from kubetide.slo.settings import SloSettings

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CORES = 16
POLICIES = ("usage", "request", "maxUsageRequest")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "enable": st.booleans(),
        "cpuReclaimThresholdPercent": st.integers(-5, 120),
        "degradeTimeMinutes": st.integers(-1, 30),
        "metricAggregatePolicy": st.fixed_dictionaries({"durations": st.lists(st.sampled_from(["1m", "5m", "x"]))}),
        "nodeConfigs": json_values,
    },
)
texts = st.text(max_size=20) | (json_values | fields).map(lambda value: msgspec.json.encode(value).decode())


def decide(pods: list[tuple[int, int | None]], *, threshold: int, policy: str, system: int) -> NodeDecision:
    """Decide about a node whose pods request and (where known) use so many milli-cores."""
    capacity = {"cpu": str(CORES), "memory": "64Gi"}
    node = convert({"metadata": {"name": "n"}, "status": {"capacity": capacity, "allocatable": capacity}}, Node)
    claims = []
    reported = []
    for number, (requested, used) in enumerate(pods):
        meta = {"name": f"p{number}", "namespace": "x"}
        container = {"resources": {"requests": {"cpu": f"{requested}m"}}}
        raw = {"metadata": meta, "spec": {"containers": [container]}, "status": {"phase": "Running"}}
        claims.append(claim_of(convert(raw, Pod)))
        if used is not None:
            reported.append({**meta, "priority": "koord-prod", "podUsage": {"resources": {"cpu": f"{used}m"}}})
    status: dict[str, Any] = {
        "updateTime": NOW.isoformat(),
        "nodeMetric": {"systemUsage": {"resources": {"cpu": f"{system}m"}}},
        "podsMetric": reported,
    }
    strategy = {"enable": True, "cpuReclaimThresholdPercent": threshold, "cpuCalculatePolicy": policy}
    seen = NodeObservation(
        node=node,
        pods=claims,
        metric=convert({"status": status}, NodeMetric),
        topology=None,
        zones=(),
        topology_annotations={},
        device=None,
        colocation=overlay(COLOCATION, strategy),
        normalization={"enable": False},
    )
    return decide_node(seen, SloSettings(), NOW)


def lent(decision: NodeDecision) -> int:
    (item,) = (item for item in decision.items if item.name == BATCH_CPU)
    assert item.quantity is not None
    return item.quantity.value


millis = st.integers(0, 4000)
some_pods = st.lists(st.tuples(millis, st.none() | millis), max_size=5)


@given(some_pods, st.integers(1, 100), st.sampled_from(POLICIES), millis)
def test_what_is_overcommitted_lies_between_nothing_and_the_threshold(
    pods: list[tuple[int, int | None]], threshold: int, policy: str, system: int
) -> None:
    assert 0 <= lent(decide(pods, threshold=threshold, policy=policy, system=system)) <= CORES * 10 * threshold


@given(some_pods, st.integers(1, 100), st.sampled_from(POLICIES), millis, millis)
def test_more_use_by_prod_or_the_system_never_overcommits_more(
    pods: list[tuple[int, int | None]], threshold: int, policy: str, system: int, more: int
) -> None:
    before = lent(decide(pods, threshold=threshold, policy=policy, system=system))
    busier = [(requested, None if used is None else used + more) for requested, used in pods]
    assert lent(decide(busier, threshold=threshold, policy=policy, system=system)) <= before
    assert lent(decide(pods, threshold=threshold, policy=policy, system=system + more)) <= before
    assert lent(decide([*pods, (more, None)], threshold=threshold, policy=policy, system=system)) <= before


@given(some_pods, st.integers(1, 100), millis)
def test_counting_the_larger_of_use_and_request_never_overcommits_more(
    pods: list[tuple[int, int | None]], threshold: int, system: int
) -> None:
    careful = lent(decide(pods, threshold=threshold, policy="maxUsageRequest", system=system))
    assert careful <= lent(decide(pods, threshold=threshold, policy="usage", system=system))


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from([COLOCATION_KEY, CPU_NORMALIZATION_KEY, *NODESLO_KEYS]), texts))
def test_no_text_breaks_anything_and_a_good_state_survives_a_bad_one(data: dict[str, str]) -> None:
    good, _ = ColocationState.initial().updated({COLOCATION_KEY: '{"enable": true, "cpuReclaimThresholdPercent": 70}'})
    after, problems = good.updated(data)
    assert after.available
    if after.error:
        assert after.config == good.config
        assert problems
    config, slo_problems = NodeSLOConfig.initial().updated(data)
    broken = {problem.key for problem in slo_problems}
    assert all(config.keys[key] == NodeSLOConfig.initial().keys[key] for key in broken)
    NormalizationState().updated(data)
    spec = render(config, convert({"metadata": {"labels": {"pool": "a"}}}, Node), None)
    assert same_spec(spec, render(config, convert({"metadata": {"labels": {"pool": "a"}}}, Node), spec))
    validate_configmap(None, data, nodes=(), names_needed=True)


@given(fields, fields)
def test_laying_the_same_over_twice_is_laying_it_over_once(base: dict[str, Any], over: dict[str, Any]) -> None:
    once = overlay(base, over)
    assert overlay(once, over) == once
    assert overlay(base, {}) == base
    assert overlay(base, None) == base


seconds = st.integers(0, 2000).map(lambda count: timedelta(seconds=count))


@settings(deadline=None)
@given(
    st.integers(0, 20_000),
    st.integers(0, 4000),
    st.none() | seconds,
    st.none() | seconds,
    seconds,
    seconds,
    st.none() | seconds,
    st.lists(seconds, max_size=2),
)
def test_a_steady_node_is_decided_the_same_until_it_is_no_longer_steady(
    shown: int,
    used: int,
    since_status: timedelta | None,
    since_zones: timedelta | None,
    report_age: timedelta,
    later: timedelta,
    watched: timedelta | None,
    left: list[timedelta],
) -> None:
    capacity = {"cpu": str(CORES), "memory": "64Gi"}
    node = {"capacity": capacity, "allocatable": {**capacity, BATCH_CPU: str(shown)}}
    status = {
        "updateTime": (NOW - report_age).isoformat(),
        "nodeMetric": {"systemUsage": {"resources": {"cpu": f"{used}m"}}},
    }
    gone = Load(NO_PAIR, NO_PAIR, NO_PAIR)
    seen = NodeObservation(
        node=convert({"metadata": {"name": "n"}, "status": node}, Node),
        pods=(),
        metric=convert({"status": status}, NodeMetric),
        topology=None,
        zones=(),
        topology_annotations={},
        device=None,
        colocation=overlay(COLOCATION, {"enable": True}),
        normalization={"enable": False},
        since_status_write=since_status,
        since_zone_write=since_zones,
        watched_for=watched,
        departures=[Departure(NOW - age, gone) for age in left],
    )

    def result(passed: timedelta) -> tuple[object, ...]:
        at = replace(
            seen,
            since_status_write=None if since_status is None else since_status + passed,
            since_zone_write=None if since_zones is None else since_zones + passed,
        )
        found = decide_node(at, SloSettings(), NOW + passed)
        return found.status_patch, found.metadata_patch, found.zones, found.items, found.problems, found.held

    steady = decide_node(seen, SloSettings(), NOW).steady_for
    assert result(timedelta(0)) == result(later if steady is None else min(later, steady))
