"""What keeps the lent resources from swinging: limited growth, gradual release, and a past that nobody watched."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.core import Node, Pod
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.slo.core.continuity import Departure, limit_growth, lingering
from kubetide.slo.core.decide import decide_node
from kubetide.slo.core.departures import Departures
from kubetide.slo.core.overcommit.loads import Load
from kubetide.slo.core.overcommit.result import BATCH_CPU, BATCH_MEMORY, ResourceItem
from kubetide.slo.explain import render
from kubetide.slo.settings import SloSettings
from unit.slo.scenes import NOW, STRATEGY, lent, metric, node, observe, pod

WINDOW = timedelta(seconds=300)
GRADUAL = SloSettings(gradual_release=True)
CORE = 10**9
GIB = 2**30 * 10**9


def usage(name: str, cpu: str, memory: str = "0") -> dict[str, Any]:
    return {"name": name, "namespace": "shop", "podUsage": {"resources": {"cpu": cpu, "memory": memory}}}


def departure(ago: timedelta, *, cores: int = 2, key: tuple[str, str] = ("shop", "gone")) -> Departure:
    pair = cores * CORE, 0
    return Departure(NOW - ago, Load(pair, pair, pair), key)


def raw_pod(phase: str = "Running", **labels: str) -> Pod:
    requests = {"cpu": "2", "memory": "2Gi"}
    raw = {
        "metadata": {"name": "web", "namespace": "shop", "labels": labels},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": phase},
    }
    return convert(raw, Pod)


def test_growth_is_limited_and_shrinking_is_not() -> None:
    settings = SloSettings(growth_limit_percent=10)
    assert lent(observe(node=node(batch_cpu="1000", batch_memory="1")), settings)[BATCH_CPU] == "2000"
    assert lent(observe(node=node(batch_cpu="9000", batch_memory="1")), settings)[BATCH_CPU] == "3500"


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 100))
def test_limited_growth_never_exceeds_what_was_wanted_nor_the_step(old: int, new: int, percent: int) -> None:
    capacity = {"cpu": parse_quantity("10")}
    item = ResourceItem(BATCH_CPU, Quantity.of(new))
    (limited,) = limit_growth([item], {BATCH_CPU: Quantity.of(old)}, capacity, percent)
    assert limited.quantity is not None
    assert limited.quantity.value == min(new, old + 10_000 * percent // 100)


def annotated(cpu: str, annotations: dict[str, str]) -> Node:
    resources = {"cpu": "10", "memory": "10Gi", BATCH_CPU: cpu, BATCH_MEMORY: "1"}
    metadata = {"name": "n", "annotations": annotations}
    return convert({"metadata": metadata, "status": {"capacity": resources, "allocatable": resources}}, Node)


def test_growth_is_counted_from_what_was_calculated_not_from_what_other_schedulers_left() -> None:
    others = {
        "node.koordinator.sh/originExtendedAllocatable": '{"resources":{"kubernetes.io/batch-cpu":"3400"}}',
        "node.koordinator.sh/thirdPartyAllocations": (
            '{"allocations":[{"name":"yarn","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"3000"}}]}'
        ),
    }
    seen = observe(node=annotated("400", others))
    assert lent(seen, SloSettings(growth_limit_percent=10))[BATCH_CPU] == "3500"


def test_growth_is_counted_before_normalization() -> None:
    label = {"node.koordinator.sh/cpu-normalization-enabled": "true"}
    fast = convert(
        {
            "metadata": {"name": "n", "labels": label},
            "status": {
                "capacity": {"cpu": "10", "memory": "10Gi", BATCH_CPU: "2000", BATCH_MEMORY: "1"},
                "allocatable": {"cpu": "10", "memory": "10Gi", BATCH_CPU: "2000", BATCH_MEMORY: "1"},
            },
        },
        Node,
    )
    seen = observe(
        node=fast,
        normalization={"ratioModel": {"m": {"baseRatio": 2.0}}},
        topology_annotations={"node.koordinator.sh/cpu-basic-info": '{"cpuModel":"m"}'},
    )
    assert lent(seen, SloSettings(growth_limit_percent=10))[BATCH_CPU] == "2000", "1000 before scaling, and a step"


def test_what_a_pod_counted_for_is_released_over_the_window() -> None:
    half = observe(pods=[], departures=[departure(timedelta(seconds=150))])
    assert lent(half, GRADUAL)[BATCH_CPU] == "4500"
    assert lent(observe(pods=[], departures=[departure(WINDOW)]), GRADUAL)[BATCH_CPU] == "5500"
    assert lent(half)[BATCH_CPU] == "5500", "only where it is asked for"


def test_the_explanation_reports_what_is_still_being_released() -> None:
    seen = observe(pods=[], departures=[departure(timedelta(seconds=150))])
    assert "cpu 1000m and memory 0 of pods that have left still count" in render(decide_node(seen, GRADUAL, NOW).trace)
    assert "have left" not in render(decide_node(seen, SloSettings(), NOW).trace)


def test_a_pod_that_is_still_reported_is_not_counted_twice() -> None:
    gone = departure(timedelta(seconds=150))
    for cpu, expected in (("1500m", "4000"), ("200m", "4500")):
        seen = observe(pods=[], metric=metric(usage("gone", cpu)), departures=[gone])
        assert lent(seen, GRADUAL)[BATCH_CPU] == expected


def test_a_pod_that_is_back_counts_for_itself_alone() -> None:
    seen = observe(pods=[pod("web")], departures=[departure(timedelta(0), key=("shop", "web"))])
    assert lent(seen, GRADUAL)[BATCH_CPU] == "3500"


def test_under_the_policy_request_the_request_is_released() -> None:
    gone = Departure(NOW - timedelta(seconds=150), Load((0, 2 * GIB), (0, 0), (0, 2 * GIB)), ("shop", "gone"))
    seen = observe(pods=[], departures=[gone], colocation={**STRATEGY, "memoryCalculatePolicy": "request"})
    # 10Gi - 3.5Gi margin - 1Gi of the 2Gi that the pod had requested
    assert lent(seen, GRADUAL)[BATCH_MEMORY] == str(10 * 2**30 - 3758096384 - 2**30)


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 64)), max_size=8), st.integers(1, 300))
def test_less_and_less_lingers(gone: list[tuple[int, int]], later: int) -> None:
    departures = [departure(timedelta(seconds=ago), cores=cores) for ago, cores in gone]

    def counted(now: datetime) -> int:
        return sum(load.used[0] for load in lingering(departures, [], metric(), WINDOW, now))

    assert 0 <= counted(NOW + timedelta(seconds=later)) <= counted(NOW) <= sum(cores for _, cores in gone) * CORE


@pytest.mark.parametrize(
    ("new", "labels", "remembered"),
    [
        pytest.param(None, {}, True, id="deleted"),
        pytest.param("Succeeded", {}, True, id="finished"),
        pytest.param("Running", {}, False, id="still-there"),
        pytest.param(None, {"koordinator.sh/priority-class": "koord-batch"}, False, id="low-priority"),
    ],
)
def test_who_left_is_remembered(new: str | None, labels: dict[str, str], remembered: bool) -> None:
    departures = Departures()
    after = None if new is None else raw_pod(new, **labels)
    departures.pod_changed(raw_pod(**labels), after, metric(usage("web", "1", "1Gi")), NOW)
    found = departures.of("n")
    assert bool(found) is remembered
    if found:
        assert found[0].load == Load((2 * CORE, 2 * GIB), (CORE, GIB), (2 * CORE, 2 * GIB))


def test_a_pod_that_left_before_its_first_metrics_counted_with_its_request() -> None:
    departures = Departures()
    departures.pod_changed(raw_pod(), None, metric(), NOW)
    request = 2 * CORE, 2 * GIB
    assert [each.load for each in departures.of("n")] == [Load(request, request, request)]


def test_after_a_restart_nothing_is_released_faster_than_before() -> None:
    """The node lends 4500 because a pod of 2 cores left 150 s ago; the process that knew it is gone."""
    seen = observe(pods=[], node=node(batch_cpu="4500", batch_memory=str(6 * 2**30)), watched_for=timedelta(0))
    first = decide_node(seen, GRADUAL, NOW)
    assert first.items[-2].quantity == Quantity.of(4500)
    assert decide_node(observe(pods=[], node=seen.node), GRADUAL, NOW).items[-2].quantity == Quantity.of(5500)

    later = NOW + timedelta(seconds=150)
    then = observe(pods=[], node=seen.node, departures=first.held)
    assert decide_node(then, GRADUAL, later).items[-2].quantity == Quantity.of(5000)
    assert decide_node(then, GRADUAL, NOW + WINDOW).items[-2].quantity == Quantity.of(5500)


def test_after_a_restart_pods_that_are_only_left_in_the_report_are_released_gradually_too() -> None:
    seen = observe(
        pods=[],
        node=node(batch_cpu="4500", batch_memory=str(6 * 2**30)),
        metric=metric(usage("gone", "1")),
        watched_for=timedelta(0),
    )
    first = decide_node(seen, GRADUAL, NOW)
    assert first.items[-2].quantity == Quantity.of(4500)
    next_report = observe(pods=[], node=seen.node, departures=first.held)
    assert decide_node(next_report, GRADUAL, NOW + timedelta(seconds=150)).items[-2].quantity == Quantity.of(5000)


@pytest.mark.parametrize(
    ("watched", "held"),
    [
        pytest.param(timedelta(0), True, id="just-started"),
        pytest.param(timedelta(seconds=299), True, id="not-a-whole-window-yet"),
        pytest.param(WINDOW, False, id="a-standby-that-watched-long-enough"),
        pytest.param(None, False, id="decided-before"),
    ],
)
def test_only_a_past_that_nobody_watched_holds_anything_back(watched: timedelta | None, held: bool) -> None:
    seen = observe(pods=[], node=node(batch_cpu="1000", batch_memory="1"), watched_for=watched)
    assert bool(decide_node(seen, GRADUAL, NOW).held) is held


def test_a_node_that_overcommits_nothing_yet_has_nothing_to_hold_back() -> None:
    decision = decide_node(observe(pods=[], watched_for=timedelta(0)), GRADUAL, NOW)
    assert decision.held == ()


def test_the_past_is_unknown_until_the_first_decision() -> None:
    departures = Departures()
    assert departures.watched_for("n", NOW) == timedelta(0)
    departures.begin(NOW - timedelta(minutes=1))
    assert departures.watched_for("n", NOW) == timedelta(minutes=1)
    departures.decided("n", [departure(timedelta(0))])
    assert departures.watched_for("n", NOW) is None
    assert len(departures.of("n")) == 1
    departures.forget("n")
    assert departures.of("n") == ()
    assert departures.watched_for("n", NOW) == timedelta(minutes=1)
