"""Gauges that are made anew each round."""

from kubetide.node.telemetry import RoundGauge
from kubetide.telemetry import Telemetry


def test_what_a_sync_does_not_set_disappears_and_other_nodes_stay() -> None:
    telemetry = Telemetry()
    gauge = telemetry.gauge("test_gauge", "A test.", ("node", "pod"))
    mine, other = RoundGauge(gauge), RoundGauge(gauge)
    other.begin()
    other.set(("b", "x"), 1.0)
    other.end()
    for pods in (("old", "kept"), ("kept",)):
        mine.begin()
        for pod in pods:
            mine.set(("a", pod), 1.0)
        mine.end()
    text = telemetry.render().decode()
    assert 'pod="old"' not in text
    assert 'pod="kept"' in text
    assert 'node="b"' in text


def test_a_sync_that_failed_halfway_leaves_no_value_behind() -> None:
    telemetry = Telemetry()
    mine = RoundGauge(telemetry.gauge("test_gauge", "A test.", ("pod",)))
    for value, ends in ((1.0, True), (2.0, False), (1.0, True)):
        mine.begin()
        mine.set(("web",), value)
        if ends:
            mine.end()
    assert telemetry.registry.get_sample_value("test_gauge", {"pod": "web"}) == 1.0


def test_a_series_that_was_away_comes_back_with_its_value() -> None:
    telemetry = Telemetry()
    mine = RoundGauge(telemetry.gauge("test_gauge", "A test.", ("pod",)))
    for pods in (("web",), (), ("web",)):
        mine.begin()
        for pod in pods:
            mine.set((pod,), 3.0)
        mine.end()
    assert telemetry.registry.get_sample_value("test_gauge", {"pod": "web"}) == 3.0
