"""Cycles and instructions of containers, counted over a window of every interval.

One sync starts the counters, the next one, a window later, reads them. A container whose counters cannot be opened
(no hardware counters, no permission) is left out. Cycles per instruction are left to the reader.
"""

from collections.abc import Mapping

from kubetide.node.collectors.base import BaseCollector, Context, log
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Key
from kubetide.node.core.series.store import key_of
from kubetide.node.core.snapshot import ContainerState, PodState
from kubetide.node.runtime.perf import CPI_EVENTS, CgroupCounters, Counting, PerfEvent
from kubetide.node.telemetry import RoundGauge

_FIELDS = {"cycle": "cycles", "instruction": "instructions"}


class CpiCollector(BaseCollector):
    """Samples `container_cpi`."""

    name = "CPICollector"

    def __init__(
        self, context: Context, interval: float, *, window: float, events: Mapping[str, PerfEvent] = CPI_EVENTS
    ) -> None:
        super().__init__(context, interval)
        self._window = window
        self._events = events
        self._running: list[tuple[PodState, ContainerState, Counting]] = []
        self._told = False
        self._gauge = RoundGauge(
            context.telemetry.gauge(
                "koordlet_container_cpi",
                "Cycles and instructions of a container in the last window.",
                ("node", "container_id", "container_name", "pod_uid", "pod_name", "pod_namespace", "cpi_field"),
            )
        )

    def pause(self) -> float:
        """Return the time until the next step."""
        return self._window if self._running else self.interval

    def collect(self) -> bool:
        """Start counters, or read those that run."""
        if self._running:
            return self._finish()
        processors = self.context.store.facts.processors
        if not processors:
            return False
        cpus = range(len(processors))
        for pod in self.context.pods():
            for container in pod.containers:
                if not container.directory or not pod.is_active:
                    continue
                directory = self.context.layout.cgroup_dir("perf_event", container.directory)
                try:
                    self._running.append((pod, container, CgroupCounters(directory, cpus, self._events)))
                except OSError as error:
                    if not self._told:
                        self._told = True
                        log.info("no performance counters", directory=directory, error=str(error))
        return not self._running

    def _finish(self) -> bool:
        samples: list[tuple[Key, float]] = []
        self._gauge.begin()
        for pod, container, counters in self._running:
            try:
                counts = counters.read()
            except OSError as error:
                log.debug("performance counters not read", pod=pod.key, error=str(error))
                continue
            finally:
                counters.close()
            labels = (self.context.node_name, container.id, container.name, pod.uid, pod.name, pod.namespace)
            for name, value in counts.items():
                who = ((kinds.POD_UID, pod.uid), (kinds.CONTAINER_ID, container.id), ("cpi_resource", name))
                samples.append((key_of(kinds.CONTAINER_CPI, *who), value))
                self._gauge.set((*labels, _FIELDS.get(name, name)), value)
        self._running = []
        self._gauge.end()
        self.store(samples)
        return True

    def close(self) -> None:
        """Close counters that are still running."""
        for _, _, counters in self._running:
            counters.close()
        self._running = []
