"""Whole turns with memory: what is observed goes in, what was written, said and remembered comes out.

The reference is compared without kubetide's guard after the formulas and without its care after a restart.
"""

import asyncio
from collections.abc import Iterable, Iterator
from copy import deepcopy
from datetime import datetime, timedelta
from random import Random
from typing import Any

from conformance.adapters.hpa_normalize import recommendations, scale_events
from conformance.adapters.hpa_releases import compat_of
from conformance.adapters.hpa_replica_calc import read
from conformance.compare import differences
from conformance.exceptions import SATURATES
from conformance.registry import SUITE, NamedDifference, suite
from kubetide.api.objects.core import Pod
from kubetide.api.objects.events import Event
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaStatus, MetricSpec
from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.values.codec import convert
from kubetide.api.values.compat import Version
from kubetide.api.values.selectors import parse_selector
from kubetide.errors import InvalidInput, KubetideError, SelectorError
from kubetide.hpa.core import events
from kubetide.hpa.core.claims import Claims
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.decide import decide, metrics_of, needs_metrics
from kubetide.hpa.core.describe import ExternalQuery, ObjectQuery, PodsQuery, ResourceQuery, query_of
from kubetide.hpa.core.observation import (
    Conclusion,
    HpaProblem,
    Memory,
    Observation,
    Options,
    ProblemKind,
    ScaleDecision,
    ScaleView,
    computation_labels,
    reconciliation_labels,
)
from kubetide.hpa.core.pods import ReadinessRules
from kubetide.hpa.core.replicas import INT32_MAX
from kubetide.hpa.core.samples import ErrorKind, MetricFailure, Reading
from kubetide.hpa.core.status import same_status, status_body
from kubetide.hpa.scale_writer import ScaleWriter
from kubetide.kube.client.discovery import DiscoveredResource
from kubetide.kube.client.errors import ApiError, Conflict
from kubetide.kube.scale import ScaleTarget, group_of_reference

KNOWN_KINDS = {
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "ReplicaSet"),
    ("", "ReplicationController"),
    ("example.com", "Widget"),
}


@suite("hpa/reconcile", "hpa/upstream_reconcile", *(f"hpa-newer/reconcile_v1{minor}" for minor in (34, 35, 36, 37)))
def reconcile(case: dict[str, Any]) -> Iterable[str]:
    compat = compat_of(case[SUITE], case["config"]["featureGates"])
    options = _options(case["config"], compat)
    raw = case["hpa"]
    own = key_of(convert(raw, HorizontalPodAutoscaler))
    claims = Claims()
    claims.register(own)
    for other in case.get("otherHpas") or ():
        key = ObjectKey.parse(other["hpa"])
        claims.register(key)
        claims.claim(key, parse_selector(other["selector"]))
    memory = Memory()
    if "initialRecommendations" in case:
        memory = Memory(recommendations=recommendations(case["initialRecommendations"]))
    beyond = False
    for position, step in enumerate(case["steps"]):
        if "spec" in step:
            raw = {**raw, "spec": step["spec"]}
        if "generation" in step:
            raw = {**raw, "metadata": {**raw["metadata"], "generation": step["generation"]}}
        hpa = convert(raw, HorizontalPodAutoscaler)
        now = convert(step["now"], datetime)
        world = step["world"]
        decision = decide(_observe(hpa, world, claims, compat), memory, options, now=now)
        scale_error = None
        if decision.rescale:
            writes = _Writes(world)
            scale_error = asyncio.run(writes.rescale(decision.desired))
            if "scaleWrites" in step["expect"]:
                yield from differences(step["expect"]["scaleWrites"], writes.attempts, path="scaleWrites")
        outcome = conclude(decision, scale_error=scale_error)
        memory = outcome.memory
        found = _Step(hpa, decision, outcome, world, scale_error)
        beyond = beyond or any(one.proposal and one.proposal.replicas == INT32_MAX for one in decision.results)
        for line in found.differences(step["expect"], case):
            if beyond:
                raise NamedDifference(SATURATES)
            yield f"step {position} {line}"
        if found.written:
            # Messages are in kubetide's own words, so the next turn starts from kubetide's own status.
            raw = {**raw, "status": status_body(outcome.status)}


