"""The trace of a decision, for a person: what was seen, what each metric asked for, which rule decided.

Rules have names for programs; people get words for what a rule did. Equal rows of the history are one row with a count.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from kubetide.api.values.quantity import plain_number, readable

_RULES = {
    "ReadyForNewScale": "no window holds it",
    "ScaleDownStabilized": "held up by the scale-down window",
    "ScaleUpStabilized": "held down by the scale-up window",
    "DesiredWithinRange": "within the bounds",
    "TooFewReplicas": "raised to the minimum",
    "TooManyReplicas": "cut to the maximum",
    "ScaleUpLimit": "cut to the scale-up rate",
    "ScaleDownLimit": "slowed to the scale-down rate",
    "ScalingDisabled": "switched off at 0 replicas",
    "AboveMaximum": "above the maximum",
    "BelowMinimum": "below the minimum",
    "FailedGetScale": "the scale of the target could not be read",
    "compute_replicas": "the metrics give no size",
    "InvalidMetricValue": "a value that cannot be true",
    "InvalidMetricNoReadyPods": "no ready pod to multiply by",
    "InvalidMetricStale": "the usage is too old",
}
_RESOURCES = ("Resource", "ContainerResource")
_DIRECTIONS = {"scaleUp": "Scale up", "scaleDown": "Scale down"}


def render(trace: dict[str, Any]) -> str:
    """Return the lines that `kubetide explain hpa` prints. Missing parts of the trace are passed over."""
    return "\n".join(_lines(trace))


def _lines(trace: dict[str, Any]) -> Iterable[str]:
    autoscaler, target = trace.get("autoscaler") or {}, trace.get("target") or {}
    name = f"{autoscaler.get('namespace')}/{autoscaler.get('name')}"
    yield f"HorizontalPodAutoscaler {name}, decided at {_time(trace.get('at'))}"
    yield f"  Target      {target.get('kind')} {target.get('name')}: {_size(target)}"
    yield f"  Bounds      {autoscaler.get('minReplicas')} to {autoscaler.get('maxReplicas')} replicas"
    yield f"  Acting      {_acting(trace)}"
    if trace.get("compat"):
        yield f"  Rules       of Kubernetes {trace['compat']} (--compat)"
    if trace.get("nextReconcile"):
        yield f"  Next        {_time(trace['nextReconcile'])}"
    yield ""
    yield from _metrics(trace)
    yield from _steps(trace)
    yield from _conditions(trace)
    yield from _history(trace)


def _size(target: dict[str, Any]) -> str:
    if target.get("replicas") is None:
        return "its scale could not be read"
    wanted, pods = target["replicas"], target.get("pods")
    return (
        f"{wanted} {'replica' if wanted == 1 else 'replicas'} wanted, {target.get('observedReplicas')} observed, "
        f"{pods} {'pod matches' if pods == 1 else 'pods match'} {target.get('selector') or 'no selector'}"
    )


def _acting(trace: dict[str, Any]) -> str:
    if trace.get("recomputed"):
        return "no, this was recomputed just now"
    if trace.get("acts", True):
        return "yes"
    return f"no: {trace.get('stance') or 'not asked to'}"


def _metrics(trace: dict[str, Any]) -> Iterable[str]:
    metrics = trace.get("metrics") or []
    if not metrics:
        return
    yield "Metrics"
    for position, metric in enumerate(metrics):
        mark = "*" if position == trace.get("winner") else " "
        target = f", target {metric['target']}" if metric.get("target") else ""
        yield f"{mark} {position + 1}. {metric.get('description')}{target}"
        if metric.get("failed"):
            yield f"       failed: {metric['failed']}"
        if "replicas" in metric:
            yield f"       {_value(metric)}: proposes {metric['replicas']} replicas"
            yield f"       {_arithmetic(metric)}"
        if metric.get("pods"):
            yield f"       pods: {_groups(metric['pods'])}"
        if metric.get("defect"):
            yield f"       not to be trusted for shrinking: {metric['defect']}"
    yield ""


def _value(metric: dict[str, Any]) -> str:
    if metric.get("utilization") is not None:
        return f"{metric['utilization']}% used ({_amount(metric)} on average)"
    return f"value {_amount(metric)}"


def _amount(metric: dict[str, Any]) -> str:
    """Return the value as people read it: bytes of memory, millicores, and plain numbers of anything else."""
    resource, value = str(metric.get("description") or "").partition(" ")[0], str(metric.get("value"))
    return readable(resource, value) if metric.get("type") in _RESOURCES else plain_number(value)


def _arithmetic(metric: dict[str, Any]) -> str:
    text = f"ratio {_short(metric.get('ratio'))}"
    if metric.get("filledRatio") is not None:
        text += f", {_short(metric['filledRatio'])} once unknown pods are filled in"
    if metric.get("multiplier") is not None:
        text += f", times {metric['multiplier']}"
    return f"{text} ({metric.get('rule')})"


def _groups(pods: dict[str, Any]) -> str:
    parts = [f"{pods.get('ready', 0)} ready"]
    for name in ("unready", "missing", "ignored"):
        group = pods.get(name) or {}
        if group.get("count"):
            names = ", ".join(group.get("names") or [])
            more = ", …" if group["count"] > len(group.get("names") or []) else ""
            parts.append(f"{group['count']} {name} ({names}{more})")
    return ", ".join(parts)


def _steps(trace: dict[str, Any]) -> Iterable[str]:
    yield "Decision"
    if trace.get("problem"):
        yield f"  Problem     {trace['problem'].get('message')}"
    if trace.get("passedOver"):
        yield f"  Rollout     not counted: {', '.join(trace['passedOver'])}"
    if headroom := trace.get("headroom"):
        yield from _headroom(headroom)
    elif silent := trace.get("headroomSilent"):
        yield f"  Headroom    the plain rule holds: {silent}"
    if announced := trace.get("announced"):
        yield f"  Announced   at least {announced} replicas, which the VPA waits for before it makes pods smaller"
    if trace.get("proposal") is not None:
        yield f"  Proposal    {trace['proposal']} replicas, now {trace.get('current')}"
    if stabilized := trace.get("stabilized"):
        held = stabilized.get("heldAfterRestart")
        note = f", {held} held after a restart" if held is not None else ""
        yield f"  Windows     {stabilized['replicas']} ({_rule(stabilized['reason'])}{note})"
    if limited := trace.get("limited"):
        limit = f", limit {limited['limit']}" if limited.get("limit") is not None else ""
        yield f"  Limits      {limited['replicas']} ({_rule(limited['reason'])}{limit})"
    if behavior := trace.get("behavior"):
        for direction, rules in behavior.items():
            policies = "; ".join(rules.get("policies") or []) or "no policy"
            window = rules.get("stabilizationWindowSeconds")
            name = _DIRECTIONS.get(direction, direction)
            yield f"  {name:11} {rules.get('selectPolicy')} of {policies}; window {window}s"
    verb = "scale" if trace.get("rescale") else "keep"
    why = f": {trace['why']}" if trace.get("rescale") and trace.get("why") else ""
    yield f"  Conclusion  {verb} {_arrow(trace)} ({_rule(trace.get('rule'))}){why}"
    yield ""


def _headroom(headroom: dict[str, Any]) -> Iterable[str]:
    """Return the forecast, how wrong forecasts were, what that comes to, and whether it counts."""
    forecasters = headroom.get("forecasters") or {}
    loudest = sorted(forecasters.items(), key=lambda one: -one[1])[:2]
    voices = ", ".join(f"{name} {share:.0%}" for name, share in loudest)
    yield (
        f"  Headroom    demand {_short(headroom.get('demand'))} full replicas, forecast "
        f"{_short(headroom.get('forecast'))} ({voices}), usual error {headroom.get('typicalError', 0):.1%}"
    )
    yield (
        f"              needs {headroom.get('level')}, learned count {headroom.get('replicas')}, metrics ask for "
        f"{headroom.get('plainProposal')} ({headroom.get('rule')}; a peak is held {headroom.get('holdSeconds')}s)"
    )
    against = f"cost {_short(headroom.get('cost'))} against {_short(headroom.get('plainCost'))} of the plain rule"
    yield f"              {'in force' if headroom.get('proven') else 'silent, not proven'}: {against}"
    yield f"              learned {headroom.get('origin')}"


def _arrow(trace: dict[str, Any]) -> str:
    if trace.get("rescale"):
        return f"{trace.get('current')} -> {trace.get('desired')}"
    current = trace.get("current")
    return "as it is" if current is None else f"{current}"


def _conditions(trace: dict[str, Any]) -> Iterable[str]:
    conditions = trace.get("conditions") or []
    if not conditions:
        return
    yield "Conditions"
    for one in conditions:
        yield f"  {one.get('type'):15} {one.get('status'):6} {one.get('reason')}: {one.get('message')}"
    yield ""


def _history(trace: dict[str, Any]) -> Iterable[str]:
    if trace.get("recomputed"):
        yield "History is missing: no running controller answered, so windows and rate limits start empty here."
        return
    history = trace.get("history") or []
    if not history:
        return
    yield "History (newest first)"
    for _, rows in groupby(reversed(history), key=_told):
        alike = list(rows)
        newest, oldest = alike[0], alike[-1]
        when = _time(newest.get("at")) if len(alike) == 1 else _span(oldest.get("at"), newest.get("at"))
        wrote, sizes, proposal, text = _told(newest)
        count = f"{len(alike)}x" if len(alike) > 1 else ""
        yield f"  {when:<33} {count:>4}  {wrote:5}  {sizes:>10}  asked for {proposal:>3}  {text}".rstrip()


def _told(entry: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return what a row of the history says, without its time."""
    sizes = f"{_dash(entry.get('current'))} -> {_dash(entry.get('desired'))}"
    said = "; ".join(filter(None, (_rule(entry.get("rule")), entry.get("problem") or entry.get("why"))))
    return ("wrote" if entry.get("wrote") else "", sizes, _dash(entry.get("proposal")), said)


def _rule(name: Any) -> str:
    """Return in words what a rule did."""
    return _RULES.get(str(name), str(name)) if name else "no rule"


def _time(at: Any) -> str:
    """Return a time to the second: `2026-01-05 06:19:07Z`."""
    text = str(at)
    return f"{text[:10]} {text[11:19]}Z" if len(text) > 19 and text[10] == "T" else text


def _span(oldest: Any, newest: Any) -> str:
    return f"{_time(oldest)} to {_time(newest)[11:]}"


def _short(number: Any) -> str:
    return f"{number:.4g}" if isinstance(number, int | float) else str(number)


def _dash(value: Any) -> str:
    return "–" if value is None else str(value)
