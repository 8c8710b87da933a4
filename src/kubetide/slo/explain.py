"""The trace of a node's overcommit for a person: the sum, line by line, with the age of what went in."""

from typing import Any

from kubetide.api.values.quantity import parse_quantity, readable_bytes

Raw = dict[str, Any]

_LINES = (
    ("capacity", "  ", "capacity"),
    ("margin", "- ", "margin kept back by the reclaim threshold"),
    ("systemUsed", "- ", "system (measured with host applications, or reserved if that is more)"),
    ("systemReserved", "- ", "system (reserved)"),
    ("podsUsed", "- ", "high-priority pods (used)"),
    ("podsRequested", "- ", "high-priority pods (requested)"),
    ("podsMaxUsedRequested", "- ", "high-priority pods (the larger of used and requested)"),
)
_TERMS = {
    "usage": ("capacity", "margin", "systemUsed", "podsUsed"),
    "request": ("capacity", "margin", "systemReserved", "podsRequested"),
    "maxUsageRequest": ("capacity", "margin", "systemUsed", "podsMaxUsedRequested"),
}
_POLICIES = {"usage": "usage", "request": "request", "maxUsageRequest": "the larger of usage and request"}
_RESOURCES = (("cpu", "kubernetes.io/batch-cpu"), ("memory", "kubernetes.io/batch-memory"))


def render(trace: Raw) -> str:
    """Return the explanation of a node."""
    lines = [f"Node {trace['node']}", *_inputs(trace), ""]
    items = {item["resource"]: item for item in trace["items"]}
    sums = trace.get("sums")
    for resource, name in _RESOURCES:
        item = items.get(name)
        if item is not None:
            lines += [*_sum(resource, item, sums, trace["strategy"]), ""]
    for item in trace["items"]:
        if item["resource"].startswith("kubernetes.io/mid-"):
            amount = _shown_item(item["resource"], item["quantity"]) if item["quantity"] else "none"
            lines.append(f"{item['resource']}: {amount}  ({item['reason']})")
    return "\n".join(lines).rstrip()


def _inputs(trace: Raw) -> list[str]:
    age = trace["reportAgeSeconds"]
    strategy = trace["strategy"]
    limit = strategy.get("degradeTimeMinutes")
    reported = "never" if age is None else f"{age:.0f} s ago (too old after {limit} min)"
    lines = [
        f"  colocation    {'enabled' if trace['enabled'] else 'disabled'} (rules of Koordinator {trace['compat']})",
        f"  calculated    {trace['at'][:19]}Z",
        f"  last report   {reported}",
        f"  pods          {trace['pods']} on the node, {trace['reportedPods']} in the report",
    ]
    if lingering := trace.get("lingering"):
        held = f"cpu {_shown('cpu', lingering['cpu'])} and memory {_shown('memory', lingering['memory'])}"
        lines.append(f"  releasing     {held} of pods that have left still count as used")
    ages = trace.get("ages")
    if ages:
        heard = ", ".join(f"{name} {age:.0f} s" for name, age in ages.items())
        lines.append(f"  last heard    {heard} ago")
    lines += [f"  problem       {problem}" for problem in trace.get("problems", ())]
    return lines


def _sum(resource: str, item: Raw, sums: Raw | None, strategy: Raw) -> list[str]:
    lines = [f"{item['resource']}"]
    if sums is None or item["reset"]:
        return [*lines, f"  nothing is overcommitted: {item['reason']}"]
    policy = strategy.get(f"{resource}CalculatePolicy") or "usage"
    policy = policy if policy in _TERMS and (resource, policy) != ("cpu", "request") else "usage"
    lines[0] += f"  (policy {_POLICIES[policy]})"
    for term, sign, text in _LINES:
        if term in _TERMS[policy]:
            lines.append(f"  {sign}{_shown(resource, sums[term].get(resource, '0')):>14}  {text}")
    lines.append(f"  = {_shown_item(item['resource'], item['quantity']):>14}  calculated")
    if item["onNode"] is not None and parse_quantity(item["onNode"]) != parse_quantity(item["quantity"]):
        amount = _shown_item(item["resource"], item["onNode"])
        lines.append(f"    {amount:>14}  on the node, after normalization and other schedulers")
    for zone, amount in item["zones"].items():
        lines.append(f"    {_shown_item(item['resource'], amount):>14}  in zone {zone}")
    return lines


def _shown(resource: str, text: str) -> str:
    return f"{parse_quantity(text).milli}m" if resource == "cpu" else readable_bytes(float(parse_quantity(text)))


def _shown_item(resource: str, text: str) -> str:
    """Return an amount of batch or mid resources: cpu is counted in whole milli-CPU there."""
    amount = parse_quantity(text)
    return f"{amount.value}m" if resource.endswith("cpu") else readable_bytes(amount.value)
