"""Which containers are asked for together."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.recommend.core.matching import PodMatcher
from kubetide.recommend.core.query_parts import LONGEST_SELECTOR, parts, selector, wanted
from kubetide.recommend.core.workloads import Container, Workload


def listed(text: str) -> list[str]:
    """Return the pods that a selector names."""
    found = re.search('pod=~"([^"]*)"', text)
    return found[1].replace(r"\\.", ".").split("|") if found else []


NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9.-]{0,40}[a-z0-9]", fullmatch=True), unique=True, max_size=200)


@given(NAMES, st.integers(1, 300), st.integers(1, 40))
def test_every_pod_is_asked_for_once(names: list[str], series: int, together: int) -> None:
    count = min(series, len(names))
    found = parts({"shop": count}, together, {"shop": names}, 1)
    if selector({"shop"}) in [part.selector for part in found]:
        assert sum(len(name) + 1 for name in names) > count * LONGEST_SELECTOR  # or it could be asked for by pods
        return
    assert sorted(name for part in found for name in listed(part.selector)) == sorted(names)
    for part in found:
        assert part.series <= together
        assert 'namespace="shop"' in part.selector
    assert sum(part.series for part in found) >= count


def test_pods_of_a_workload_are_in_all_parts_alike() -> None:
    names = sorted([f"busy-{i}" for i in range(100)] + [f"quiet-{i}" for i in range(900)])
    found = parts({"shop": 100}, 10, {"shop": names}, 1)
    busy = [sum(name.startswith("busy") for name in listed(part.selector)) for part in found]
    assert len(found) == 10
    assert set(busy) == {10}


def test_short_lived_pods_are_not_asked_for_by_name() -> None:
    names = [f"job-{i:08}-abcde" for i in range(20_000)]
    (part,) = parts({"batch": 60}, 25, {"batch": names}, 3)
    assert (part.selector, part.series) == (selector({"batch"}), 60)
    assert parts({"batch": 0}, 25, {"batch": []}, 3) == []  # none of its pods belongs to a workload


@pytest.mark.parametrize("together", [1, 3, 5, 100])
def test_small_namespaces_are_together(together: int) -> None:
    series = {"a": 1, "b": 2, "c": 3, "d": 9}
    found = parts(series, together, {}, 1)
    assert sum(part.series for part in found) == 15
    assert all(part.series <= together or "=~" not in part.selector for part in found)
    names = [re.search('namespace=~?"([^"]*)"', part.selector) for part in found]
    assert sorted("|".join(name[1] for name in names if name).split("|")) == sorted(series)


def test_only_pods_of_workloads_are_wanted() -> None:
    web = Workload(
        api_version="apps/v1",
        kind="StatefulSet",
        namespace="shop",
        name="web",
        replicas=1,
        containers=(Container("main"), Container("proxy")),
    )
    matcher = PodMatcher([web])
    assert wanted(matcher, "shop", ["web-1", "other-0", "web-0", "web-0-x"]) == (["web-0", "web-1"], 4)
    assert wanted(matcher, "else", ["web-0"]) == ([], 0)
