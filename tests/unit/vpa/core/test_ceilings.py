"""What the cluster has room for, of what was recommended."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.core import LimitRange, Node, Pod, ResourceQuota
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import ContainerResourcePolicy, PodResourcePolicy
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.testing.builders import make_limit_range, make_node, make_pod, make_quota
from kubetide.vpa.core.ceilings import Capped, Room, Workload, under_ceilings
from kubetide.vpa.core.limits import namespace_limits
from kubetide.vpa.core.policy import Recommended

MIB = 2**20


def pod(name: str, *, cpu: str = "100m", memory: str = "512Mi", **more: Any) -> Pod:
    """Return a pod with one container."""
    return convert(make_pod(name, cpu=cpu, memory=memory, **more), Pod)


def workload(
    name: str = "web", *, pods: list[Pod], replicas: int | None = None, held: Any = None, **target: str
) -> Workload:
    """Return what is recommended for some pods; the bounds are half and twice of it."""
    amounts = {resource: parse_quantity(text) for resource, text in target.items()}
    lower, upper = [{r: Quantity(a.nanos * f // 2) for r, a in amounts.items()} for f in (1, 4)]
    one = Recommended(container="main", target=amounts, lower=lower, upper=upper, uncapped=amounts)
    return Workload(
        key=ObjectKey("default", name),
        found=(one,),
        policy=None,
        pods=pods,
        replicas=len(pods) if replicas is None else replicas,
        held=held or {},
    )


def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> ResourceQuota:
    """Return a quota in use."""
    raw = make_quota("compute", hard=hard)
    raw["spec"].update(spec)
    return convert({**raw, "status": {"hard": hard, "used": used}}, ResourceQuota)


def only(done: dict[ObjectKey, Capped], name: str = "web") -> Recommended:
    """Return what is left of the only container."""
    (one,) = done[ObjectKey("default", name)].found
    return one


@pytest.mark.parametrize(
    ("nodes", "cpu", "capped"),
    [
        pytest.param([make_node("a", cpu="8")], "6", False, id="a-node-that-is-large-enough"),
        pytest.param([make_node("a", cpu="4")], "4", True, id="down-to-the-largest"),
        pytest.param([], "6", False, id="no-node-is-known-and-nothing-is-capped"),
        pytest.param(
            [make_node("a", cpu="4"), {**make_node("b", cpu="16"), "spec": {"unschedulable": True}}],
            "4",
            True,
            id="a-cordoned-node-takes-nothing",
        ),
        pytest.param(
            [
                make_node("a", cpu="4"),
                {**make_node("b", cpu="16"), "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}},
            ],
            "4",
            True,
            id="a-taint-that-nobody-tolerates",
        ),
        pytest.param(
            [
                make_node("a", cpu="4"),
                {
                    **make_node("b", cpu="16"),
                    "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]},
                },
            ],
            "6",
            False,
            id="a-node-that-is-away-for-a-moment-counts",
        ),
    ],
)
def test_a_pod_fits_a_node_that_would_take_it(nodes: list[Any], cpu: str, capped: bool) -> None:
    room = Room(nodes=[convert(node, Node) for node in nodes])
    done = under_ceilings([workload(pods=[pod("web-1")], cpu="6", memory="1Gi")], room)
    one = only(done)
    assert one.target["cpu"] == parse_quantity(cpu)
    assert one.target["memory"] == parse_quantity("1Gi")
    assert one.upper is not None
    assert (one.upper["cpu"] == one.target["cpu"]) == capped
    assert one.uncapped == {"cpu": parse_quantity("6"), "memory": parse_quantity("1Gi")}
    said = "cpu of main is held at 4 by the largest node for its pods"
    assert done[ObjectKey("default", "web")].notes == ((said,) if capped else ())


def test_a_limit_range_lowers_a_request_so_that_its_limit_fits() -> None:
    room = Room(
        ranges={
            "default": namespace_limits(
                [
                    convert(
                        make_limit_range("l", "default", {"type": "Container", "max": {"memory": "1536Mi"}}), LimitRange
                    )
                ]
            )
        }
    )
    done = under_ceilings([workload(pods=[pod("web-1", limits={"memory": "1Gi"})], memory="2Gi")], room)
    # The limit is twice the request.
    assert only(done).target["memory"] == parse_quantity("768Mi")


def test_without_a_limit_range_in_the_namespace_none_is_blamed() -> None:
    policy = PodResourcePolicy(
        container_policies=(ContainerResourcePolicy(container_name="*", controlled_values="RequestsOnly"),)
    )
    limited = replace(workload(pods=[pod("web-1", limits={"memory": "1Gi"})], memory="2Gi"), policy=policy)
    done = under_ceilings([limited], Room(ranges={"other": namespace_limits([])}))
    assert done[limited.key] == Capped(limited.found)


@pytest.mark.parametrize(
    ("used", "hard", "expected"),
    [
        pytest.param("1Gi", "4Gi", 1024, id="room-for-all-of-it"),
        pytest.param("1Gi", "1536Mi", 768, id="what-is-left-is-shared-among-the-pods"),
        pytest.param("1Gi", "1Gi", 512, id="nothing-left-and-nothing-lost"),
        pytest.param("1Gi", "512Mi", 512, id="a-quota-that-was-lowered-shrinks-nothing"),
    ],
)
def test_growth_stays_within_what_the_quota_leaves(used: str, hard: str, expected: int) -> None:
    room = Room(quotas=[quota({"requests.memory": hard}, {"requests.memory": used})])
    done = under_ceilings([workload(pods=[pod("web-1"), pod("web-2")], memory="1Gi")], room)
    assert only(done).target["memory"].value == expected * MIB


def test_two_workloads_share_what_is_left_by_what_they_would_grow() -> None:
    room = Room(quotas=[quota({"memory": "2Gi"}, {"memory": "1Gi"})])
    small = workload("small", pods=[pod("small-1")], memory="1Gi")
    large = workload("large", pods=[pod("large-1")], memory="2Gi")
    done = under_ceilings([small, large], room)
    # They would grow by 512Mi and 1536Mi, and there is 1Gi.
    assert only(done, "small").target["memory"].value == (512 + 256) * MIB
    assert only(done, "large").target["memory"].value == (512 + 768) * MIB


def test_a_quota_of_limits_counts_limits_that_grow_along() -> None:
    room = Room(quotas=[quota({"limits.memory": "3Gi"}, {"limits.memory": "1Gi"})])
    grown = workload(pods=[pod("web-1", limits={"memory": "1Gi"})], memory="2Gi")
    # From 512Mi to 2Gi the limit would grow from 1Gi to 4Gi: two thirds of that are there.
    assert only(under_ceilings([grown], room)).target["memory"].value == 1536 * MIB
    free = workload(pods=[pod("web-1")], memory="2Gi")
    assert only(under_ceilings([free], room)).target["memory"].value == 2048 * MIB


def test_while_a_pod_is_missing_the_last_ceiling_holds() -> None:
    room = Room(quotas=[quota({"requests.memory": "2Gi"}, {"requests.memory": "1Gi"})])
    held = {("main", "memory"): parse_quantity("682Mi")}
    rolling = workload(pods=[pod("web-1"), pod("web-2")], replicas=3, held=held, memory="1Gi")
    done = under_ceilings([rolling], room)
    assert only(done).target["memory"] == parse_quantity("682Mi")
    assert done[ObjectKey("default", "web")].held == held


@pytest.mark.parametrize(
    "blind",
    [
        quota({"requests.memory": "1Gi"}, {}),
        quota({"requests.memory": "lots"}, {"requests.memory": "1Gi"}),
        quota({"requests.memory": "1Gi"}, {"requests.memory": "1Gi"}, scopes=["BestEffort"]),
    ],
    ids=["usage-unknown", "unreadable", "only-for-some-pods"],
)
def test_a_quota_that_says_nothing_usable_caps_nothing(blind: ResourceQuota) -> None:
    done = under_ceilings([workload(pods=[pod("web-1")], memory="2Gi")], Room(quotas=[blind]))
    assert only(done).target["memory"] == parse_quantity("2Gi")
    assert done[ObjectKey("default", "web")].notes == ()


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4000), st.integers(1, 8000)), min_size=1, max_size=5),
    st.integers(0, 40000),
)
def test_what_quotas_allow_fits_the_quota_and_takes_nothing_away(sizes: list[tuple[int, int, int]], left: int) -> None:
    workloads = [
        workload(f"w{i}", pods=[pod(f"w{i}-{n}", memory=f"{today}Mi") for n in range(count)], memory=f"{target}Mi")
        for i, (count, today, target) in enumerate(sizes)
    ]
    used = sum(count * today for count, today, _ in sizes)
    room = Room(quotas=[quota({"memory": f"{used + left}Mi"}, {"memory": f"{used}Mi"})])
    done = under_ceilings(workloads, room)
    asked = [only(done, f"w{i}").target["memory"].value for i in range(len(sizes))]
    grown = sum(max(amount - today * MIB, 0) * count for amount, (count, today, _) in zip(asked, sizes, strict=True))
    assert grown <= left * MIB
    for amount, (_, today, target) in zip(asked, sizes, strict=True):
        assert min(today, target) * MIB <= amount <= target * MIB
