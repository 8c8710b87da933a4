"""How much more memory a container gets before it is OOM killed, and what holds it back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.core import Pod, ResourceQuota
from kubetide.api.objects.metrics import MemoryRunsOut
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import Quantity
from kubetide.testing.builders import make_pod, make_vpa
from kubetide.vpa.core.capping import NewResources
from kubetide.vpa.core.grown import GROWN, Grown, grown_text, held_after_growth, read_grown
from kubetide.vpa.core.limits import LimitItem, NamespaceLimits
from kubetide.vpa.updater.core.growth import Growth, Room, grow, quota_room

MIB = 2**20
NOW = datetime(2026, 5, 1, tzinfo=UTC)
NO_RANGES = NamespaceLimits()


def pod(request: str = "256Mi", limit: str | None = "512Mi", **more: Any) -> Pod:
    raw = make_pod("web-1", cpu="100m", memory=request, memory_limit=limit, **more)
    raw.setdefault("status", {})["phase"] = "Running"
    return convert(raw, Pod)


def vpa(mode: str = "InPlaceOrRecreate", **policy: Any) -> VerticalPodAutoscaler:
    policies = [{"containerName": "*", **policy}] if policy else None
    return convert(make_vpa("web", mode=mode, policies=policies), VerticalPodAutoscaler)


def alarm(need: int = 480, *, growth: float = 0.0, limit: int = 512) -> MemoryRunsOut:
    return MemoryRunsOut(need_bytes=need * MIB, limit_bytes=limit * MIB, growth_bytes_per_second=growth * MIB)


def grown(
    own: Pod | None = None,
    by: VerticalPodAutoscaler | None = None,
    told: MemoryRunsOut | None = None,
    *,
    ranges: NamespaceLimits = NO_RANGES,
    **room: int | None,
) -> Growth:
    left = Room(**{"node": 2**40, **room})
    return grow(own or pod(), by or vpa(), "main", told or alarm(), ranges=ranges, room=left)


def sizes(growth: Growth) -> tuple[int, int]:
    """Return the new request and the new limit in MiB."""
    return growth.new_request // MIB, growth.new_limit // MIB


@pytest.mark.parametrize(
    ("request_", "limit", "told", "expected"),
    [
        pytest.param("256Mi", "512Mi", alarm(), (307, 614), id="a-fifth-more"),
        pytest.param("32Mi", "64Mi", alarm(60, limit=64), (64, 128), id="at-most-twice-as-much"),
        pytest.param("100Mi", "200Mi", alarm(190, limit=200), (150, 300), id="at-least-100Mi-more"),
        pytest.param("256Mi", "512Mi", alarm(480, growth=1.0), (390, 780), id="enough-for-five-minutes-of-growth"),
        pytest.param("512Mi", "512Mi", alarm(), (614, 614), id="guaranteed-keeps-both-equal"),
    ],
)
def test_a_container_gets_enough_for_a_while(
    request_: str, limit: str, told: MemoryRunsOut, expected: tuple[int, int]
) -> None:
    assert sizes(grown(pod(request_, limit), told=told)) == expected


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        pytest.param({"node": 10 * MIB}, (266, 614), id="no-room-on-the-node-raises-the-limit-alone"),
        pytest.param({"node": 0}, (256, 614), id="a-full-node-too"),
        pytest.param({"node": None}, (256, 614), id="a-node-of-which-nothing-is-known-too"),
        pytest.param({"quota_requests": 20 * MIB}, (276, 614), id="quota-of-requests"),
        pytest.param({"quota_limits": 40 * MIB}, (276, 552), id="quota-of-limits"),
    ],
)
def test_what_is_left_bounds_the_growth(bounds: dict[str, Any], expected: tuple[int, int]) -> None:
    assert sizes(grown(**bounds)) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"by": vpa(maxAllowed={"memory": "280Mi"})}, (280, 560), id="max-allowed-is-about-requests"),
        pytest.param(
            {"ranges": NamespaceLimits(container=LimitItem(maximum={"memory": Quantity.parse("576Mi")}))},
            (288, 576),
            id="limit-range-of-containers",
        ),
        pytest.param(
            {"ranges": NamespaceLimits(pod=LimitItem(maximum={"memory": Quantity.parse("560Mi")}))},
            (280, 560),
            id="limit-range-of-pods",
        ),
    ],
)
def test_policies_and_limit_ranges_bound_the_growth(given: dict[str, Any], expected: tuple[int, int]) -> None:
    assert sizes(grown(**given)) == expected


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param({"by": vpa("Off")}, "mode Off leaves running pods alone", id="mode-off"),
        pytest.param({"by": vpa("Initial")}, "mode Initial leaves running pods alone", id="mode-initial"),
        pytest.param({"by": vpa(mode="Auto", maxAllowed={"memory": "256Mi"})}, "maxAllowed allows no more", id="max"),
        pytest.param(
            {
                "by": convert(
                    make_vpa("web", policies=[{"containerName": "main", "mode": "Off"}]), VerticalPodAutoscaler
                )
            },
            "its policy switches scaling off",
            id="off",
        ),
        pytest.param({"by": vpa(controlledResources=["cpu"])}, "its policy does not control memory", id="cpu-alone"),
        pytest.param({"by": vpa(controlledValues="RequestsOnly")}, "its policy leaves limits alone", id="requests"),
        pytest.param({"own": pod(limit=None)}, "it has no memory limit", id="no-limit"),
        pytest.param({"told": alarm(300)}, "its limit has been raised since", id="stale"),
        pytest.param({"own": pod("512Mi"), "node": 0}, "the node has no room left", id="guaranteed-on-a-full-node"),
        pytest.param(
            {"own": pod("512Mi"), "node": None},
            "what the node has left is not known",
            id="guaranteed-on-an-unknown-node",
        ),
        pytest.param({"quota_limits": 0}, "a ResourceQuota allows no higher limits", id="quota"),
    ],
)
def test_what_may_not_grow_says_why(given: dict[str, Any], reason: str) -> None:
    found = grown(**given)
    assert (found.grows, found.reason) == (False, reason)


def test_a_container_that_restarts_for_it_is_left_alone() -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    resources = {"requests": {"memory": "256Mi"}, "limits": {"memory": "512Mi"}}
    own = pod(containers=[{"name": "main", "resources": resources, "resizePolicy": policy}])
    assert grown(own).reason == "it has to be restarted to be resized"


def test_a_resize_that_the_kubelet_has_not_answered_is_not_repeated() -> None:
    raw = make_pod("web-1", cpu="100m", memory="256Mi", memory_limit="614Mi")
    raw["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "main", "resources": {"limits": {"memory": "512Mi"}}}],
    }
    assert grown(convert(raw, Pod)).reason == "a new limit is written, and the kubelet has not answered yet"
    raw["status"] = {
        "phase": "Running",
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}],
    }
    assert grown(convert(raw, Pod)).reason == "its last resize is deferred"


amounts = st.integers(1, 4096)


@given(
    request_=amounts,
    more=st.integers(0, 4096),
    need=st.floats(0.7, 1.2),
    growth=st.floats(0, 100),
    node=st.none() | st.integers(0, 8192),
    limits=st.none() | st.integers(0, 8192),
)
def test_a_growth_never_leaves_its_bounds(
    request_: int, more: int, need: float, growth: float, node: int | None, limits: int | None
) -> None:
    limit = request_ + more
    told = MemoryRunsOut(
        need_bytes=int(need * limit * MIB), limit_bytes=limit * MIB, growth_bytes_per_second=growth * MIB
    )
    room: dict[str, Any] = {
        "node": None if node is None else node * MIB,
        "quota_limits": None if limits is None else limits * MIB,
    }
    found = grown(pod(f"{request_}Mi", f"{limit}Mi"), told=told, **room)
    if not found.grows:
        return
    assert limit * MIB < found.new_limit <= 2 * limit * MIB
    assert request_ * MIB <= found.new_request <= found.new_limit
    assert node is None or found.new_request <= (request_ + node) * MIB
    assert limits is None or found.new_limit <= (limit + limits) * MIB
    assert (found.new_request == found.new_limit) or more


def test_quotas_leave_what_the_strictest_leaves_and_scopes_are_the_api_server_s() -> None:
    def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> ResourceQuota:
        return convert({"metadata": {"name": "q"}, "spec": spec, "status": {"hard": hard, "used": used}}, ResourceQuota)

    found = quota_room(
        [
            quota({"requests.memory": "1Gi", "limits.memory": "2Gi"}, {"requests.memory": "512Mi"}),
            quota({"memory": "600Mi"}, {"memory": "500Mi"}),
            quota({"limits.memory": "1Mi"}, {"limits.memory": "1Mi"}, scopes=["BestEffort"]),
            quota({"pods": "5"}, {"pods": "5"}),
        ]
    )
    assert found == (100 * MIB, 2048 * MIB)
    assert quota_room([]) == (None, None)


def test_the_note_on_a_pod_reads_back_and_what_cannot_be_read_is_left_out() -> None:
    noted = {"main": Grown(5 * MIB, NOW), "side": Grown(7, NOW)}
    assert read_grown({GROWN: grown_text(noted)}) == noted
    assert read_grown({GROWN: "main=x@y,=1@2026-01-01T00:00:00+00:00,side=5@2026-01-01T00:00:00,b=-1@z"}) == {}
    assert read_grown(None) == {}


@pytest.mark.parametrize(
    ("memory", "age", "held"),
    [
        pytest.param("200Mi", 1, True, id="less"),
        pytest.param("300Mi", 1, False, id="more"),
        pytest.param("200Mi", 10, False, id="long-ago"),
    ],
)
def test_what_grew_is_not_taken_back_for_a_while(memory: str, age: int, held: bool) -> None:
    noted = grown_text({"main": Grown(1, NOW - timedelta(minutes=age))})
    own = pod(annotations={GROWN: noted})
    new = [NewResources(name="main", requests={"memory": Quantity.parse(memory)})]
    assert bool(held_after_growth(own, new, now=NOW)) == held
