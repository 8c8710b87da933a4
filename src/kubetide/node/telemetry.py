"""Gauges whose set of series is made anew each sync, without touching those of other nodes in the same process."""

import math
import re
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import Gauge

from kubetide.node.core import files
from kubetide.node.core.outcomes import Outcomes
from kubetide.node.core.plan import Plan, Write
from kubetide.node.core.series.store import SeriesStore
from kubetide.telemetry import Telemetry


@dataclass(slots=True)
class _Series:
    gauge: Gauge
    value: float


class RoundGauge:
    """Remembers which series it set, and removes those that a sync did not set again.

    Finding a series by its labels costs more than setting it, and most have the value of the sync before.
    """

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._shown: dict[tuple[str, ...], _Series] = {}
        self._round: dict[tuple[str, ...], _Series] = {}

    def begin(self) -> None:
        """Start a sync."""
        self._round = {}

    def set(self, labels: tuple[str, ...], value: float) -> None:
        """Set one series."""
        series = self._round.get(labels) or self._shown.get(labels)
        if series is None:
            series = _Series(self._gauge.labels(*labels), math.nan)
        if series.value != value:
            series.gauge.set(value)
            series.value = value
        self._round[labels] = series

    def end(self) -> None:
        """Remove what this sync did not set."""
        for labels in self._shown.keys() - self._round.keys():
            self._gauge.remove(*labels)
        self._shown = self._round


class SampleGauges:
    """When the agent started, and how many samples it keeps."""

    def __init__(self, telemetry: Telemetry, node_name: str, *, started: datetime) -> None:
        self._series = telemetry.gauge("kubetide_node_series", "Series with recent samples.", ("node",)).labels(
            node_name
        )
        self._dropped = telemetry.gauge(
            "kubetide_node_samples_dropped", "Samples that were not numbers.", ("node",)
        ).labels(node_name)
        start = telemetry.gauge("koordlet_start_time", "Unix time at which the agent started.", ("node",))
        start.labels(node_name).set(started.timestamp())

    def show(self, store: SeriesStore) -> None:
        """Show how many series there are now."""
        self._series.set(store.ring.series_count)
        self._dropped.set(store.dropped)


# Shows what the strategies decided, and what of it is in force, as gauges under upstream's names.

MILLISECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)
"""Edges of the histograms that upstream counts in milliseconds."""

_INTERNAL = re.compile(r"^(?!koordlet_)|_duration_(seconds|milliseconds)$|_status$")


def is_internal(name: str) -> bool:
    """Return whether a family is about the agent itself; all others are about the node and its pods."""
    return _INTERNAL.search(name) is not None


CONTAINER_LABELS = ("node", "pod_namespace", "pod_name", "container_id", "container_name")


class Gauges:
    """Gauges of the QoS strategies of one node."""

    def __init__(self, telemetry: Telemetry, node_name: str) -> None:
        self._node = node_name
        self._suppress = telemetry.gauge(
            "koordlet_be_suppress_cpu_cores", "CPU left for best-effort work.", ("node", "type")
        )
        self._used = telemetry.gauge(
            "koordlet_be_suppress_ls_used_cpu_cores", "CPU used by pods that are not best effort.", ("node",)
        )
        self._best_effort = telemetry.gauge(
            "koordlet_be_suppress_be_used_cpu_cores", "CPU used by best-effort work.", ("node",)
        )
        self._burst = telemetry.gauge(
            "koordlet_container_scaled_cfs_burst_us", "cfs burst of containers.", CONTAINER_LABELS
        )
        self._quota = telemetry.gauge(
            "koordlet_container_scaled_cfs_quota_us", "CFS quota that burst gave containers.", CONTAINER_LABELS
        )
        self._shown: Outcomes = ()

    def show(self, strategy: str, plan: Plan, outcomes: Outcomes) -> None:
        """Show the decision of one sync; of values of containers those that the kernel took."""
        if strategy == "cpu-suppress" and "leftMilli" in plan.trace:
            self._suppress.labels(self._node, str(plan.trace["policy"])).set(plan.trace["leftMilli"] / 1000)
            self._used.labels(self._node).set(plan.trace["podsUsedCores"])
            if (used := plan.trace.get("bestEffortUsedCores")) is not None:
                self._best_effort.labels(self._node).set(used)
        elif strategy == "cpu-burst":
            self._show_containers(outcomes)

    def _show_containers(self, outcomes: Outcomes) -> None:
        if outcomes == self._shown:
            return
        self._shown = outcomes
        self._burst.clear()
        self._quota.clear()
        for outcome in outcomes:
            write = outcome.write
            if not (write.subject.container and outcome.in_force):
                continue
            gauge = {files.CPU_BURST.name: self._burst, files.CPU_QUOTA.name: self._quota}.get(write.file.name)
            if gauge is not None:
                gauge.labels(*self._labels(write)).set(float(write.value))

    def _labels(self, write: Write) -> tuple[str, ...]:
        about = write.subject
        return self._node, about.namespace, about.name, about.container_id, about.container
