"""A decision as plain data: every input, which metric won, which rule limited."""

import math
from datetime import datetime
from typing import Any

import msgspec

from kubetide.api.values.quantity import milli_text
from kubetide.hpa.core.behavior import Rules
from kubetide.hpa.core.describe import target_text
from kubetide.hpa.core.evaluate import MetricResult
from kubetide.hpa.core.observation import Conclusion, HpaProblem, Memory, ScaleDecision
from kubetide.hpa.core.replicas import Proposal

MOST_NAMES = 20
"""Names shown of each group of pods; the rest is counted."""


def trace_of(decision: ScaleDecision, outcome: Conclusion, problem: HpaProblem | None) -> dict[str, Any]:
    """Return all that led to a decision and what followed."""
    hpa = decision.hpa
    spec, target = hpa.spec, hpa.spec.scale_target_ref
    return {
        "at": shown_time(decision.at),
        "compat": str(decision.compat.version),
        "autoscaler": {
            "namespace": hpa.metadata.namespace,
            "name": hpa.metadata.name,
            "generation": hpa.metadata.generation,
            "minReplicas": 1 if spec.min_replicas is None else spec.min_replicas,
            "maxReplicas": spec.max_replicas,
        },
        "target": {
            "apiVersion": target.api_version,
            "kind": target.kind,
            "name": target.name,
            "replicas": decision.scale.replicas if decision.scale else None,
            "observedReplicas": decision.scale.observed if decision.scale else None,
            "selector": decision.scale.selector if decision.scale else None,
            "pods": decision.pods_seen,
        },
        "metrics": [_metric(result) for result in decision.results],
        "winner": decision.choice.winner if decision.choice else None,
        "guarded": decision.choice.guarded if decision.choice else False,
        "proposal": decision.proposal,
        "headroom": _headroom(decision),
        "headroomSilent": decision.headroom_silent or None,
        "stabilized": _stabilized(decision),
        "limited": _limited(decision),
        "behavior": _rules(decision.rules),
        "memory": _memory(outcome.memory),
        "announced": decision.announced,
        "passedOver": sorted(decision.passed_over)[:MOST_NAMES],
        "current": decision.current,
        "desired": decision.desired,
        "rescale": decision.rescale,
        "rule": decision.rule,
        "why": decision.why,
        "problem": {"kind": str(problem.kind), "message": problem.message} if problem else None,
        "conditions": [
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in outcome.status.conditions or ()
        ],
    }


class HistoryLine(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a decision once a newer one is there: small, because there are many."""

    at: datetime
    current: int | None
    proposal: int | None
    stabilized: int | None
    desired: int
    rule: str
    why: str
    wrote: bool
    problem: str | None


def line_of(decision: ScaleDecision, problem: HpaProblem | None, *, wrote: bool) -> HistoryLine:
    """Return the line of the history that a decision leaves."""
    return HistoryLine(
        at=decision.at,
        current=decision.current,
        proposal=decision.proposal,
        stabilized=decision.stabilized.replicas if decision.stabilized else None,
        desired=decision.desired,
        rule=decision.rule,
        why=decision.why,
        wrote=wrote,
        problem=problem.message if problem else None,
    )


def shown_line(line: HistoryLine) -> dict[str, Any]:
    """Return a line of the history as JSON has it."""
    return {**msgspec.structs.asdict(line), "at": shown_time(line.at)}


def shown_time(moment: datetime) -> str:
    """Return a time as JSON has it, to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _metric(result: MetricResult) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": result.type,
        "description": result.description,
        "target": target_text(result.spec),
        "status": result.status,
        "failed": str(result.failure) if result.failure else None,
        "failureKind": str(result.failure.kind) if result.failure else None,
        "defect": result.defect.text if result.defect else None,
        "refused": list(result.refused[:MOST_NAMES]),
    }
    if result.proposal is not None:
        shown |= _proposal(result.proposal)
    return shown


def _proposal(proposal: Proposal) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "replicas": proposal.replicas,
        "ratio": _number(proposal.ratio),
        "filledRatio": None if proposal.filled_ratio is None else _number(proposal.filled_ratio),
        "value": milli_text(proposal.value),
        "utilization": proposal.utilization,
        "multiplier": proposal.multiplier,
        "rule": proposal.rule,
        "samples": len(proposal.used) or None,
    }
    if (groups := proposal.groups) is not None:
        shown["pods"] = {
            "ready": groups.ready,
            "unready": _names(groups.unready),
            "missing": _names(groups.missing),
            "ignored": _names(groups.ignored),
        }
    return shown


def _headroom(decision: ScaleDecision) -> dict[str, Any] | None:
    learned = decision.learned
    if learned is None or decision.choice is None:
        return None
    advice = learned.advice
    return {
        "mode": learned.mode.value,
        "origin": learned.origin,
        "proven": advice.proven,
        "demand": round(learned.demand, 3),
        "forecast": round(advice.forecast.value, 3),
        "forecasters": {name: round(share, 3) for name, share in advice.forecast.weights.items()},
        "typicalError": round(advice.typical_error, 4),
        "level": advice.level,
        "replicas": advice.replicas,
        "plainProposal": decision.choice.replicas,
        "rule": advice.rule,
        "holdSeconds": advice.hold_steps * learned.step_seconds,
        "backlogSeconds": round(advice.backlog_seconds, 1),
        "cost": round(advice.cost, 3),
        "plainCost": None if advice.plain_cost is None else round(advice.plain_cost, 3),
    }


def _stabilized(decision: ScaleDecision) -> dict[str, Any] | None:
    found = decision.stabilized
    if found is None:
        return None
    return {
        "replicas": found.replicas,
        "reason": found.reason,
        "low": found.low,
        "high": found.high,
        "heldAfterRestart": decision.held,
    }


def _limited(decision: ScaleDecision) -> dict[str, Any] | None:
    found = decision.limited
    return None if found is None else {"replicas": found.replicas, "reason": found.reason, "limit": found.limit}


def _rules(rules: Rules | None) -> dict[str, Any] | None:
    if rules is None:
        return None
    return {
        direction: {
            "stabilizationWindowSeconds": one.stabilization_window_seconds,
            "selectPolicy": one.select_policy,
            "policies": [f"{p.value} {p.type} per {p.period_seconds}s" for p in one.policies or ()],
        }
        for direction, one in (("scaleUp", rules.up), ("scaleDown", rules.down))
    }


def _memory(memory: Memory) -> dict[str, Any]:
    recent = (memory.recommendations or ())[-MOST_NAMES:]
    return {
        "recommendations": [{"replicas": one.replicas, "at": shown_time(one.at)} for one in recent],
        "recommendationsKept": len(memory.recommendations or ()),
        "scaleUps": [{"change": one.change, "at": shown_time(one.at)} for one in memory.ups[-MOST_NAMES:]],
        "scaleDowns": [{"change": one.change, "at": shown_time(one.at)} for one in memory.downs[-MOST_NAMES:]],
    }


def _names(names: tuple[str, ...]) -> dict[str, Any]:
    return {"count": len(names), "names": list(names[:MOST_NAMES])}


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
