"""How a simulated workload is doing, in one line with its remedy: what serves its users badly first, waste last.

A simulation knows what no cluster can tell: requests that nobody took, and how slow the others were. Everything else
is judged by `kubetide.verdicts`, as `kubetide explain` and `kubetide doctor` do it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubetide.dashboard.core.bars import cores, memory
from kubetide.dashboard.core.model import NOTHING, Amounts, Judgement, Tone
from kubetide.verdicts.core.verdict import Finding, Severity

SLOW_SECONDS = 1.0
OOM_LOOP = 3
"""OOM kills within an hour that are more than an accident."""
_WASTE = 0.3
"""Using less than this share of what is asked for is waste worth naming."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a verdict is made from."""

    key: str
    kind: str = "deployment"
    ready: int = 0
    pods: int = 0
    rate: float = 0.0
    latency: float = 0.0
    oom_kills: int = 0
    """In the last hour."""
    batch_cores: float = 0.0
    """What it asks for of overcommitted CPU."""
    cpu: Amounts = NOTHING
    memory: Amounts = NOTHING
    hpa: dict[str, Any] | None = None
    vpa: dict[str, Any] | None = None


def verdict_of(facts: Facts, findings: Sequence[Finding] = ()) -> Judgement:
    """Return the first thing that is wrong, or what keeps it right; `findings` are those of `kubetide.verdicts`."""
    for judge in (_down, _killed, _slow):
        if (found := judge(facts)) is not None:
            return found
    problem = next((each for each in findings if each.severity.is_problem), None)
    if problem is not None:
        tone: Tone = "bad" if problem.severity is Severity.ERROR else "warn"
        return Judgement(tone=tone, text=problem.line, remedy=problem.remedy)
    return _wasteful(facts) or _fine(facts)


def _killed(facts: Facts) -> Judgement | None:
    if not facts.oom_kills:
        return None
    loops = facts.oom_kills >= OOM_LOOP
    times = "once" if facts.oom_kills == 1 else f"{facts.oom_kills} times"
    text = f"{'OOM LOOP: ' if loops else ''}OOM-killed {times} in the last hour"
    if facts.vpa is not None and facts.cpu.recommended is not None:
        return Judgement(tone="plain", text=f"{text}; sized by its VPA: {_recommendation(facts)} in all")
    if facts.vpa is not None:
        return Judgement(tone="bad", text=f"{text}; its VPA has no recommendation yet", remedy="wait for its VPA")
    namespace, _, name = facts.key.partition("/")
    where = f"{facts.kind}/{name} in {namespace}"
    remedy = f"raise the memory limit of {where} or give it a VPA; a leak needs a new release"
    return Judgement(tone="bad" if loops else "warn", text=text, remedy=remedy)


def _down(facts: Facts) -> Judgement | None:
    if facts.ready or not facts.rate:
        return None
    why = f" after {facts.oom_kills} OOM kills in an hour" if facts.oom_kills else ""
    text = f"DOWN: none of {facts.pods} pods is ready{why}, {facts.rate:.0f} requests a second are lost"
    if facts.oom_kills:
        return Judgement(tone="bad", text=text, remedy=f"raise the memory limit of {facts.key}, or give it a VPA")
    return Judgement(tone="bad", text=text, remedy=f"kubectl describe {facts.kind} {facts.key.partition('/')[2]}")


def _slow(facts: Facts) -> Judgement | None:
    if not facts.rate or facts.latency < SLOW_SECONDS:
        return None
    text = f"SLOW: {facts.latency:.0f} s for a request with {facts.ready} pods ready"
    if facts.hpa is None:
        name = facts.key.partition("/")[2]
        return Judgement(
            tone="bad", text=text, remedy=f"kubectl autoscale {facts.kind} {name} --cpu-percent=60 --max=10"
        )
    if _condition_is(facts.hpa, "ScalingLimited", "True") and _reason(facts.hpa) == "TooManyReplicas":
        return Judgement(tone="bad", text=f"{text}, and its autoscaler may add no more", remedy=_more(facts))
    return Judgement(
        tone="warn", text=f"{text}; its autoscaler adds pods", remedy="a lower target leaves more headroom"
    )


def _wasteful(facts: Facts) -> Judgement | None:
    used, asked = facts.cpu.used, facts.cpu.asked
    if facts.hpa is not None or asked < 0.5 or used is None or used > _WASTE * asked:
        return None
    text = f"WASTEFUL: uses {cores(facts.cpu.used)} of {cores(facts.cpu.asked)} cores"
    if facts.vpa is None:
        return Judgement(tone="warn", text=text, remedy="give it a VPA")
    if facts.cpu.recommended is None:
        return Judgement(tone="plain", text=f"{text}; its VPA has no recommendation yet")
    mode = ((facts.vpa.get("spec") or {}).get("updatePolicy") or {}).get("updateMode") or "Recreate"
    if mode in ("Off", "Initial"):
        remedy = "set updateMode to InPlaceOrRecreate, or replace its pods"
        return Judgement(tone="warn", text=f"{text}; its VPA only advises", remedy=remedy)
    return Judgement(tone="plain", text=f"{text}; its VPA is going to {_recommendation(facts)}")


def _fine(facts: Facts) -> Judgement:
    if facts.hpa is not None:
        return Judgement(tone="good", text=f"sized by its HPA: {_scaling(facts)}")
    if facts.vpa is not None and facts.cpu.recommended is not None:
        return Judgement(tone="good", text=f"sized by its VPA: {_recommendation(facts)} in all")
    if facts.vpa is not None:
        return Judgement(tone="plain", text="its VPA has no recommendation yet")
    if facts.batch_cores:
        text = f"batch work on {cores(facts.batch_cores)} overcommitted cores"
        return Judgement(tone="good", text=text)
    return Judgement(tone="good", text="as its manifest has it")


def _scaling(facts: Facts) -> str:
    able = _condition(facts.hpa, "AbleToScale") or {}
    if able.get("reason") == "ScaleDownStabilized":
        return "held up by its stabilization window"
    spec = (facts.hpa or {}).get("spec") or {}
    if facts.pods <= int(spec.get("minReplicas") or 1):
        return "at its smallest size"
    if _condition_is(facts.hpa, "ScalingLimited", "True"):
        return "changes as fast as it may"
    return "near its target"


def _recommendation(facts: Facts) -> str:
    held = facts.memory.recommended
    return f"{cores(facts.cpu.recommended or 0.0)} cores" + (f", {memory(held)}" if held is not None else "")


def _more(facts: Facts) -> str:
    most = ((facts.hpa or {}).get("spec") or {}).get("maxReplicas") or 1
    name = ((facts.hpa or {}).get("metadata") or {}).get("name")
    return f"raise maxReplicas of hpa {name} above {most}"


def _condition(obj: dict[str, Any] | None, kind: str) -> dict[str, Any] | None:
    conditions: list[dict[str, Any]] = ((obj or {}).get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == kind), None)


def _condition_is(obj: dict[str, Any] | None, kind: str, status: str) -> bool:
    return (_condition(obj, kind) or {}).get("status") == status


def _reason(obj: dict[str, Any] | None) -> str:
    return str((_condition(obj, "ScalingLimited") or {}).get("reason"))
