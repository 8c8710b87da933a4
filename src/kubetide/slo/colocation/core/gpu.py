"""GPU shorthands of a pod: `koordinator.sh/gpu: N` stands for N percent of cores and memory, over whole devices.

The number of devices over which it is spread (`gpu.shared`) is worked out where the pod does not say it.
"""

from collections.abc import Iterator
from typing import Any

from kubetide.api.values.quantity import ZERO, Quantity, parse_quantity
from kubetide.slo.colocation.core.translate import on_containers

Raw = dict[str, Any]

GPU, CORE, SHARED = "koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu.shared"
MEMORY, MEMORY_RATIO = "koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio"
_SHARES = (CORE, MEMORY, MEMORY_RATIO)


def expand(pod: Raw) -> Raw:
    """Return the pod with the shorthand written out and the number of devices set."""
    return {**pod, "spec": on_containers(pod, _expanded, init=False)} if pod.get("spec") else pod


def problems(pod: Raw) -> Iterator[str]:
    """Yield what is wrong with the GPU resources of a pod, container by container."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        requests = (container.get("resources") or {}).get("requests") or {}
        found = {
            name: parse_quantity(value).value for name, value in requests.items() if name in (GPU, SHARED, *_SHARES)
        }
        for problem in _container_problems(found):
            yield f"container {container.get('name', '')!r}: {problem}"


def _container_problems(found: dict[str, int]) -> Iterator[str]:
    if GPU in found and SHARED in found:
        yield f"{GPU} and {SHARED} exclude each other"
    for name in (GPU, CORE, MEMORY_RATIO):
        amount = found.get(name)
        if amount is not None and (amount <= 0 or (amount > 100 and amount % 100)):
            yield f"{name} is {amount}, must be 1 to 100 or a multiple of 100"
    count = found.get(SHARED)
    if count is None:
        return
    if count <= 0:
        yield f"{SHARED} is {count}, must be positive"
    for name in (CORE, MEMORY_RATIO):
        if count > 0 and found.get(name, 0) % count:
            yield f"{name} {found[name]} cannot be divided by {SHARED} {count}"
    if (MEMORY in found) == (MEMORY_RATIO in found):
        yield f"exactly one of {MEMORY} and {MEMORY_RATIO} is needed"


def _expanded(resources: Raw) -> Raw:
    found = {part: _written_out(listed) if listed else listed for part, listed in resources.items()}
    asked = {**(found.get("limits") or {}), **(found.get("requests") or {})}
    if not any(name in asked for name in _SHARES) or SHARED in asked:
        return found
    count = str(Quantity.of(_count(asked)))
    # Extended resources need a limit, and a request equal to it.
    limits, requests = found.get("limits") or {}, found.get("requests") or {}
    shares = {name: asked[name] for name in _SHARES if name in asked}
    return {**found, "limits": {**shares, **limits, SHARED: count}, "requests": {**shares, **requests, SHARED: count}}


def _written_out(listed: Any) -> Any:
    if not isinstance(listed, dict) or GPU not in listed:
        return listed
    kept = {name: value for name, value in listed.items() if name != GPU}
    return {**kept, CORE: listed[GPU], MEMORY_RATIO: listed[GPU]}


def _count(asked: Raw) -> int:
    share = asked.get(MEMORY_RATIO, asked.get(CORE))
    amount = (parse_quantity(share) if share is not None else ZERO).value
    return amount // 100 if amount > 100 and amount % 100 == 0 else 1
