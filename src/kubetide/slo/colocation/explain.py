"""Why a pod is a batch, mid or prod pod: the profiles noted on it, its class, and what its resources became."""

from typing import Any

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import COLOCATION_PROFILES, NAMESPACES, PODS
from kubetide.api.qos import qos
from kubetide.clock import Clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.slo.colocation.core.match import Matches, matching
from kubetide.slo.colocation.core.mutate import APPLIED, noted
from kubetide.slo.colocation.settings import ColocationSettings

Raw = dict[str, Any]
_EXTENDED = (qos.BATCH_CPU, qos.BATCH_MEMORY, qos.MID_CPU, qos.MID_MEMORY)


async def recompute(client: Client, clock: Clock, settings: ColocationSettings, key: ObjectKey) -> Raw:
    """Read a pod and say how it came to be what it is."""
    pod = await client.get(PODS, key.name, namespace=key.namespace)
    namespace = await client.get(NAMESPACES, key.namespace)
    try:
        profiles = (await client.list(COLOCATION_PROFILES)).items
    except NotFound:
        profiles = ()
    found = matching(profiles, pod.metadata.labels or {}, namespace.metadata.labels or {}, settings.version)
    return {"kind": "pod", "colocation": trace(str(key), pod, found)}


def trace(key: str, pod: Pod, now: Matches) -> Raw:
    """Return what is known about a pod; `now` are the profiles that would match it today."""
    containers = {}
    for container in pod.spec.containers or ():
        requests = (container.resources.requests if container.resources else None) or {}
        containers[container.name] = {name: str(requests[name]) for name in _EXTENDED if name in requests}
    return {
        "pod": key,
        "applied": list(noted((pod.metadata.annotations or {}).get(APPLIED))),
        "matchingNow": [profile.metadata.name for profile in now.profiles],
        "problems": [f"{problem.profile}: {problem.message}" for problem in now.problems],
        "qosClass": qos.raw_qos(pod.metadata.labels),
        "effectiveQosClass": qos.defaulted_qos(pod),
        "priorityClass": qos.raw_priority(pod),
        "effectivePriorityClass": qos.defaulted_priority(pod),
        "containers": containers,
    }


def render(trace: Raw) -> str:
    """Return the explanation for a person."""
    applied = trace["applied"]
    lines = [f"Pod {trace['pod']}"]
    lines += [f"  made by       profile {name}" for name in applied] or [
        "  made by       no colocation profile was applied"
    ]
    for title, given, effective in (
        ("QoS class", "qosClass", "effectiveQosClass"),
        ("priority", "priorityClass", "effectivePriorityClass"),
    ):
        note = "" if trace[given] else "  (by default)"
        lines.append(f"  {title:<13} {trace[effective] or 'none'}{note}")
    lines += [
        f"  {container:<13} {', '.join(f'{name} {amount}' for name, amount in amounts.items())}"
        for container, amounts in trace["containers"].items()
        if amounts
    ]
    later = [name for name in trace["matchingNow"] if name not in applied]
    if later:
        lines.append(f"  today         {', '.join(later)} would match too; profiles apply at creation only")
    lines += [f"  problem       {problem}" for problem in trace["problems"]]
    return "\n".join(lines)
