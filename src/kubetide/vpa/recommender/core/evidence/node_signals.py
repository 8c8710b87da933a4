"""Samples as nodes know them: peaks within the minute, throttling, and memory without page cache.

    peaks       the CPU of a sample is at least the 99th percentile of the seconds of its minute: a mean over a minute
                hides what a container needs in the seconds in which it works       (--cpu-peaks)
    throttled   a container that was held back in a quarter of its enforcement periods, or used 95 % of its limit, would
                have used more: its CPU is a lower bound, and counts so many times over
                                                                        (--throttled-cpu-bump-up-ratio)
    page cache  the kernel gives it back when somebody needs memory, so it is no need: the memory of a sample is what
                the container cannot give back                                (--memory-without-page-cache)

Where a node says nothing, because it has no agent that streams, the sample stays as it is.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.metrics import PodSignals
from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.samples import Mask
from kubetide.vpa.recommender.core.usage.feeding import UsageBatch

AT_LIMIT: Final = 0.95
"""Of its limit: who uses that much may have wanted more."""
HELD_BACK: Final = 0.25
"""Of its enforcement periods."""
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRules:
    """Which signals count."""

    peaks: bool = False
    without_page_cache: bool = False
    throttled_ratio: float = 1.0

    @property
    def any(self) -> bool:
        """Whether nodes have to be asked at all."""
        return self.peaks or self.without_page_cache or self.throttled_ratio != 1.0


@dataclass(frozen=True, slots=True)
class SignalEffects:
    """What signals did to the samples of one loop, sample by sample."""

    slots: Ints
    told: Mask
    """Whether the node said anything."""
    cpu_before: Ints
    cpu_peak: Ints
    throttled: Mask
    memory_before: Ints
    memory: Ints

    def of(self, slots: Iterable[int]) -> dict[str, Any] | None:
        """Return what became of the samples of some aggregates, for people; None without any."""
        mine = np.isin(self.slots, np.fromiter(slots, dtype=np.int64))
        if not mine.any():
            return None
        return {
            "samples": int(mine.sum()),
            "told": int(self.told[mine].sum()),
            "cpuMeanMillis": int(self.cpu_before[mine].mean()),
            "cpuPeakMillis": int(self.cpu_peak[mine].mean()),
            "throttled": int(self.throttled[mine].sum()),
            "memoryBytes": int(self.memory_before[mine].mean()),
            "memoryNeedBytes": int(self.memory[mine].mean()),
        }


def with_signals(
    model: Model, batch: UsageBatch, signals: Iterable[PodSignals], rules: SignalRules
) -> tuple[UsageBatch, SignalEffects]:
    """Return the batch as nodes know it, and what that changed."""
    need, peak, share = _columns(model, batch, signals)
    cpu, memory, limits = batch.cpu, batch.memory, model.containers.cpu_limit[batch.rows]
    if rules.peaks:
        cpu = np.maximum(cpu, peak)
    throttled: Mask = np.zeros(batch.rows.size, dtype=np.bool_)
    peaked = cpu
    if rules.throttled_ratio != 1.0:
        throttled = (limits > 0) & ((cpu >= AT_LIMIT * limits) | (share >= HELD_BACK))
        cpu = np.where(throttled, (cpu * rules.throttled_ratio).astype(np.int64), cpu)
    if rules.without_page_cache:
        memory = np.where(need >= 0, np.minimum(memory, need), memory)
    told = (need >= 0) | (peak >= 0) | (share >= 0)
    slots = model.containers.aggregate[batch.rows]
    effects = SignalEffects(slots, told, batch.cpu, peaked, throttled, batch.memory, memory)
    return replace(batch, cpu=cpu, memory=memory), effects


def _columns(model: Model, batch: UsageBatch, signals: Iterable[PodSignals]) -> tuple[Ints, Ints, Floats]:
    """Return need in bytes, peak in millicores and throttled share of each sample; -1 where a node does not say."""
    places = dict(zip(batch.rows.tolist(), range(batch.rows.size), strict=True))
    need = np.full(batch.rows.size, _UNKNOWN, dtype=np.int64)
    peak = need.copy()
    share = np.full(batch.rows.size, float(_UNKNOWN))
    for pod in signals:
        state = model.pods.get(ObjectKey(pod.metadata.namespace, pod.metadata.name))
        if state is None or (pod.metadata.uid and state.uid != pod.metadata.uid):
            continue
        for one in pod.containers or ():
            place = places.get(state.containers.get(one.name, _UNKNOWN))
            if place is None:
                continue
            if one.memory_need_bytes is not None:
                need[place] = one.memory_need_bytes
            if one.cpu_peak_nanocores is not None:
                peak[place] = -(-one.cpu_peak_nanocores // 1_000_000)
            if one.cpu_throttled_ratio is not None:
                share[place] = one.cpu_throttled_ratio
    return need, peak, share
