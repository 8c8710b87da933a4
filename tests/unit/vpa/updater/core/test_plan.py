"""Evict, resize, or leave alone."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from kubetide.api.objects.core import ContainerStatus, Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.api.values.conditions import Condition
from kubetide.testing.builders import make_container, make_pod, make_vpa
from kubetide.vpa.admission.core.mutate import SizeLimits
from kubetide.vpa.core.policy import texts
from kubetide.vpa.updater.core.breaker import BreakerState
from kubetide.vpa.updater.core.budget import Creator
from kubetide.vpa.updater.core.memory import Inherited, Memory, PastEviction, disruption_of
from kubetide.vpa.updater.core.plan import Method, Observation, PlanRules, VpaPlan, plan
from kubetide.vpa.updater.core.step import Step, next_step

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
RS = Creator("default", "ReplicaSet", "web")
TARGET = {"cpu": "300m", "memory": "256Mi"}


def pod(name: str, cpu: str = "100m", *, ready: bool = True, containers: Sequence[Any] | None = None) -> Pod:
    raw = make_pod(name, uid=name, containers=containers or [make_container(cpu=cpu, memory="256Mi")], phase="Running")
    raw["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web", "controller": True}]
    raw["metadata"]["creationTimestamp"] = NOW - timedelta(days=1)
    raw["status"]["conditions"] = [{"type": "Ready", "status": "True" if ready else "False"}]
    return convert(raw, Pod)


def vpa(mode: str = "Recreate", **given: Any) -> VerticalPodAutoscaler:
    raw = make_vpa("web", mode=mode, recommendation={"main": TARGET}, **given)
    return convert(raw, VerticalPodAutoscaler)


def observe(pods: Sequence[Pod], given: VerticalPodAutoscaler | None = None, **rest: Any) -> Observation:
    return Observation(vpa=given or vpa(), pods=tuple(pods), stated={RS: len(pods)}, **rest)


def steps(made: VpaPlan, pods: Sequence[Pod], memory: Memory | None = None) -> list[Step]:
    """Decide about every candidate in order, counting what is done."""
    memory = memory or Memory()
    result = []
    for candidate in made.candidates:
        step = next_step(made, candidate, candidate.pod, pods, memory, now=NOW)
        if step.method is Method.EVICT:
            made.budget.record_eviction(candidate.pod)
        result.append(step)
    return result


def reasons(made: VpaPlan) -> dict[str, str]:
    return {judgement.pod.metadata.name: judgement.reason for judgement in made.judged}


def test_the_pod_that_is_furthest_off_goes_first_and_half_of_them_go() -> None:
    pods = [pod("a", "200m"), pod("b", "10m"), pod("c", "100m"), pod("d", "300m")]
    made = plan(observe(pods), Memory(), PlanRules(settle=False), now=NOW)
    assert [candidate.pod.metadata.name for candidate in made.candidates] == ["b", "c", "a"]
    assert [step.method for step in steps(made, pods)] == [Method.EVICT, Method.EVICT, Method.NONE]
    assert "within the recommended range" in reasons(made)["d"]


def test_a_recommendation_that_is_not_ready_changes_nobody() -> None:
    made = plan(observe([pod("a"), pod("b")], not_ready="history"), Memory(), PlanRules(), now=NOW)
    assert made.candidates == ()
    assert set(reasons(made).values()) == {"history"}


def test_a_paused_workload_is_not_evicted_and_reports_why() -> None:
    pods = [pod("a"), pod("b")]
    memory = Memory()
    memory.breakers[ObjectKey("default", "web")] = BreakerState(strikes=2, paused_since=NOW, detail="unpatched")
    (first, _) = steps(plan(observe(pods), memory, PlanRules(), now=NOW), pods, memory)
    assert first == Step(Method.NONE, "updates of this workload are paused: unpatched")


def test_a_third_eviction_waits_until_the_replacements_of_two_have_been_looked_at() -> None:
    pods = [pod(name) for name in "abcdef"]
    memory, key = Memory(), ObjectKey("default", "web")
    made = plan(observe(pods), memory, PlanRules(settle=False), now=NOW)
    for uid in ("x", "y"):
        assert next_step(made, made.candidates[0], pods[0], pods, memory, now=NOW).method is Method.EVICT
        gone = disruption_of(name=uid, uid=uid, at=NOW, evicted=True, known={uid})
        memory.begin(PastEviction(vpa=key, creator=RS, disruption=gone, before={}, expected={}), judged=True)
    step = next_step(made, made.candidates[0], pods[0], pods, memory, now=NOW)
    assert step == Step(Method.WAIT, "the replacements of evicted pods have not been looked at yet")
    memory.undo(memory.evictions[key][0])
    assert next_step(made, made.candidates[0], pods[0], pods, memory, now=NOW).method is Method.EVICT
    assert [done.uid for done in memory.disruptions[RS]] == ["y"]


def test_nothing_is_evicted_while_an_eviction_of_another_process_is_not_accounted_for() -> None:
    pods = [pod("a"), pod("b")]
    memory = Memory()
    made = plan(observe(pods), memory, PlanRules(), now=NOW)
    memory.inherited[ObjectKey("default", "web")] = Inherited(after=NOW, noticed=NOW)
    step = next_step(made, made.candidates[0], pods[0], pods, memory, now=NOW)
    assert step == Step(Method.WAIT, "what came of an eviction before the last start has not been seen yet")


def test_a_workload_waits_for_the_replacement_of_an_earlier_one() -> None:
    pods = [pod("a"), pod("b"), pod("c"), pod("d")]
    memory = Memory()
    memory.record(RS, disruption_of(name="x", uid="x", at=NOW, evicted=True, known={"x", "a", "b", "c"}))
    made = plan(replace(observe(pods), stated={RS: 5}), memory, PlanRules(), now=NOW)
    unready = [*pods[:3], pod("d", ready=False)]
    step = next_step(made, made.candidates[0], pods[0], unready, memory, now=NOW)
    assert step == Step(Method.WAIT, "the replacement of pod x is not ready yet")
    assert next_step(made, made.candidates[0], pods[0], pods, memory, now=NOW).method is Method.EVICT


@pytest.mark.parametrize(
    ("requirement", "candidates"),
    [("TargetHigherThanRequests", 2), ("TargetLowerThanRequests", 0)],
)
def test_eviction_requirements_have_the_last_word(requirement: str, candidates: int) -> None:
    given = make_vpa("web", mode="Recreate", recommendation={"main": TARGET})
    given["spec"]["updatePolicy"]["evictionRequirements"] = [{"resources": ["cpu"], "changeRequirement": requirement}]
    made = plan(observe([pod("a"), pod("b")], convert(given, VerticalPodAutoscaler)), Memory(), PlanRules(), now=NOW)
    assert len(made.candidates) == candidates
    if not candidates:
        assert set(reasons(made).values()) == {"the eviction requirements of the VPA are not met"}


def test_in_place_modes_resize_and_fall_back_where_the_qos_class_would_change() -> None:
    pods = [pod("a"), pod("b")]
    made = plan(observe(pods, vpa("InPlaceOrRecreate")), Memory(), PlanRules(), now=NOW)
    assert steps(made, pods)[0].method is Method.RESIZE
    bare = [pod(name, containers=[make_container()]) for name in ("a", "b")]
    made = plan(observe(bare, vpa("InPlaceOrRecreate")), Memory(), PlanRules(), now=NOW)
    first = steps(made, bare)[0]
    assert first.method is Method.EVICT
    assert "QoS class changes from BestEffort to Burstable" in first.reason
    only = plan(observe(bare, vpa("InPlace")), Memory(), PlanRules(in_place_gate=True), now=NOW)
    assert steps(only, bare)[0].method is Method.NONE


@pytest.mark.parametrize(
    ("settle", "expected"),
    [
        pytest.param(False, Method.RESIZE, id="the-original-does-not-care"),
        pytest.param(True, Method.NONE, id="kubetide-does"),
    ],
)
def test_mode_in_place_and_a_budget_that_is_used_up(settle: bool, expected: Method) -> None:
    pods = [pod("a"), pod("b")]
    made = plan(observe(pods, vpa("InPlace")), Memory(), PlanRules(in_place_gate=True, settle=settle), now=NOW)
    made.budget.record_resize(pods[0])
    second = next(candidate for candidate in made.candidates if candidate.pod is pods[1])
    assert next_step(made, second, pods[1], pods, Memory(), now=NOW).method is expected


def test_memory_that_is_in_use_is_no_reason_to_change_a_pod() -> None:
    large = [make_container(cpu="300m", memory="1Gi")]
    pods = [pod("a", containers=large), pod("b", containers=large)]
    held = plan(observe(pods, limits=SizeLimits(usage={"main": 2**30})), Memory(), PlanRules(), now=NOW)
    assert held.candidates == ()
    free = plan(observe(pods, limits=SizeLimits(usage={"main": 2**20})), Memory(), PlanRules(), now=NOW)
    assert len(free.candidates) == 2


def test_a_container_that_the_server_would_refuse_is_no_reason_either() -> None:
    odd = make_container(cpu="100m", memory="256Mi")
    odd["resources"]["requests"]["example.com/x"] = "5"
    odd["resources"]["limits"] = {"example.com/x": "1"}
    pods = [pod("a", containers=[odd]), pod("b", containers=[odd])]
    made = plan(observe(pods), Memory(), PlanRules(), now=NOW)
    assert made.candidates == ()
    assert made.judged[0].fitted is not None
    assert made.judged[0].fitted.containers[0].refused == "example.com/x"


def test_a_recommendation_that_cannot_be_read_changes_nobody() -> None:
    given = make_vpa("web", mode="Recreate", recommendation={"main": {"cpu": "lots"}})
    made = plan(observe([pod("a"), pod("b")], convert(given, VerticalPodAutoscaler)), Memory(), PlanRules(), now=NOW)
    assert made.candidates == ()
    assert "cannot be used: 'lots' is not a quantity" in reasons(made)["a"]


def test_a_boost_is_taken_back_to_what_the_pod_had_asked_for_while_there_is_no_recommendation() -> None:
    given = vpa("Off")
    pods = [pod(name, "900m") for name in ("a", "b")]
    notes = {"vpaCpuStartupBoost/main": '{"requests":{"cpu":"100m","memory":"256Mi"},"limits":{}}'}
    boosted = [structs.replace(p, metadata=structs.replace(p.metadata, annotations=notes)) for p in pods]
    made = plan(observe(boosted, given, not_ready="no sample"), Memory(), PlanRules(boost_gate=True), now=NOW)
    assert [candidate.unboost for candidate in made.candidates] == [True, True]
    step = next_step(made, made.candidates[0], boosted[0], boosted, Memory(), now=NOW)
    assert step == Step(Method.RESIZE, "its startup boost is over")
    assert made.candidates[0].fitted is not None
    assert texts(made.candidates[0].fitted.containers[0].requests) == {"cpu": "100m", "memory": "256Mi"}


def test_a_resize_that_the_kubelet_has_not_answered_is_not_written_again() -> None:
    pods = [pod(name, "300m") for name in ("a", "b")]
    reported = convert({"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}, ContainerStatus)
    asked = [structs.replace(p, status=structs.replace(p.status, container_statuses=(reported,))) for p in pods]
    made = plan(observe(asked, vpa("InPlaceOrRecreate")), Memory(), PlanRules(), now=NOW)
    step = next_step(made, made.candidates[0], asked[0], asked, Memory(), now=NOW)
    assert step == Step(Method.NONE, "the new resources are written, and the kubelet has not answered yet")


def learned_vpa(mode: str = "InPlaceOrRecreate", learned: str = "True") -> VerticalPodAutoscaler:
    """A VPA whose bounds hold its pods, with learned sizes."""
    raw = make_vpa("web", mode=mode, recommendation={"main": TARGET})
    (entry,) = raw["status"]["recommendation"]["containerRecommendations"]
    entry["lowerBound"], entry["upperBound"] = {"cpu": "10m", "memory": "1Mi"}, {"cpu": "2", "memory": "1Gi"}
    raw["status"]["conditions"] = [{"type": "AdaptiveEstimator", "status": learned}]
    return convert(raw, VerticalPodAutoscaler)


def test_learned_cpu_follows_in_place_within_the_bounds_and_nothing_else_changes() -> None:
    alone = [pod("a", "100m", containers=[make_container(cpu="100m", memory="512Mi")])]
    made = plan(observe(alone, learned_vpa()), Memory(), PlanRules(), now=NOW)
    assert [step.method for step in steps(made, alone)] == [Method.RESIZE]
    (candidate,) = made.candidates
    assert candidate.fitted is not None
    assert {name: texts(new.requests) for new in candidate.fitted.containers for name in [new.name]} == {
        "main": {"cpu": "300m"}
    }


@pytest.mark.parametrize(
    ("cpu", "given", "why"),
    [
        pytest.param("100m", learned_vpa(learned="False"), "within the recommended range", id="not-learned"),
        pytest.param("100m", learned_vpa("Recreate"), "within the recommended range", id="not-in-place"),
        pytest.param("290m", learned_vpa(), "within the recommended range", id="close-enough"),
    ],
)
def test_cpu_does_not_follow_where_it_is_not_free(cpu: str, given: VerticalPodAutoscaler, why: str) -> None:
    pods = [pod("a", cpu), pod("b", cpu)]
    made = plan(observe(pods, given), Memory(), PlanRules(), now=NOW)
    assert made.candidates == ()
    assert all(why in reason for reason in reasons(made).values())


def test_cpu_does_not_follow_where_a_container_would_restart() -> None:
    restarts = make_container(cpu="100m", memory="256Mi")
    restarts["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    made = plan(observe([pod("a", containers=[restarts])], learned_vpa()), Memory(), PlanRules(), now=NOW)
    assert made.candidates == ()


def test_nobody_is_evicted_because_learned_cpu_cannot_follow() -> None:
    infeasible = pod("a", "100m")
    conditions = (
        *(infeasible.status.conditions or ()),
        Condition(type="PodResizePending", status="True", reason="Infeasible"),
    )
    stuck = structs.replace(infeasible, status=structs.replace(infeasible.status, conditions=conditions))
    pods = [stuck, *(pod(name, "300m") for name in "bcd")]
    made = plan(observe(pods, learned_vpa()), Memory(), PlanRules(settle=False), now=NOW)
    assert made.candidates == ()
    assert "in place only" in reasons(made)["a"]
