"""Applications of the host that the NodeSLO names: CPU and memory of their cgroups, like a pod's."""

from kubetide.node.collectors.base import READ_ERRORS, BaseCollector, Context, log
from kubetide.node.collectors.pods import UsageReader
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Key
from kubetide.node.core.series.store import key_of
from kubetide.node.core.snapshot import host_application_directory


class HostApplicationCollector(BaseCollector):
    """Samples host applications; without a NodeSLO there are none."""

    name = "HostApplicationCollector"

    def __init__(self, context: Context, interval: float) -> None:
        super().__init__(context, interval)
        self._usage = UsageReader(context, interval)

    def collect(self) -> bool:
        """Read every application; the sum is left for the system collector."""
        samples: list[tuple[Key, float]] = []
        total_cpu = total_memory = 0.0
        paths = self.context.layout.paths
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
            total_cpu += usage[0]
            total_memory += usage[1]
            name = (kinds.HOST_APP_NAME, application.name)
            samples.append((key_of(kinds.HOST_APP_CPU, name), usage[0]))
            samples.append((key_of(kinds.HOST_APP_MEMORY, name), float(usage[1])))
        self._usage.forget_old()
        self.store(samples)
        self.context.shared.host_applications = (self.context.clock.monotonic(), total_cpu, total_memory)
        return True
