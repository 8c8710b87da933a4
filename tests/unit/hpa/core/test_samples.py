"""Answers of the metrics APIs become samples, and nonsense gets a name."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.metrics import ExternalMetricValue, MetricValue, PodMetrics
from kubetide.api.values.codec import convert
from kubetide.hpa.core.samples import (
    ZERO_TIME,
    ErrorKind,
    MetricFailure,
    Sample,
    external_reading,
    is_future,
    object_reading,
    pods_reading,
    resource_reading,
    window_of,
)
from unit.hpa.worlds import NOW


def usage(name: str, **containers: Any) -> PodMetrics:
    raw = {
        "metadata": {"name": name},
        "timestamp": "2026-03-01T12:00:00Z",
        "window": "15.2s",
        "containers": [{"name": key, "usage": value} for key, value in containers.items()],
    }
    return convert(raw, PodMetrics)


def custom(name: str, value: Any, **more: Any) -> MetricValue:
    return convert({"describedObject": {"name": name}, "value": value, **more}, MetricValue)


def external(*values: Any) -> list[ExternalMetricValue]:
    return [convert({"metricName": "queue", "value": value}, ExternalMetricValue) for value in values]


def test_containers_are_rounded_up_before_they_are_added() -> None:
    found = resource_reading([usage("a", app={"cpu": "156365u"}, side={"cpu": "1n"})], "cpu")
    assert found.samples == {"a": Sample(158, NOW, timedelta(seconds=15.2))}


@pytest.mark.parametrize(
    "amounts",
    [
        pytest.param(["1n", "156365000n", "0"], id="plain-nanos"),
        pytest.param(["1n", "50m", "2"], id="other-units"),
        pytest.param(["1n", 2, "0"], id="a-number"),
        pytest.param(["1n", "-5n", "1e3"], id="signs-and-exponents"),
    ],
)
def test_a_list_is_read_as_each_of_its_samples(amounts: list[Any]) -> None:
    items = [usage(f"pod-{index}", app={"cpu": amount}) for index, amount in enumerate(amounts)]
    found = resource_reading(items, "cpu")
    assert found.samples == {
        name: sample for item in items for name, sample in resource_reading([item], "cpu").samples.items()
    }
    # A container that uses nothing changes no amount, and lets every sample be looked at by itself.
    idle = [usage(f"pod-{index}", app={"cpu": amount}, side={"cpu": "0"}) for index, amount in enumerate(amounts)]
    assert resource_reading(idle, "cpu") == found


def test_a_pod_that_is_listed_twice_keeps_its_defect() -> None:
    found = resource_reading([usage("a", app={"cpu": "1n"}), usage("a", app={"cpu": "5000000n"})], "cpu")
    assert found.samples["a"].value == 5
    assert found.defects.keys() == {"a"}


@pytest.mark.parametrize(
    ("item", "container", "expected"),
    [
        pytest.param(usage("a", app={"cpu": "1"}, side={"memory": "1"}), "", None, id="one-container-lacks-it"),
        pytest.param(usage("a"), "", None, id="no-containers"),
        pytest.param(usage("a", app={"cpu": "1"}, side={"memory": "1"}), "app", 1000, id="the-named-container-has-it"),
        pytest.param(usage("a", app={"cpu": "1"}), "other", None, id="no-such-container"),
    ],
)
def test_half_a_pod_is_no_sample(item: PodMetrics, container: str, expected: int | None) -> None:
    found = resource_reading([item], "cpu", container).samples.get("a")
    assert (found.value if found else None) == expected


def test_no_items_is_an_error_of_its_own() -> None:
    for read in (lambda: resource_reading([], "cpu"), lambda: pods_reading([]), lambda: external_reading([])):
        with pytest.raises(MetricFailure) as caught:
            read()
        assert caught.value.kind is ErrorKind.EMPTY


def test_of_two_values_for_one_pod_the_later_counts_and_is_noted() -> None:
    found = pods_reading([custom("a", "1"), custom("a", "3"), custom("b", "2"), custom("b", "2")])
    assert {name: sample.value for name, sample in found.samples.items()} == {"a": 3000, "b": 2000}
    assert set(found.defects) == {"a"}


def test_windows_are_in_seconds_under_either_name() -> None:
    found = pods_reading([custom("a", "1", windowSeconds=30), custom("b", "1", window=20), custom("c", "1")])
    assert [sample.window.total_seconds() for sample in found.samples.values()] == [30, 20, 60]
    assert found.timestamp == ZERO_TIME


def test_a_window_beyond_all_measure_is_only_very_long() -> None:
    found = pods_reading([custom("a", "1", windowSeconds=2**62), custom("b", "1", window=-(2**62))])
    assert [sample.window.days // 36_500 for sample in found.samples.values()] == [3, -4]


def test_an_object_has_exactly_one_value() -> None:
    assert object_reading([custom("a", "42")]).usage == 42000
    for count in (0, 2):
        with pytest.raises(MetricFailure, match=str(count)):
            object_reading([custom("a", "42")] * count)


@pytest.mark.parametrize("text", ["NaN", "nan", "Inf", "+Inf", "-inf", "Infinity", "1e308", "1e30", "-1e30", "9" * 900])
def test_what_is_no_finite_number_of_64_bits_is_named(text: str) -> None:
    with pytest.raises(MetricFailure) as caught:
        external_reading(external("1", text))
    assert caught.value.kind is ErrorKind.INVALID_VALUE
    with pytest.raises(MetricFailure) as again:
        resource_reading([usage("a", app={"cpu": text})], "cpu")
    assert again.value.kind is ErrorKind.INVALID_VALUE
    assert "pod a" in str(again.value)


def test_other_nonsense_is_a_failed_answer() -> None:
    with pytest.raises(MetricFailure) as caught:
        external_reading(external("twelve"))
    assert caught.value.kind is ErrorKind.FETCH_FAILED


def test_negative_values_stay_values() -> None:
    assert external_reading(external("-5m", 3)).values == (-5, 3000)


def test_windows_are_go_durations() -> None:
    assert window_of("1m0s") == timedelta(minutes=1)
    assert window_of("") == timedelta(0)
    with pytest.raises(MetricFailure):
        window_of("soon")


def test_a_little_ahead_of_our_clock_is_not_the_future() -> None:
    assert not is_future(NOW + timedelta(minutes=4), NOW)
    assert is_future(NOW + timedelta(minutes=6), NOW)


@pytest.mark.parametrize("container", ["", "app", "side"])
def test_a_pod_with_a_container_twice_has_no_sample_and_is_named(container: str) -> None:
    twice = convert(
        {
            "metadata": {"name": "b"},
            "containers": [{"name": name, "usage": {"cpu": "1"}} for name in ("app", "side", "app")],
        },
        PodMetrics,
    )
    found = resource_reading([usage("a", app={"cpu": "1"}, side={"cpu": "1"}), twice], "cpu", container)
    assert list(found.samples) == ["a"]
    assert found.refused["b"].text == "the sample of pod b has container app more than once"


def test_values_tell_when_they_were_measured_if_they_say_so() -> None:
    dated = convert(
        {"metricName": "queue", "value": "1", "timestamp": "2026-03-01T12:00:00Z", "windowSeconds": 30},
        ExternalMetricValue,
    )
    assert external_reading([*external("1"), dated]).measured == ((NOW, timedelta(seconds=30)),)
