"""Samples that cannot be true are refused, counted and named."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubetide.api.objects.capacity import UNKNOWN, Capacity
from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.values.codec import convert
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.usage.feeding import PodFeed, gather
from kubetide.vpa.recommender.core.usage.plausible import Bounds
from kubetide.vpa.recommender.observer import slim

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
CLUSTER = Capacity({"small": {"cpu": 2_000, "memory": 2**30 * 1000}, "large": {"cpu": 8_000, "memory": 2**33 * 1000}})


def pod(name: str, node: str = "small", containers: tuple[str, ...] = ("main",)) -> Pod:
    raw = {
        "metadata": {"namespace": "shop", "name": name, "uid": f"uid-{name}", "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": container} for container in containers]},
        "status": {"phase": "Running"},
    }
    return slim(convert(raw, Pod))


def usage(name: str, cpu: str = "1", memory: str = "1Mi", *, at: datetime = NOW, containers: Any = ("main",)) -> Any:
    raw = {
        "metadata": {"namespace": "shop", "name": name},
        "timestamp": at.isoformat(),
        "containers": [{"name": one, "usage": {"cpu": cpu, "memory": memory}} for one in containers],
    }
    return convert(raw, PodMetrics)


def refused(*listed: PodMetrics, pods: list[Pod], capacity: Capacity = CLUSTER) -> dict[str, tuple[int, str]]:
    """Return what is refused by reason, having checked that everything else is kept."""
    model, feed = Model(), PodFeed()
    feed.sync(model, pods, now=NOW)
    bounds = Bounds(capacity, feed.nodes)
    batch = gather(model, listed, now=NOW, init={}, bounds=bounds)
    gone = sum(found.count for found in batch.refused.values())
    assert batch.rows.size + gone + batch.unknown == sum(len(one.containers or ()) for one in listed)
    return {reason.value: (found.count, found.example) for reason, found in batch.refused.items()}


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        pytest.param(timedelta(minutes=5), {}, id="within-the-skew"),
        pytest.param(timedelta(minutes=5, seconds=1), {"future": (1, "shop/a")}, id="beyond-it"),
        pytest.param(timedelta(days=400), {"future": (1, "shop/a")}, id="next-year"),
        pytest.param(timedelta(days=-400), {}, id="the-past-is-another-matter"),
    ],
)
def test_a_sample_from_the_future_is_refused(ahead: timedelta, expected: dict[str, Any]) -> None:
    assert refused(usage("a", at=NOW + ahead), usage("b"), pods=[pod("a"), pod("b")]) == expected


@pytest.mark.parametrize(
    ("node", "cpu", "memory", "capacity", "kept"),
    [
        pytest.param("small", "2", "1Gi", CLUSTER, True, id="all-of-its-node"),
        pytest.param("small", "2001m", "1Gi", CLUSTER, False, id="more-cpu-than-its-node"),
        pytest.param("small", "1", "1073741825", CLUSTER, False, id="a-byte-more-than-its-node"),
        pytest.param("large", "4", "4Gi", CLUSTER, True, id="a-larger-node"),
        pytest.param("", "8", "8Gi", CLUSTER, True, id="no-node-and-as-much-as-the-largest"),
        pytest.param("gone", "8", "9Gi", CLUSTER, False, id="a-node-that-is-not-known"),
        pytest.param("small", "1", "1e308", CLUSTER, False, id="beyond-64-bits"),
        pytest.param("small", "1e308", "1", UNKNOWN, False, id="beyond-64-bits-and-no-node-known"),
        pytest.param("small", "1000", "1Ti", UNKNOWN, True, id="nothing-known-no-bound"),
    ],
)
def test_a_sample_above_what_its_node_has_is_refused(
    node: str, cpu: str, memory: str, capacity: Capacity, kept: bool
) -> None:
    found = refused(usage("a", cpu, memory), usage("b"), pods=[pod("a", node), pod("b")], capacity=capacity)
    assert found == ({} if kept else {"above_node": (1, "shop/a")})


def test_a_pod_with_a_container_twice_is_refused_whole() -> None:
    twice = usage("a", containers=("main", "side", "main"))
    found = refused(twice, usage("b"), pods=[pod("a", containers=("main", "side")), pod("b")])
    assert found == {"duplicate_container": (3, "shop/a")}


def test_the_node_of_a_pod_is_forgotten_with_it() -> None:
    model, feed = Model(), PodFeed()
    feed.sync(model, [pod("a"), pod("b", "large")], now=NOW)
    feed.sync(model, [pod("b", "large")], now=NOW)
    feed.delete_removed(model)
    assert feed.nodes == {ObjectKey("shop", "b"): "large"}


def test_a_pod_that_is_gone_leaves_after_its_last_sample() -> None:
    model, feed = Model(), PodFeed()
    feed.sync(model, [pod("a")], now=NOW)
    feed.sync(model, [], now=NOW)

    def known() -> tuple[int, int]:
        batch = gather(model, [usage("a")], now=NOW, init={}, bounds=Bounds(CLUSTER, feed.nodes))
        return int(batch.rows.size), batch.unknown

    assert known() == (1, 0), "noted as gone, and still there for the samples of this loop"
    feed.delete_removed(model)
    assert known() == (0, 1)
