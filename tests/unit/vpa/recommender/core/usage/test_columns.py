"""Columns of usage are gathered as the samples that they stand for."""

from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.core import Container, Pod, PodSpec
from kubetide.api.objects.meta import ObjectKey, ObjectMeta
from kubetide.api.objects.metrics import PodMetrics, UsageColumns, UsagePages
from kubetide.api.values.codec import decode
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.usage.columns import ColumnRows, listed
from kubetide.vpa.recommender.core.usage.feeding import NO_BOUNDS, PodFeed, UsageBatch, gather
from kubetide.vpa.recommender.core.usage.plausible import Bounds, RefusalReason

NOW = datetime(2026, 1, 5, tzinfo=UTC)
Drawn = dict[str, dict[str, list[tuple[int, int]]]]
"""By namespace and pod, the nanocores and KiB of each container."""

usages = st.dictionaries(
    st.sampled_from(["default", "shop"]),
    st.dictionaries(
        st.sampled_from("abcd"),
        st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**30)), min_size=1, max_size=2),
        min_size=1,
    ),
    min_size=1,
)


def pages_of(drawn: Drawn, *, at: datetime = NOW, before: UsagePages | None = None) -> UsagePages:
    """Return columns; where they list what was listed before, they say so as the server does."""
    pages = UsagePages()
    for namespace, pods in drawn.items():
        containers = [(place, f"c{one}") for place, name in enumerate(pods) for one in range(len(pods[name]))]
        amounts = [amount for found in pods.values() for amount in found]
        known = before.get(namespace) if before is not None else None
        same = known is not None and list(known.names) == list(pods) and list(known.containers) == containers
        items = [
            {
                "metadata": {"name": name, "namespace": namespace},
                "timestamp": at.isoformat(),
                "window": "15s",
                "containers": [
                    {"name": f"c{one}", "usage": {"cpu": f"{cpu}n", "memory": f"{memory}Ki"}}
                    for one, (cpu, memory) in enumerate(found)
                ],
            }
            for name, found in pods.items()
        ]
        plain = all(min(amount) >= 0 for amount in amounts)
        columns = [-(-cpu // 1_000_000) for cpu, _ in amounts], [memory * 1024 for _, memory in amounts]
        pages[namespace] = UsageColumns(
            names=list(pods),
            labels=[None] * len(pods),
            timestamp=at,
            window="15s",
            millis=lambda resource: None,
            containers=known.containers if same and known is not None else containers,
            amounts=partial(_as_is, columns if plain else None),
            items=partial(msgspec.json.encode, items),
        )
    return pages


def _as_is(columns: tuple[list[int], list[int]] | None) -> tuple[list[int], list[int]] | None:
    return columns


def pod(namespace: str, name: str, containers: int = 2) -> Pod:
    """Return a pod with containers c0 and c1."""
    made = tuple(Container(name=f"c{number}") for number in range(containers))
    return Pod(metadata=ObjectMeta(namespace=namespace, name=name, uid=name), spec=PodSpec(containers=made))


def both(model: Model, pages: UsagePages, columns: ColumnRows, bounds: Bounds = NO_BOUNDS) -> UsageBatch:
    """Return what is gathered of columns, having compared it with what is gathered of the samples."""
    init = {ObjectKey("default", "a"): frozenset({"c1"})}
    found = gather(model, pages, now=NOW, init=init, bounds=bounds, columns=columns)
    items = decode(b"[" + b",".join(page.items()[1:-1] for page in pages.values()) + b"]", list[PodMetrics])
    expected = gather(model, items, now=NOW, init=init, bounds=bounds)
    for name in ("rows", "times", "cpu", "memory"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert (found.unknown, found.refused) == (expected.unknown, expected.refused)
    return found


@given(usages, usages, st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcd")))
def test_columns_are_gathered_as_their_samples(first: Drawn, second: Drawn, known: set[str], gone: set[str]) -> None:
    model, feed, columns = Model(), PodFeed(), ColumnRows()
    pods = [pod(namespace, name) for namespace in ("default", "shop") for name in sorted(known)]
    feed.sync(model, pods, now=NOW)
    pages = pages_of(first)
    both(model, pages, columns)
    both(model, pages_of(first, before=pages), columns)
    for name in gone:
        model.delete_pod(ObjectKey("default", name))
    feed.sync(model, [pod("shop", "d")], now=NOW)
    both(model, pages_of(first, before=pages), columns)
    both(model, pages_of(second, before=pages), columns)


@pytest.mark.parametrize(
    ("drawn", "at", "refused"),
    [
        pytest.param({"default": {"b": [(-1, 4)]}}, NOW, None, id="negative"),
        pytest.param({"default": {"b": [(1, 4)]}}, NOW + timedelta(hours=1), RefusalReason.FUTURE, id="future"),
        pytest.param({"default": {}}, NOW, None, id="nothing"),
    ],
)
def test_what_columns_cannot_say_is_looked_at_one_by_one(
    drawn: Drawn, at: datetime, refused: RefusalReason | None
) -> None:
    model = Model()
    PodFeed().sync(model, [pod("default", "b")], now=NOW)
    found = both(model, pages_of(drawn, at=at), ColumnRows(), Bounds())
    assert set(found.refused) == ({refused} if refused else set())


def test_samples_are_listed_in_the_order_of_columns() -> None:
    pages = pages_of({"shop": {"b": [(1, 1)], "a": [(2, 2)]}, "default": {"c": [(3, 3)]}})
    assert [sample.metadata.name for sample in listed(pages)] == ["b", "a", "c"]


def test_pods_of_a_version_that_is_applied_are_not_looked_at() -> None:
    model, feed = Model(), PodFeed()
    feed.sync(model, [pod("default", "a")], now=NOW, version=1)
    feed.delete_removed(model)
    assert feed.sync(model, [pod("default", "a"), pod("default", "b")], now=NOW, version=1) == []
    assert feed.sync(model, [pod("default", "a"), pod("default", "b")], now=NOW, version=2) == [
        ObjectKey("default", "b")
    ]
    feed.delete_removed(model)
    # What the model lost otherwise is brought back.
    model.delete_pod(ObjectKey("default", "a"))
    again = feed.sync(model, [pod("default", "a"), pod("default", "b")], now=NOW, version=2)
    assert again == [ObjectKey("default", "a")]
    feed.sync(model, [], now=NOW, version=3)
    feed.delete_removed(model)
    assert not model.pods
