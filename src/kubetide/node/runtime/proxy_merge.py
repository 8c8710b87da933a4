"""How a container's resources change on their way through the runtime proxy.

    from                period, shares, memory, swap   quota        oom score      cpusets        unified    huge pages
    hook response       if > 0                         if != 0      -1000..1000    always         by key     kept
    update request      if > 0                         if != 0      never          if not empty   by key     kept

A hook may clear a cpuset with an empty text; the kubelet's update request means "unchanged" by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LinuxResources:
    """Resources of a container as the container runtime interface has them."""

    cpu_period: int = 0
    cpu_quota: int = 0
    cpu_shares: int = 0
    memory_limit_in_bytes: int = 0
    oom_score_adj: int = 0
    cpuset_cpus: str = ""
    cpuset_mems: str = ""
    hugepage_limits: tuple[tuple[str, int], ...] = ()
    unified: Mapping[str, str] = field(default_factory=dict)
    memory_swap_limit_in_bytes: int = 0


_IF_POSITIVE = ("cpu_period", "cpu_shares", "memory_limit_in_bytes", "memory_swap_limit_in_bytes")
_CPUSETS = ("cpuset_cpus", "cpuset_mems")


def merge_hook_response(stored: LinuxResources | None, answer: LinuxResources | None) -> LinuxResources | None:
    """Return the stored resources with what a hook answered."""
    if stored is None or answer is None:
        return stored
    changes = _positive(answer) | {name: getattr(answer, name) for name in _CPUSETS}
    if -1000 <= answer.oom_score_adj <= 1000:
        changes["oom_score_adj"] = answer.oom_score_adj
    return replace(stored, **changes, unified={**stored.unified, **answer.unified})


def merge_update_request(stored: LinuxResources | None, request: LinuxResources | None) -> LinuxResources | None:
    """Return the stored resources with what an update request sets."""
    if stored is None or request is None:
        return stored
    changes = _positive(request) | {name: value for name in _CPUSETS if (value := getattr(request, name))}
    return replace(stored, **changes, unified={**stored.unified, **request.unified})


def _positive(source: LinuxResources) -> dict[str, Any]:
    changes: dict[str, Any] = {name: value for name in _IF_POSITIVE if (value := getattr(source, name)) > 0}
    if source.cpu_quota != 0:
        changes["cpu_quota"] = source.cpu_quota
    return changes