class _Step:
    """The effects of one turn, in the form of the golden data."""

    def __init__(
        self,
        hpa: HorizontalPodAutoscaler,
        decision: ScaleDecision,
        outcome: Conclusion,
        world: dict[str, Any],
        scale_error: str | None,
    ) -> None:
        self.hpa, self.decision, self.outcome = hpa, decision, outcome
        self.status_differs = not same_status(_named_types(hpa), outcome.status)
        save_error = world.get("statusUpdateError") if self.status_differs else None
        self.written = self.status_differs and save_error is None
        self.rescaled_to = decision.desired if decision.rescale and scale_error is None else None
        self.events: list[Event] = list(outcome.events)
        self.problem = outcome.problem
        if save_error is not None:
            self.events.append(events.failed(hpa, events.Reason.FAILED_UPDATE_STATUS, save_error))
            if outcome.save_error_counts:
                self.problem = HpaProblem(ProblemKind.UPDATE_STATUS, save_error)
        self.events.extend(outcome.events_after_save)

    def differences(self, expected: dict[str, Any], case: dict[str, Any]) -> Iterator[str]:
        yield from differences(expected["scaleUpdate"], self.rescaled_to, path="scaleUpdate")
        if self._averages_nothing(case) and self.status_differs != expected["statusUpdated"]:
            # The recorded average over no replicas never changes, kubetide's does: only the writes differ.
            yield from self._memory(expected["state"])
            return
        yield from differences(expected["statusUpdated"], self.written, path="statusUpdated")
        yield from differences(
            expected["errorKind"], str(self.problem.kind) if self.problem else None, path="errorKind"
        )
        yield from differences(
            [(event["type"], event["reason"]) for event in expected["events"]],
            [(event.type.value, event.reason) for event in self.events],
            path="events",
        )
        yield from differences(expected["monitor"], self._monitor(), path="monitor")
        if "desiredReplicasGauge" in expected and self.decision.compat.version >= Version(1, 35):
            yield from differences(expected["desiredReplicasGauge"], self.outcome.desired, path="desiredReplicasGauge")
        yield from self._memory(expected["state"])
        if self.written and "status" in expected:
            yield from self._status(expected["status"], case)

    def _averages_nothing(self, case: dict[str, Any]) -> bool:
        scale = self.decision.scale
        tagged = "division_by_zero_replicas" in case.get("tags", ()) or case[SUITE].startswith("hpa-newer/")
        return tagged and scale is not None and scale.observed == 0

    def _monitor(self) -> dict[str, Any]:
        action, error = reconciliation_labels(self.outcome, self.problem)
        return {
            "reconciliation": {"action": action, "error": error},
            "metricComputations": [
                {"metricType": kind, "action": action, "error": error}
                for kind, action, error in computation_labels(self.hpa, self.decision.results)
            ],
        }

    def _memory(self, expected: dict[str, Any]) -> Iterator[str]:
        memory = self.outcome.memory
        yield from differences(
            recommendations(expected["recommendations"]), memory.recommendations or (), path="recommendations"
        )
        yield from differences(scale_events(expected["scaleUpEvents"]), memory.ups, path="scaleUpEvents")
        yield from differences(scale_events(expected["scaleDownEvents"]), memory.downs, path="scaleDownEvents")

    def _status(self, expected: dict[str, Any], case: dict[str, Any]) -> Iterator[str]:
        found = deepcopy(status_body(self.outcome.status))
        wanted = {"currentReplicas": 0, "desiredReplicas": 0, **expected}
        wanted["conditions"] = _without_messages(wanted.get("conditions"))
        found["conditions"] = _without_messages(found["conditions"])
        wanted["currentMetrics"] = [dict(one) for one in wanted.get("currentMetrics") or ()]
        found["currentMetrics"] = found["currentMetrics"] or []
        for one, ours, spec in zip(
            wanted["currentMetrics"], found["currentMetrics"], metrics_of(self.hpa.spec), strict=False
        ):
            if one["type"] == "" and ours.get("type") == spec.type:
                one["type"] = spec.type
            if self._averages_nothing(case):
                _forget_average(one, ours)
        amounts = () if case.get("kind") == "memory_status" else ("value", "averageValue")
        yield from differences(wanted, found, quantities=amounts, drop_empty=True, path="status")


class _Writes:
    """The API server as one step of a case has it: how each attempt to write the scale ends."""

    def __init__(self, world: dict[str, Any]) -> None:
        error = world.get("scaleUpdateError")
        if error is not None:
            self._results = ["conflict" if "the object has been modified" in error else f"error:{error}"]
        else:
            self._results = world.get("scaleUpdateResults") or ["ok"]
        self._first, self._later = world["scale"], world.get("scaleAfterConflict")
        self._refresh_error = world.get("scaleRefreshError")
        self.attempts = 0

    async def rescale(self, replicas: int) -> str | None:
        """Write a count as production does, without waiting and without yielding to others; return the error."""
        writer = ScaleWriter(self, Random(0), field_manager="test", respect_others=False)
        try:
            await writer.write(self._target(self._first), replicas)
        except KubetideError as error:
            return str(error)
        return None

    async def set(self, target: ScaleTarget, replicas: int, *, field_manager: str | None = None) -> ScaleTarget:
        result = self._results[min(self.attempts, len(self._results) - 1)]
        self.attempts += 1
        if result == "ok":
            return target
        if result == "conflict":
            raise Conflict(409, "Conflict", "the object has been modified")
        raise ApiError(500, message=result.removeprefix("error:"))

    async def refresh(self, target: ScaleTarget) -> ScaleTarget:
        if self._refresh_error:
            raise ApiError(500, message=self._refresh_error)
        return self._target(self._later or self._first)

    @staticmethod
    def _target(raw: dict[str, Any]) -> ScaleTarget:
        resource = DiscoveredResource(
            group="apps", version="v1", plural="deployments", kind="Deployment", namespaced=True
        )
        return ScaleTarget(
            resource=resource,
            namespace="shop",
            name="web",
            spec_replicas=(raw.get("spec") or {}).get("replicas", 0),
            status_replicas=(raw.get("status") or {}).get("replicas", 0),
            selector="",
            raw=raw,
        )


