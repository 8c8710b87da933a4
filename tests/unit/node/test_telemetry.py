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
