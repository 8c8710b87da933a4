"""How good recommendations are, as numbers: usage against what was recommended, sample by sample.

A hundred thousand samples a minute would cost more to observe one by one than to decide on, so samples are counted
into buckets as arrays (`BulkHistogram`). Observed are accepted samples of containers under a VPA whose mode is not
`Off`, with the recommendation in force before the loop.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from kubetide.stats.buckets import Floats, Ints

CPU_BUCKETS = tuple(0.01 * 2.0**k for k in range(17))
MEMORY_BUCKETS = tuple(1e6 * 2.0**k for k in range(17))
_SMALL = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
RELATIVE_BUCKETS = (*(-b for b in reversed(_SMALL)), 0.0, *_SMALL, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)
PREFIX = "vpa_quality_"
MAX_SIZE_LOG2 = 20


def size_log2(pods: int) -> int:
    """Return the size class of a VPA: floor(log2(pods)), 0 for none, at most 20."""
    return 0 if pods <= 0 else min(MAX_SIZE_LOG2, pods.bit_length() - 1)


class BulkHistogram:
    """A histogram that takes arrays."""

    def __init__(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._edges = np.array(buckets)
        self._counts: dict[tuple[str, ...], Ints] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, labels: tuple[str, ...], values: Floats) -> None:
        """Count values under one set of labels."""
        good = values[np.isfinite(values)]
        if not good.size:
            return
        counts = self._counts.setdefault(labels, np.zeros(len(self._edges) + 1, dtype=np.int64))
        counts += np.bincount(np.searchsorted(self._edges, good, side="left"), minlength=len(counts))
        self._sums[labels] = self._sums.get(labels, 0.0) + float(good.sum())

    def family(self) -> HistogramMetricFamily:
        """Return the samples for exposition."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, counts in self._counts.items():
            running = counts.cumsum().tolist()
            edges = [*(_edge(edge) for edge in self._edges), "+Inf"]
            family.add_metric(labels, list(zip(edges, running, strict=True)), self._sums[labels])
            if self._edges[0] < 0:
                # The library leaves count and sum out where values may be negative; upstream shows them.
                named = dict(zip(self._labels, labels, strict=True))
                family.add_sample(f"{self._name}_count", named, running[-1])
                family.add_sample(f"{self._name}_sum", named, self._sums[labels])
        return family


def _edge(value: float) -> str:
    return repr(float(value))


