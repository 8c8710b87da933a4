"""What `kubetide explain pod` says."""

from datetime import UTC, datetime

from kubetide.api.objects.core import Pod
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.testing.builders import make_container, make_pod, make_vpa
from kubetide.vpa.updater.core.breaker import CLOSED
from kubetide.vpa.updater.core.budget import Creator
from kubetide.vpa.updater.core.memory import Memory
from kubetide.vpa.updater.core.plan import Method, Observation, PlanRules, plan
from kubetide.vpa.updater.core.step import Step
from kubetide.vpa.updater.explain import render, trace

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def test_a_trace_becomes_a_text_that_reports_why() -> None:
    pods = []
    for number in range(2):
        raw = make_pod(f"web-{number}", containers=[make_container(cpu="100m", memory="128Mi")], phase="Running")
        raw["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web", "controller": True}]
        pods.append(convert(raw, Pod))
    vpa = convert(make_vpa("web", mode="Recreate", recommendation={"main": {"cpu": "300m"}}), VerticalPodAutoscaler)
    observation = Observation(vpa=vpa, pods=tuple(pods), stated={Creator("default", "ReplicaSet", "web"): 2})
    made = plan(observation, Memory(), PlanRules(), now=NOW)
    (first, _) = made.candidates
    found = trace(made, first, Step(first.method, first.reason), breaker=CLOSED, resize=None, run_at=NOW)
    assert found["action"] == "evict"
    text = render(found)
    assert "pod default/web-0, controlled by VPA default/web (mode Recreate)" in text
    assert "now: evicted, because a request is outside the recommended range" in text
    assert "container main: requests cpu 100m, memory 128Mi" in text
    assert "target cpu 300m" in text
    assert "ReplicaSet web: 2 of 2 running" in text
    stopped = trace(
        made, first, Step(Method.NONE, "x"), breaker=CLOSED, resize=None, run_at=NOW, problem="the lease is old"
    )
    assert "left alone, because the lease is old" in render(stopped)
