"""What is written later changes no decision: laws of `recommender.core.significance`."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.api.objects.core import Pod, ResourceList
from kubetide.api.objects.vpa import ContainerResourcePolicy, PodResourcePolicy
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import Quantity
from kubetide.testing.builders import make_container, make_pod
from kubetide.vpa.core.capping import adjust
from kubetide.vpa.core.limits import LimitItem, NamespaceLimits
from kubetide.vpa.core.policy import Amounts, Recommended, container_amounts
from kubetide.vpa.recommender.core.entities import LabelSet
from kubetide.vpa.recommender.core.significance import LITTLE, Cadence, can_wait, moved, requests_of
from kubetide.vpa.updater.core.priority import RankRules, rank
from kubetide.vpa.updater.core.trust import needs_evidence

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
NAMES = ("main", "proxy")

# Amounts near each other, so that requests and bounds meet often.
millis = st.integers(980, 1020)
amounts = st.builds(lambda cpu, memory: _amounts(cpu, memory), millis, millis)


def _amounts(cpu: int, memory: int) -> Amounts:
    return {"cpu": Quantity.of_milli(cpu), "memory": Quantity.of(memory * 1024)}


@st.composite
def recommendations(draw: st.DrawFn, name: str) -> tuple[Recommended, Recommended]:
    """Return what is written for a container and what is found now: mostly the same target with other bounds."""
    target = draw(amounts)
    bounds = [draw(st.just(target) | amounts) for _ in range(4)]
    other = draw(st.just(target) | amounts)
    written = Recommended(container=name, target=target, lower=bounds[0], upper=bounds[1], uncapped=target)
    found = Recommended(container=name, target=other, lower=bounds[2], upper=bounds[3], uncapped=other)
    return written, found


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    requests = {name: draw(st.none() | amounts) for name in NAMES}
    applied = {name: draw(st.none() | amounts) for name in NAMES}
    raw = make_pod("web-0", phase="Running", containers=[make_container(name) for name in NAMES])
    for container in raw["spec"]["containers"]:
        container["resources"] = {"requests": _texts(requests[container["name"]])}
    raw["status"]["startTime"] = "2026-01-01T00:00:00Z"
    raw["status"]["containerStatuses"] = [
        {"name": name, "image": "", "imageID": "", "ready": True, "restartCount": 0}
        | ({} if given is None else {"resources": {"requests": _texts(given)}})
        for name, given in applied.items()
    ]
    return convert(raw, Pod)


def _texts(given: Amounts | None) -> ResourceList:
    return {name: str(amount) for name, amount in (given or {}).items()}


@st.composite
def policies(draw: st.DrawFn) -> PodResourcePolicy | None:
    if draw(st.booleans()):
        return None
    low, high = draw(st.none() | amounts), draw(st.none() | amounts)
    entry = ContainerResourcePolicy(
        container_name="*", min_allowed=_texts(low) if low else None, max_allowed=_texts(high) if high else None
    )
    return PodResourcePolicy(container_policies=(entry,))


def _decision(pod: Pod, given: tuple[Recommended, ...], policy: PodResourcePolicy | None, most: Amounts | None) -> Any:
    limits = NamespaceLimits(container=LimitItem(maximum=most) if most else None)
    own = [container_amounts(one.name, one.resources) for one in pod.spec.containers or ()]
    adjusted = adjust(given, policy, own, limits)
    assert adjusted is not None
    fitted: Mapping[str, Recommended] = {one.container: one for one in adjusted.recommendations}
    ranked = rank(pod, fitted, RankRules(), scaled=lambda name: True, now=NOW)
    targets = {name: one.target for name, one in fitted.items()}
    return ranked.accepted, ranked.reason, ranked.priority, targets, [needs_evidence(one) for one in given]


@settings(max_examples=400, deadline=None)
@given(st.data(), st.lists(pods(), min_size=1, max_size=3), policies(), st.none() | amounts)
def test_the_updater_decides_the_same_on_a_status_that_waits(
    data: st.DataObject, running: list[Pod], policy: PodResourcePolicy | None, most: Amounts | None
) -> None:
    pairs = [data.draw(recommendations(name)) for name in NAMES]
    written, found = tuple(old for old, _ in pairs), tuple(new for _, new in pairs)
    labels = LabelSet("ns", {}, "", requests=requests_of(running))
    if not can_wait(written, found, [labels]):
        return
    for pod in running:
        assert _decision(pod, written, policy, most) == _decision(pod, found, policy, most)


@given(st.integers(10_000, 10**9), st.floats(0.5, 2.0), st.sampled_from(["lower", "upper"]))
def test_a_bound_that_moved_far_never_waits(before: int, by: float, bound: str) -> None:
    after = int(before * by)
    target = {"memory": Quantity.of(1)}
    old, new = (
        Recommended(container="main", target=target, uncapped=target, **{bound: {"memory": Quantity.of(amount)}})
        for amount in (before, after)
    )
    assert can_wait((old,), (new,), []) == (abs(after - before) <= LITTLE * before)


def test_a_bound_waits_until_it_meets_a_request() -> None:
    target = {"memory": Quantity.of(500)}

    def of(upper: int) -> tuple[Recommended, ...]:
        return (Recommended(container="main", target=target, uncapped=target, upper={"memory": Quantity.of(upper)}),)

    pod = convert(make_pod("web-0", memory="995"), Pod)
    labels = LabelSet("ns", {}, "", requests=requests_of([pod]))
    assert can_wait(of(1000), of(996), [labels])
    assert not can_wait(of(1000), of(995), [labels])
    assert not can_wait(of(1000), of(994), [labels])
    assert not can_wait(of(995), of(996), [labels])


@given(st.lists(st.lists(st.tuples(st.integers(0, 10**12), st.floats(-0.03, 0.03)), max_size=12), max_size=8))
def test_amounts_are_off_when_one_of_them_moved_by_more_than_a_little(
    listed: list[list[tuple[int, float]]],
) -> None:
    before = [np.array([old for old, _ in one], dtype=np.int64) for one in listed]
    after = [np.array([old + int(old * by) for old, by in one], dtype=np.int64) for one in listed]
    expected = [
        any(abs(int(new) - int(old)) > LITTLE * int(old) for old, new in zip(*pair, strict=True))
        for pair in zip(before, after, strict=True)
    ]
    assert moved([one.tobytes() for one in before], [one.tobytes() for one in after]) == expected


def test_amounts_of_other_containers_are_off() -> None:
    assert moved([b"", b"\0" * 8], [b"\0" * 8, b"\0" * 8]) == [True, False]


@given(st.text(max_size=30), st.integers(1, 100_000), st.integers(0, 10**6))
def test_everything_is_due_once_per_interval(name: str, seconds: int, offset: int) -> None:
    cadence = Cadence(timedelta(seconds=seconds))
    since = NOW + timedelta(seconds=offset)
    assert not cadence.is_due(name, since, since)
    assert cadence.is_due(name, since, since + cadence.interval)
    # Within one interval there is one moment, and it stays in the past.
    steps = [cadence.is_due(name, since, since + cadence.interval * part / 16) for part in range(17)]
    assert steps == sorted(steps)


def test_moments_are_spread_over_the_interval() -> None:
    cadence, minute = Cadence(timedelta(minutes=10)), timedelta(minutes=1)
    counts = [
        sum(cadence.is_due(f"ns/app-{n}", NOW + minute * at, NOW + minute * (at + 1)) for n in range(10_000))
        for at in range(10)
    ]
    assert sum(counts) == 10_000
    assert max(counts) < 1_200


def test_without_an_interval_everything_is_due() -> None:
    assert Cadence(timedelta(0)).is_due("ns/web", NOW, NOW)