def _options(config: dict[str, Any], compat: HpaCompat) -> Options:
    return Options(
        tolerance=config["tolerance"],
        compat=compat,
        downscale_window=timedelta(seconds=config["downscaleStabilizationSeconds"]),
        readiness=ReadinessRules(
            cpu_initialization_period=timedelta(seconds=config["cpuInitializationPeriodSeconds"]),
            initial_readiness_delay=timedelta(seconds=config["initialReadinessDelaySeconds"]),
        ),
        guard=False,
    )


def _observe(hpa: HorizontalPodAutoscaler, world: dict[str, Any], claims: Claims, compat: HpaCompat) -> Observation:
    ref = hpa.spec.scale_target_ref
    namespace = hpa.metadata.namespace
    try:
        group = group_of_reference(ref.api_version)
    except InvalidInput as error:
        return Observation(hpa=hpa, scale=None, scale_problem=HpaProblem(ProblemKind.INVALID_API_VERSION, str(error)))
    if (group, ref.kind) not in KNOWN_KINDS:
        return Observation(hpa=hpa, scale=None, scale_problem=HpaProblem(ProblemKind.NO_MAPPING, "unknown kind"))
    if "scaleError" in world:
        return Observation(hpa=hpa, scale=None, scale_problem=HpaProblem(ProblemKind.GET_SCALE, world["scaleError"]))
    raw = world["scale"]
    status = raw.get("status") or {}
    scale = ScaleView((raw.get("spec") or {}).get("replicas", 0), status.get("replicas", 0), status.get("selector", ""))
    if not needs_metrics(hpa, scale, compat):
        return Observation(hpa=hpa, scale=scale)
    try:
        selector = parse_selector(scale.selector)
    except SelectorError:
        return Observation(hpa=hpa, scale=scale)
    if not scale.selector:
        return Observation(hpa=hpa, scale=scale)
    pods = [
        pod
        for pod in (convert(one, Pod) for one in world.get("pods") or ())
        if pod.metadata.namespace == namespace and selector.matches(pod.metadata.labels)
    ]
    claims.claim(key_of(hpa), selector)
    readings = tuple(_reading(metric, namespace, scale.selector, world) for metric in metrics_of(hpa.spec))
    claimed = claims.claimants(namespace, pods)
    return Observation(hpa=hpa, scale=scale, pods=pods, claimed_by=claimed, readings=readings)


def _reading(metric: MetricSpec, namespace: str, selector: str, world: dict[str, Any]) -> Reading:
    try:
        match query_of(metric, namespace, selector):
            case ResourceQuery():
                found: dict[str, Any] = {
                    "response": world.get("resourceMetrics"),
                    "error": world.get("resourceMetricsError"),
                }
            case PodsQuery() as query:
                found = _custom(world, "Pod", "*", query.metric)
            case ObjectQuery() as query:
                group = group_of_reference(query.described.api_version)
                kind = f"{query.described.kind}.{group}" if group else query.described.kind
                name = namespace if kind == "Namespace" else query.described.name
                found = _custom(world, kind, name, query.metric)
            case ExternalQuery() as query:
                answers = world.get("externalMetrics") or ()
                found = next((one for one in answers if one["metric"] == query.metric), {"error": "not found"})
        if found.get("error") or found.get("response") is None:
            return MetricFailure(ErrorKind.FETCH_FAILED, found.get("error") or "no answer")
        return read(metric, found["response"])
    except MetricFailure as failure:
        return failure


def _custom(world: dict[str, Any], kind: str, name: str, metric: str) -> dict[str, Any]:
    for one in world.get("customMetrics") or ():
        if (one["groupKind"], one["name"], one["metric"]) == (kind, name, metric):
            return dict(one)
    return {"error": "not found"}


def _named_types(hpa: HorizontalPodAutoscaler) -> HpaStatus:
    """Give failed metrics of a recorded status the type that kubetide would have written."""
    status = status_body(hpa.status)
    for one, spec in zip(status["currentMetrics"] or (), metrics_of(hpa.spec), strict=False):
        if one.get("type") == "":
            one["type"] = spec.type
    return convert(status, HpaStatus)


def _without_messages(conditions: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name != "message"} for one in conditions or ()]


def _forget_average(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    for one in (wanted, found):
        for source in ("object", "external"):
            if source in one:
                one[source] = {**one[source], "current": {}}
