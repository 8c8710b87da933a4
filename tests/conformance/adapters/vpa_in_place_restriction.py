"""Decisions about resizes, the budget they share with evictions, and refusals for good: VPA 1.7 and 1.8."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from conformance.registry import suite
from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import parse_quantity
from kubetide.errors import KubetideError
from kubetide.kube.client.errors import api_error
from kubetide.vpa.core.compat import RESIZE_ERROR_DEFERRED, V1_7, V1_8
from kubetide.vpa.updater.core.budget import Budget, BudgetRules, Creator, build_budget
from kubetide.vpa.updater.core.inplace import InPlaceRules, ResizeClock, Targets, decide, may_evict, pod_resize_state
from kubetide.vpa.updater.evictor import never_fits

NAMESPACE = "default"


def _time(millis: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)


def _pod(raw: dict[str, Any]) -> Pod:
    container: dict[str, Any] = {"name": "c0"}
    if raw.get("hasRestartContainerPolicy"):
        container["resizePolicy"] = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    return convert(
        {
            "metadata": {
                "name": raw["name"],
                "namespace": NAMESPACE,
                "uid": raw["name"],
                "ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "controller": True}],
            },
            "spec": {"containers": [container]},
            "status": {"phase": raw["phase"], "conditions": raw.get("conditions")},
        },
        Pod,
    )


def _targets(recommendation: list[dict[str, Any]] | None) -> Targets | None:
    if recommendation is None:
        return None
    return {
        entry["containerName"]: {name: parse_quantity(text) for name, text in (entry.get("target") or {}).items()}
        for entry in recommendation
    }


class _World:
    def __init__(self, case: dict[str, Any], compat: Compat) -> None:
        self.now = _time(case["nowMs"])
        self.pods = {raw["name"]: _pod(raw) for raw in case["pods"]}
        self.rules = InPlaceRules(
            only_in_place=case["updateMode"] == "InPlace",
            gate=case["inPlaceFeatureGate"],
            skip_budget=case["inPlaceSkipDisruptionBudget"],
            error_is_infeasible=not compat.has(RESIZE_ERROR_DEFERRED),
        )
        budget_rules = BudgetRules(
            min_replicas=case["minReplicas"],
            tolerance=case["evictionTolerance"],
            keep_below_minimum=case["inPlaceSkipDisruptionBudget"],
        )
        stated = {Creator(NAMESPACE, "ReplicaSet", "rs"): case["replicaSetReplicas"]}
        self.budget: Budget = build_budget(self.pods.values(), stated, budget_rules)
        self.clock = ResizeClock()
        self.targets = _targets(case["recommendation"])
        self.infeasible = {raw["name"]: _targets(raw.get("infeasibleAttempt")) for raw in case["pods"]}
        for raw in case["pods"]:
            if raw.get("lastInPlaceAttemptMs") is not None:
                self.clock.start(raw["name"], at=_time(raw["lastInPlaceAttemptMs"]))

    def run(self, step: dict[str, Any]) -> str:
        pod = self.pods[step["pod"]]
        group = self.budget.group_of(pod)
        waited = self.clock.waited(pod.metadata.uid, pod_resize_state(pod), now=self.now)
        fails = step.get("apiFails", False)
        if step["op"] == "decide":
            decision = decide(
                pod,
                group,
                self.rules,
                targets=self.targets,
                infeasible=self.infeasible[pod.metadata.name],
                waited=waited,
            )
            return decision.verdict.value
        if step["op"] == "canEvict":
            return str(may_evict(pod, group, waited=waited)).lower()
        if step["op"] == "inplace":
            if fails or group is None:
                return "error"
            self.budget.record_resize(pod)
            return "updated"
        if fails or not may_evict(pod, group, waited=waited):
            return "error"
        self.budget.record_eviction(pod)
        return "evicted"


@suite("vpa/in_place_restriction")
def in_place_restriction(case: dict[str, Any]) -> Iterable[str]:
    yield from _in_place(case, Compat(V1_7, exactly=True))


@suite("vpa-newer/in_place_restriction_master")
def in_place_restriction_1_8(case: dict[str, Any]) -> Iterable[str]:
    yield from _in_place(case, Compat(V1_8))


def _in_place(case: dict[str, Any], compat: Compat) -> Iterable[str]:
    world = _World(case, compat)
    for number, step in enumerate(case["steps"]):
        result = world.run(step)
        if result != step["result"]:
            yield f"steps[{number}] {step['op']} {step['pod']}: {result} instead of {step['result']}"


@suite("vpa-newer/resize_infeasible_error")
def resize_infeasible_error(case: dict[str, Any]) -> Iterable[str]:
    status = case.get("status")
    error: Exception | None = None
    if status is not None:
        error = api_error(status["code"], reason=status["reason"], details=status.get("details"))
    elif case["kind"] != "none":
        error = KubetideError("plain")
    if case["kind"] == "wrapped":
        wrapper = KubetideError("resizing a pod")
        wrapper.__cause__ = error
        error = wrapper
    found = never_fits(error)
    if found != case["infeasible"]:
        yield f"infeasible: {found} instead of {case['infeasible']}"
