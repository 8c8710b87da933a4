"""`vpa/eviction_restriction`: the eviction budget of the updater."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from conformance.registry import suite
from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.vpa.updater.core.budget import Budget, BudgetRules, Creator, build_budget
from kubetide.vpa.updater.core.inplace import may_evict


def _pod(raw: dict[str, Any]) -> Pod:
    owners = []
    if raw.get("ownerKind"):
        owner: dict[str, Any] = {"kind": raw["ownerKind"], "name": raw["ownerName"]}
        if raw.get("ownerIsController") is not None:
            owner["controller"] = raw["ownerIsController"]
        owners.append(owner)
    metadata = {"name": raw["name"], "namespace": raw["namespace"], "ownerReferences": owners}
    return convert({"metadata": metadata, "status": {"phase": raw["phase"]}}, Pod)


def _stated(controllers: Iterable[dict[str, Any]]) -> dict[Creator, int | None]:
    return {
        Creator(c["namespace"], c["kind"], c["name"]): c.get("numberReady")
        if c["kind"] == "DaemonSet"
        else c.get("specReplicas")
        for c in controllers
        if c["exists"]
    }


def _can_evict(budget: Budget, pod: Pod) -> bool:
    return may_evict(pod, budget.group_of(pod), waited=timedelta())


def _attempt(budget: Budget, pod: Pod, *, fails: bool) -> str:
    if budget.group_of(pod) is None:
        return "notReplicated"
    if not _can_evict(budget, pod):
        return "budgetExceeded"
    if fails:
        return "apiError"
    budget.record_eviction(pod)
    return "evicted"


@suite("vpa/eviction_restriction")
def eviction_restriction(case: dict[str, Any]) -> Iterable[str]:
    pods = {raw["name"]: _pod(raw) for raw in case["pods"]}
    rules = BudgetRules(
        min_replicas=case.get("vpaMinReplicas") or case["minReplicas"], tolerance=case["evictionTolerance"]
    )
    budget = build_budget(pods.values(), _stated(case["controllers"]), rules)
    initial = [_can_evict(budget, pods[raw["name"]]) for raw in case["pods"]]
    if initial != case["initialCanEvict"]:
        yield f"initialCanEvict: {initial} instead of {case['initialCanEvict']}"
    events = 0
    for number, attempt in enumerate(case["attempts"]):
        pod = pods[attempt["pod"]]
        can = _can_evict(budget, pod)
        result = _attempt(budget, pod, fails=attempt.get("apiFails", False))
        events += result == "evicted"
        if (can, result) != (attempt["canEvict"], attempt["result"]):
            yield f"attempts[{number}]: {can}, {result} instead of {attempt['canEvict']}, {attempt['result']}"
    if events != case["eventsEmitted"]:
        yield f"eventsEmitted: {events} instead of {case['eventsEmitted']}"
