"""CPU left for best-effort work, and how it is enforced: fewer CPUs, or a quota.

    left = capacity x threshold % - used by pods that are not best effort - by such host applications - by the system
           and never below capacity x minimum %, where one is set
    cpuset:   ceil(left) CPUs, at least 2, growing by at most a tenth of all CPUs a sync
    cfsQuota: left x period, at least 2000 us, the same growth limit; changes below 1 % of the node are ignored

Shrinking is immediate and growing is gradual: latency-sensitive pods get their CPU back within a sync, while
best-effort work earns it back step by step. The policy that is not in use is taken back in the same sync.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubetide.api.qos import qos, reservation
from kubetide.api.values.cpuset import CpuSet
from kubetide.node.core.formats.cpu import PERIOD_MICROS
from kubetide.node.core.formats.numbers import ceil_div, trunc_div
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.qos.cpu_pick import pick

MIN_CPUS = 2
MIN_QUOTA_US = 2000
STEP_SHARE = 0.1
IGNORED_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """CPUs that best-effort work may get: those of the shared pool and those of LSR pods."""

    shared: tuple[Processor, ...]
    lsr: tuple[Processor, ...]


def left_milli(
    *,
    capacity_milli: int,
    threshold_percent: int,
    pods: float,
    host_applications: float,
    system: float,
    min_percent: int | None = None,
) -> int:
    """Return the milli-CPU left for best-effort work; may be negative unless a least share of the node is set."""
    used = int(pods * 1000) + int(host_applications * 1000) + int(system * 1000)
    left = trunc_div(capacity_milli * threshold_percent, 100) - used
    return left if min_percent is None else max(left, trunc_div(capacity_milli * min_percent, 100))


def quota_target(left: int, capacity_cpus: int, current: int) -> int | None:
    """Return the quota to write, None to leave the current one (-1: unlimited)."""
    whole_node = capacity_cpus * PERIOD_MICROS
    new = max(trunc_div(left * PERIOD_MICROS, 1000), MIN_QUOTA_US)
    if current < 0:
        # Coming from "no limit" there is nothing to grow from: a step would be a sudden cut.
        return new
    if abs(new - current) < whole_node * IGNORED_SHARE and new != MIN_QUOTA_US:
        return None
    if new - current > whole_node * STEP_SHARE:
        return current + int(whole_node * STEP_SHARE)
    return new


def cpu_count(left: int, current: int, processors: int) -> int:
    """Return how many CPUs best-effort work gets."""
    wanted = max(MIN_CPUS, ceil_div(left, 1000))
    step = math.ceil(processors * STEP_SHARE)
    return min(wanted, current + step)


def excluded_cpus(annotations: Mapping[str, str]) -> CpuSet:
    """Return the CPUs that nobody but the system may use; raise when an annotation cannot be read."""
    reserved, _ = reservation.reserved_cpus(annotations)
    system = reservation.system_qos(annotations)
    excluded = CpuSet.parse(reserved)
    if system is not None and system.exclusive:
        excluded = excluded | CpuSet.parse(system.cpuset)
    return excluded


def owners(pods: Iterable[tuple[str, Mapping[str, str] | None]]) -> dict[int, str]:
    """Return who owns which CPU, given (raw QoS, annotations) of the pods; a later pod overrules an earlier one."""
    found: dict[int, str] = {}
    for raw_qos, annotations in pods:
        for cpu in qos.dedicated_cpus(annotations) or ():
            found[cpu] = raw_qos
    return found


def pools(processors: Sequence[Processor], owner: Mapping[int, str], excluded: CpuSet) -> Pools:
    """Sort the CPUs into those of the shared pool and those of LSR pods; LSE pods share nothing."""
    free = [processor for processor in processors if processor.cpu not in excluded]
    return Pools(
        shared=tuple(p for p in free if owner.get(p.cpu) not in (qos.LSR, qos.LSE)),
        lsr=tuple(p for p in free if owner.get(p.cpu) == qos.LSR),
    )


def choose(count: int, available: Pools) -> CpuSet:
    """Return the CPUs for best-effort work, taken from both pools in proportion; empty means "do not write"."""
    total = len(available.lsr) + len(available.shared)
    if total == 0:
        return CpuSet()
    from_lsr = count * len(available.lsr) // total
    return CpuSet.of([*pick(from_lsr, available.lsr), *pick(count - from_lsr, available.shared)])


def all_best_effort(processors: Sequence[Processor], owner: Mapping[int, str], excluded: CpuSet) -> CpuSet:
    """Return every CPU that best-effort work may use when it is not suppressed."""
    return CpuSet.of(
        processor.cpu
        for processor in processors
        if processor.cpu not in excluded and owner.get(processor.cpu) != qos.LSE
    )
