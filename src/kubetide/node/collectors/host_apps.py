"""Applications of the host that the NodeSLO names: CPU and memory of their cgroups, like a pod's.

What they use together is taken off the system's usage: with page cache where the NodeMetric's collect policy counts it,
else without, as for hot page cache, which is not told apart here.
"""

from kubetide.node.collectors.base import READ_ERRORS, BaseCollector, Context, log
from kubetide.node.collectors.pods import UsageReader
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Key
from kubetide.node.core.series.store import key_of
from kubetide.node.core.snapshot import host_application_directory
from kubetide.node.telemetry import RoundGauge


class HostApplicationCollector(BaseCollector):
    """Samples host applications; without a NodeSLO there are none."""

    name = "HostApplicationCollector"

    def __init__(self, context: Context, interval: float) -> None:
        super().__init__(context, interval)
        self._usage = UsageReader(context, interval)
        self._shown = RoundGauge(
            context.telemetry.gauge(
                "koordlet_host_application_resource_usage",
                "What host applications use.",
                ("node", "host_app_name", "resource", "unit"),
            )
        )

    def collect(self) -> bool:
        """Read every application; the sum is left for the system collector."""
        samples: list[tuple[Key, float]] = []
        total_cpu = total_memory = 0.0
        paths = self.context.layout.paths
        self._shown.begin()
        for application in self.context.host_applications():
            directory = host_application_directory(application, paths)
            if not application.name or paths.is_shared(directory):
                continue
            try:
                usage = self._usage.read(application.name, directory)
            except READ_ERRORS as error:
                log.debug("host application not read", application=application.name, error=str(error))
                continue
            if usage is None:
                continue
            cached = self._with_page_cache(application.name, directory)
            total_cpu += usage[0]
            total_memory += usage[1] if cached is None or not self.context.counts_page_cache() else cached
            name = (kinds.HOST_APP_NAME, application.name)
            self._shown.set((self.context.node_name, application.name, "cpu", "core"), usage[0])
            self._shown.set((self.context.node_name, application.name, "memory", "byte"), float(usage[1]))
            samples.append((key_of(kinds.HOST_APP_CPU, name), usage[0]))
            samples.append((key_of(kinds.HOST_APP_MEMORY, name), float(usage[1])))
            if cached is not None:
                samples.append((key_of(kinds.HOST_APP_MEMORY_WITH_PAGE_CACHE, name), float(cached)))
        self._shown.end()
        self._usage.forget_old()
        self.store(samples)
        self.context.shared.host_applications = (self.context.clock.monotonic(), total_cpu, total_memory)
        return True

    def _with_page_cache(self, application: str, directory: str) -> int | None:
        try:
            return self.context.reader.memory_usage(directory)
        except READ_ERRORS as error:
            log.debug("memory with page cache not read", application=application, error=str(error))
            return None