class Quality(Collector):
    """Counts samples against recommendations. Recommendations are held by aggregate number."""

    def __init__(self, missing: Any) -> None:
        """`missing` counts samples without recommendation, by update mode, resource and whether it was an OOM kill."""
        self._missing = missing
        self._relative = BulkHistogram(
            f"{PREFIX}usage_recommendation_relative_diffs",
            "(usage - recommendation) / recommendation, per sample.",
            ("update_mode", "resource", "is_oom"),
            RELATIVE_BUCKETS,
        )
        self._changes = BulkHistogram(
            f"{PREFIX}relative_recommendation_changes",
            "New over old uncapped target, minus 1.",
            ("update_mode", "resource", "vpa_size_log2"),
            RELATIVE_BUCKETS,
        )
        cpu_labels = ("update_mode", "recommendation_missing")
        memory_labels = ("update_mode", "recommendation_missing", "is_oom")
        self._over = {
            "cpu": BulkHistogram(
                f"{PREFIX}cpu_recommendation_over_usage_diffs_cores",
                "Recommendation above usage, in cores.",
                cpu_labels,
                CPU_BUCKETS,
            ),
            "memory": BulkHistogram(
                f"{PREFIX}mem_recommendation_over_usage_diffs_bytes",
                "Recommendation above usage, in bytes.",
                memory_labels,
                MEMORY_BUCKETS,
            ),
        }
        self._under = {
            "cpu": BulkHistogram(
                f"{PREFIX}cpu_recommendation_lower_equal_usage_diffs_cores",
                "Usage above or at the recommendation, in cores.",
                cpu_labels,
                CPU_BUCKETS,
            ),
            "memory": BulkHistogram(
                f"{PREFIX}mem_recommendation_lower_equal_usage_diffs_bytes",
                "Usage above or at the recommendation, in bytes.",
                memory_labels,
                MEMORY_BUCKETS,
            ),
        }
        self._amounts = {
            "cpu": BulkHistogram(
                f"{PREFIX}cpu_recommendations_cores", "Recommendations, in cores.", ("update_mode",), CPU_BUCKETS
            ),
            "memory": BulkHistogram(
                f"{PREFIX}mem_recommendations_bytes",
                "Recommendations, in bytes.",
                ("update_mode", "is_oom"),
                MEMORY_BUCKETS,
            ),
        }
        self._modes: list[str] = []
        self._mode: npt.NDArray[np.int16] = np.zeros(0, dtype=np.int16)
        self._held: dict[str, Floats] = {"cpu": np.zeros(0), "memory": np.zeros(0)}

    def release(self, slots: npt.ArrayLike | None = None) -> None:
        """Judge samples of these aggregates, or of all, no longer."""
        if slots is None:
            self._mode[:] = -1
            return
        at = np.asarray(slots, dtype=np.int64)
        self._mode[at[at < self._mode.size]] = -1

    def hold(self, slots: Sequence[int], modes: Sequence[str], cores: Sequence[float], memory: Sequence[float]) -> None:
        """Remember the recommendations of aggregates: amounts are NaN for none, an empty mode is not judged."""
        if not slots:
            return
        at = np.array(slots, dtype=np.int64)
        capacity = int(at.max()) + 1
        if self._mode.size < capacity:
            capacity = capacity * 3 // 2
            self._mode = np.concatenate([self._mode, np.full(capacity - self._mode.size, -1, dtype=np.int16)])
            for name, held in self._held.items():
                self._held[name] = np.concatenate([held, np.full(capacity - held.size, np.nan)])
        codes = {mode: self._code(mode) for mode in set(modes)}
        self._mode[at] = [codes[mode] for mode in modes]
        self._held["cpu"][at] = cores
        self._held["memory"][at] = memory

    def _code(self, mode: str) -> int:
        if not mode:
            return -1
        if mode not in self._modes:
            self._modes.append(mode)
        return self._modes.index(mode)

    def judge(self, resource: str, slots: Ints, usage: Floats, *, oom: bool = False) -> None:
        """Count accepted samples of aggregates against what is held for them."""
        known = (slots >= 0) & (slots < self._mode.size)
        slots, usage = slots[known], usage[known]
        codes, held, is_oom = self._mode[slots], self._held[resource][slots], "true" if oom else "false"
        for code in np.unique(codes[codes >= 0]).tolist():
            mode, here = self._modes[code], codes == code
            missing = here & np.isnan(held)
            there = here & ~np.isnan(held)
            if missing.any():
                self._missing.labels(mode, resource, is_oom).inc(int(missing.sum()))
                self._difference(resource, mode, "true", is_oom, -usage[missing])
            if there.any():
                recommended, used = held[there], usage[there]
                self._difference(resource, mode, "false", is_oom, recommended - used)
                labels = (mode,) if resource == "cpu" else (mode, is_oom)
                self._amounts[resource].observe(labels, recommended)
                positive = recommended > 0
                relative = (used[positive] - recommended[positive]) / recommended[positive]
                self._relative.observe((mode, resource, is_oom), relative)

    def _difference(self, resource: str, mode: str, missing: str, is_oom: str, over: Floats) -> None:
        labels = (mode, missing) if resource == "cpu" else (mode, missing, is_oom)
        self._over[resource].observe(labels, over[over > 0])
        self._under[resource].observe(labels, -over[over <= 0])

    def changed(self, moves: Mapping[tuple[str, str, str], Sequence[float]]) -> None:
        """Count how much uncapped targets moved, by update mode, resource and size of the VPA."""
        for labels, relative in moves.items():
            self._changes.observe(labels, np.array(relative))

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """Yield everything for exposition."""
        yield self._relative.family()
        yield self._changes.family()
        for group in (self._over, self._under, self._amounts):
            for histogram in group.values():
                yield histogram.family()
