"""A recommendation explained on a terminal: `kubetide explain vpa NAMESPACE/NAME`.

`render` turns the trace of `recommender.core.trace` into text. Per container it shows what was measured, each
step from the percentile to the final amount, and a small histogram with the target marked.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubetide.api.values.quantity import readable, readable_bytes

BARS = " ▏▎▍▌▋▊▉█"
LINES = 12
WIDTH = 32
UNBOUNDED_MILLIS = 1e9
"""No machine has a million cores: the factor of a history without confidence is infinite, and is cut there."""


def render(trace: Mapping[str, Any]) -> str:
    """Return the explanation of one VPA as text."""
    return "\n".join(_lines(trace)) + "\n"


def _lines(trace: Mapping[str, Any]) -> Iterator[str]:
    yield f"VerticalPodAutoscaler {trace['namespace']}/{trace['name']}"
    yield f"  mode {trace['mode']}, {trace['pods']} pods, as of {trace['at'][:19]}Z"
    if trace.get("compat"):
        yield f"  rules of VPA {trace['compat']}"
    if trace.get("source") == "checkpoints":
        yield "  made from checkpoints: the running recommender was not asked, open memory windows are missing"
    for problem in trace.get("problems") or ():
        yield f"  ! {problem}"
    for condition in trace.get("conditions") or ():
        said = ": ".join(part for part in (condition.get("reason"), condition.get("message")) if part)
        yield f"  {condition['type']}={condition['status']}{f' ({said})' if said else ''}"
    if trace.get("leftAlone"):
        yield f"  left alone because an HPA scales on it: {', '.join(trace['leftAlone'])}"
    if trace.get("onlyUp"):
        yield f"  only rises (kubetide.io/scale-up-only): {', '.join(trace['onlyUp'])}"
    if trace.get("coordination"):
        yield from _coordination(trace["coordination"])
    for line in trace.get("ceilings") or ():
        yield f"  {line}"
    learned = trace.get("learned")
    if learned is not None:
        yield from _learned(learned)
    groups = trace.get("groups")
    if groups is not None:
        yield f"  sized by the node label {trace['scope']}: {len(groups)} groups"
    elif not trace["containers"]:
        yield "  no container has been seen yet"
    for value, containers in (groups or {"": trace["containers"]}).items():
        for container in containers:
            yield ""
            if groups is not None:
                yield f"nodes with {trace['scope']}={value}"
            yield from _container(container)


def _learned(learned: Mapping[str, Any]) -> Iterator[str]:
    settled = learned["share"] == (0.0 if learned["estimator"] == "vpa" else 1.0)
    share = "" if settled else f"; on the way there in steps of an hour, now {learned['share']:.0%} learned"
    yield f"  sizes by {learned['estimator']}, by {learned['by']}{share}"
    for name, one in learned["containers"].items():
        yield f"  learned of {name}: {one['hours']} hours, {one['cadence']}, in a fleet of {one['fleet']} containers"
        decided = one["cpu"]["request"] > 0
        if decided:
            yield f"    cpu     {_millis(one['cpu']['request'])}, a blend of what would have cost least:"
        else:
            when = "day (UTC)" if one["cadence"] == "daily" else "hour"
            yield f"    cpu     the plain target, until the {when} has ended and something is decided"
        ranked = sorted(one["cpu"]["rules"] if decided else (), key=lambda rule: (-rule["weight"], -rule["saves"]))
        for rule in ranked:
            cost = f"{rule['saves']:+.3f}" if rule["saves"] else "0"
            proposed = _millis(rule["proposal"])
            yield f"      {rule['weight']:>6.1%}  {rule['rule']:<40} {proposed:>8}  saves {cost} a decision"
        memory = one["memory"]
        text = f"    memory  request {readable_bytes(memory['request'])}"
        if "limit" in memory:
            text += f", limit {readable_bytes(memory['limit'])} apart from it, factor {memory['factor']:.2f}"
        else:
            base, movement = readable_bytes(int(memory["base"])), readable_bytes(int(memory["movement"]))
            text += f", which is the limit too: base {base}, usual movement {movement}"
        usual = f"{readable_bytes(memory['usualMean'])} on average, {readable_bytes(memory['usualPeak'])} at most"
        yield f"{text}; usually {usual}"
        if memory["distrust"] > 0.01:
            held = f", held at {readable_bytes(memory['oomFloor'])}" if memory["oomFloor"] else ""
            yield f"    distrust after OOM kills {memory['distrust']:.2f}{held}"


def _coordination(plan: Mapping[str, Any]) -> Iterator[str]:
    of = f"container {plan['container']}" if plan["container"] else "a pod"
    yield f"  cpu of {of} is sized for HorizontalPodAutoscaler {plan['hpa']} at {plan['percent']} %"
    if plan["problem"]:
        yield f"    ! {plan['problem']}"
    if plan["demandMillis"] is not None:
        hours = "1 hour" if plan["hours"] == 1 else f"{plan['hours']} hours"
        peak = f", the highest half hour of {hours} took {_millis(plan['peakMillis'])}"
        yield f"    all pods use {_millis(plan['demandMillis'])}{peak if plan['peakMillis'] is not None else ''}"
    if "podMillis" in plan:
        announced = sum(plan["planned"].values())
        to = f", {_millis(announced)} announced for {plan['count']} pods" if announced else ""
        yield f"    size     {_millis(plan['podMillis'])}{to}: {plan['why']}"
    if "ready" in plan:
        still = f"at rest for {_age(plan['restedSeconds'])}" if plan["restedSeconds"] else "changing"
        yield f"    count    {plan['ready']} ready, {still}, pods start in {plan['startSeconds']} s"


def _container(container: Mapping[str, Any]) -> Iterator[str]:
    yield f"container {container['name']}"
    if container["off"]:
        yield "  switched off by its policy: no recommendation"
    age = container["ageSeconds"]
    seen = "no CPU sample yet" if age is None else f"history of {_age(age)}"
    yield f"  {container['samples']} CPU samples, {seen}"
    if container.get("oomFloorBytes"):
        yield f"  OOM floor {readable_bytes(container['oomFloorBytes'])}"
    if near := container.get("nearOom"):
        yield f"  {near['rule']}: {near['pod']} needed {readable_bytes(near['needBytes'])} at {near['at'][:19]}Z"
    if signals := container.get("signals"):
        yield from _signals(signals)
    for resource, steps in container["resources"].items():
        yield from _resource(resource, steps, controlled=resource in container["controlled"])
    recommendation = container.get("recommendation")
    if recommendation is not None:
        limits = [f"{name} {_listed(container[name])}" for name in ("minAllowed", "maxAllowed") if container.get(name)]
        if limits:
            yield f"  policy   {', '.join(limits)}"
        for bound, words in (("lowerBound", "lower bound"), ("target", "target"), ("upperBound", "upper bound")):
            yield f"  {words:<12}{_listed(recommendation[bound])}"


def _signals(signals: Mapping[str, Any]) -> Iterator[str]:
    """Show what nodes knew of the last samples."""
    yield f"  signals of nodes for {signals['told']} of {signals['samples']} samples of the last loop"
    if signals["cpuPeakMillis"] != signals["cpuMeanMillis"]:
        peak, mean = _millis(signals["cpuPeakMillis"]), _millis(signals["cpuMeanMillis"])
        yield f"    cpu peaks {peak} instead of {mean} on average"
    if signals["throttled"]:
        yield f"    cpu throttled in {signals['throttled']}, which count as lower bounds"
    if signals["memoryNeedBytes"] != signals["memoryBytes"]:
        need, used = readable_bytes(signals["memoryNeedBytes"]), readable_bytes(signals["memoryBytes"])
        yield f"    memory {need} without page cache instead of {used} on average"


def _resource(resource: str, steps: Mapping[str, Any], *, controlled: bool) -> Iterator[str]:
    note = "" if controlled else "  (not controlled)"
    yield f"  {resource}  confidence {steps['confidence']:.3f}{note}"
    show = _millis if steps["unit"] == "millicores" else readable_bytes
    for bound in ("lower", "target", "upper"):
        one = steps["bounds"][bound]
        if one["bucket"] is None:
            yield f"    {bound:<7} no samples → minimum {show(one['minimum'])}"
            continue
        text = f"    {bound:<7} p{one['percentile'] * 100:g} in bucket {one['bucket']} = {show(one['measured'])}"
        text += f", +{steps['margin']:.0%} → {show(one['withMargin'])}"
        if bound != "target":
            by = one["multiplier"]
            text += f", × {'∞' if by is None else f'{by:.4g}'} → {show(one['multiplied'])}"
        if one["result"] != one["multiplied"]:
            text += f", at least {show(one['minimum'])}"
        yield text
    target = steps["bounds"]["target"]["measured"]
    yield from (f"    {line}" for line in histogram(steps["histogram"], show, target))


def histogram(buckets: Sequence[Sequence[float]], show: Any, mark: float) -> list[str]:
    """Return a text histogram of at most a dozen lines; the line that holds `mark` is pointed at."""
    if not buckets:
        return []
    step = -(-len(buckets) // LINES)
    joined = []
    for at in range(0, len(buckets), step):
        part = buckets[at : at + step]
        joined.append((part[0][0], part[-1][1], sum(bucket[2] for bucket in part)))
    tallest = max(share for _, _, share in joined)
    lines = []
    for start, end, share in joined:
        pointer = " ◀ target percentile" if start < mark <= end else ""
        lines.append(f"{show(start):>9} – {show(end):<9} {_bar(share / tallest)} {share:6.1%}{pointer}")
    return lines


def _bar(share: float) -> str:
    eighths = round(share * WIDTH * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (BARS[rest] if rest else "")).ljust(WIDTH)


def _millis(value: float) -> str:
    if value >= UNBOUNDED_MILLIS:
        return "unbounded"
    return f"{value:.0f}m" if value < 10_000 else f"{value / 1000:.1f}"


def _age(seconds: float) -> str:
    if seconds >= 86400:
        return f"{seconds / 86400:.1f} days"
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"


def _listed(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {readable(name, text)}" for name, text in sorted(amounts.items())) or "nothing"
