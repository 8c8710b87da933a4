"""When a sample is worth a reconcile."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaSpec
from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.values.codec import convert
from kubetide.hpa.core.bands import Position, position, reads_usage, wakes
from kubetide.hpa.core.decide import decide
from kubetide.hpa.core.observation import Memory, Observation, Options, ScaleView
from kubetide.hpa.core.samples import resource_reading

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = (NOW - timedelta(days=1)).isoformat()
HALF = {"type": "Utilization", "averageUtilization": 50}


def spec(*metrics: dict[str, Any], behavior: dict[str, Any] | None = None) -> HpaSpec:
    raw = {"spec": {"minReplicas": 1, "maxReplicas": 10, "metrics": metrics, "behavior": behavior}}
    return convert(raw, HorizontalPodAutoscaler).spec


def cpu(target: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def pod(number: int, requests: dict[str, str], *, ready: bool = True, **meta: Any) -> Pod:
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": LONG_AGO}]
    containers = [{"name": name, "resources": {"requests": {"cpu": text}}} for name, text in requests.items()]
    raw = {
        "metadata": {"name": f"p-{number}", **meta},
        "spec": {"containers": containers},
        "status": {"phase": "Running", "startTime": LONG_AGO, "conditions": conditions},
    }
    return convert(raw, Pod)


def used(number: int, cores: dict[str, str]) -> PodMetrics:
    containers = [{"name": name, "usage": {"cpu": text}} for name, text in cores.items()]
    raw = {"metadata": {"name": f"p-{number}"}, "timestamp": NOW.isoformat(), "window": "5s", "containers": containers}
    return convert(raw, PodMetrics)


def stands(of: HpaSpec, pods: list[Pod], usage: list[PodMetrics]) -> Position | None:
    return position(of, pods, usage, Options(), now=NOW)


def side(of: HpaSpec, *cores: str, request: str = "200m") -> int | None:
    found = stands(
        of,
        [pod(number, {"main": request}) for number in range(len(cores))],
        [used(number, {"main": text}) for number, text in enumerate(cores)],
    )
    return None if found is None else found.side


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        pytest.param(["100m", "100m"], 0, id="at-the-target"),
        pytest.param(["110m", "110m"], 0, id="at-the-edge"),
        pytest.param(["111m", "111m"], 0, id="beyond-the-edge-by-less-than-a-percent-of-the-request"),
        pytest.param(["112m", "112m"], 1, id="beyond-the-edge"),
        pytest.param(["200m", "100m"], 1, id="on-average"),
        pytest.param(["50m", "50m"], -1, id="below"),
        pytest.param(["x"], None, id="not-a-quantity"),
        pytest.param([], None, id="no-samples"),
    ],
)
def test_where_pods_stand_by_their_requests(cores: list[str], expected: int | None) -> None:
    assert side(spec(cpu(HALF)), *cores) == expected


@pytest.mark.parametrize(("cores", "expected"), [("220m", 0), ("221m", 1), ("179m", -1)])
def test_where_pods_stand_by_an_amount(cores: str, expected: int) -> None:
    assert side(spec(cpu({"type": "AverageValue", "averageValue": "200m"})), cores) == expected


def test_each_end_of_the_band_has_its_own_tolerance() -> None:
    behavior = {"scaleUp": {"tolerance": "0.02"}}
    assert side(spec(cpu(HALF), behavior=behavior), "106m") == 1
    assert side(spec(cpu(HALF), behavior=behavior), "91m") == 0


def test_no_metrics_mean_cpu_at_80_percent() -> None:
    assert reads_usage(spec())
    assert side(spec(), "180m") == 1


def test_a_metric_of_something_else_is_not_looked_at() -> None:
    other = spec({"type": "External", "external": {"metric": {"name": "x"}, "target": {"type": "Value", "value": "1"}}})
    assert not reads_usage(other)
    assert side(other, "500m") is None


def test_a_container_stands_by_itself() -> None:
    of = spec({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "main", "target": HALF}})
    pods = [pod(0, {"main": "200m", "side": "200m"})]
    within, above = (stands(of, pods, [used(0, {"main": text, "side": "9"})]) for text in ("100m", "150m"))
    assert within is not None
    assert within.side == 0
    assert above is not None
    assert above.side == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(pod(1, {"main": "200m"}, deletionTimestamp=LONG_AGO), id="on-its-way-out"),
        pytest.param(pod(1, {"main": "200m"}, ready=False), id="not-ready-since-its-start"),
    ],
)
def test_pods_that_do_not_count_for_the_decision_do_not_hide_a_load_step(other: Pod) -> None:
    pods, usage = [pod(0, {"main": "200m"}), other], [used(0, {"main": "120m"}), used(1, {"main": "0"})]
    found = stands(spec(cpu(HALF)), pods, usage)
    assert found is not None
    assert found.side == 1


def test_without_requests_nothing_is_known() -> None:
    without = convert({"metadata": {"name": "p-0"}, "spec": {"containers": [{"name": "main"}]}}, Pod)
    assert stands(spec(cpu(HALF)), [without], [used(0, {"main": "1"})]) is None


def test_the_metric_that_asks_for_most_counts() -> None:
    amount = {"type": "AverageValue", "averageValue": "50m"}
    found = stands(spec(cpu(HALF), cpu(amount)), [pod(0, {"main": "200m"})], [used(0, {"main": "100m"})])
    assert found is not None
    assert (found.side, found.ratio) == (1, 2.0)


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=4),
    st.integers(1, 120),
    st.integers(10, 700),
    st.booleans(),
)
def test_outside_the_band_is_where_the_decision_wants_another_size(
    millis: list[int], target: int, request: int, as_amount: bool
) -> None:
    wanted = (
        {"type": "AverageValue", "averageValue": f"{target}m"} if as_amount else {**HALF, "averageUtilization": target}
    )
    of = spec(cpu(wanted))
    pods = [pod(number, {"main": f"{request}m"}) for number in range(len(millis))]
    usage = [used(number, {"main": f"{milli}m"}) for number, milli in enumerate(millis)]
    found = stands(of, pods, usage)
    seen = Observation(
        hpa=HorizontalPodAutoscaler(spec=of),
        scale=ScaleView(len(pods), len(pods), "app=web"),
        pods=pods,
        readings=(resource_reading(usage, "cpu"),),
    )
    decision = decide(seen, Memory(), Options(), now=NOW)
    assert found is not None
    assert decision.choice is not None
    if decision.choice.replicas != len(pods):
        assert found.side == (1 if decision.choice.replicas > len(pods) else -1)


@pytest.mark.parametrize(
    ("before", "milli", "expected"),
    [
        pytest.param(None, 100, False, id="first-look-within"),
        pytest.param(None, 200, True, id="first-look-above"),
        pytest.param(100, 105, False, id="within"),
        pytest.param(100, 120, True, id="up-across-the-edge"),
        pytest.param(100, 50, True, id="down-across-the-edge"),
        pytest.param(200, 100, True, id="back-within"),
        pytest.param(200, 210, False, id="above-and-hardly-moved"),
        pytest.param(200, 400, True, id="above-and-further-away"),
    ],
)
def test_what_wakes(before: int | None, milli: int, expected: bool) -> None:
    def at(value: int) -> Position:
        found = stands(spec(cpu(HALF)), [pod(0, {"main": "200m"})], [used(0, {"main": f"{value}m"})])
        assert found is not None
        return found

    assert wakes(None if before is None else at(before), at(milli)) is expected
