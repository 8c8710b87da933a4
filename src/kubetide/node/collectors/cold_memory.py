"""Cold memory by kidled: file pages that nobody touched for long, and what is left hot.

The kernel thread is configured once at start, not at every check. Hot usage never goes below zero.
"""

from kubetide.node.collectors.base import READ_ERRORS, BaseCollector, Context, log, skips
from kubetide.node.core import files
from kubetide.node.core.formats import memory
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Key
from kubetide.node.core.series.store import key_of
from kubetide.node.core.snapshot import host_application_directory

SCAN_PERIOD_SECONDS = 5


class ColdMemoryCollector(BaseCollector):
    """Samples cold and hot memory of node, pods, containers and host applications."""

    name = "ColdPageCollector"

    def __init__(self, context: Context, interval: float) -> None:
        super().__init__(context, interval)
        self._reader = context.reader

    def start(self) -> None:
        """Switch the kernel's scanning on."""
        layout, host = self.context.layout, self.context.host
        host.write(layout.system_file(files.KIDLED_SCAN_PERIOD), str(SCAN_PERIOD_SECONDS))
        host.write(layout.system_file(files.KIDLED_USE_HIERARCHY), "1")
        self.context.shared.cold_memory_started = True

    def _pair(self, directory: str) -> tuple[int, int]:
        cold = self._reader.cold_bytes(directory)
        return cold, max(self._reader.memory_stat(directory).usage_with_page_cache - cold, 0)

    def collect(self) -> bool:
        """Read all four levels."""
        found = memory.meminfo(self.context.host.read(self.context.layout.proc("meminfo")))
        cold = self._reader.cold_bytes("")
        samples: list[tuple[Key, float]] = [
            (key_of(kinds.NODE_MEMORY_COLD), float(cold)),
            (key_of(kinds.NODE_MEMORY_HOT), float(max(found.usage_with_page_cache_bytes - cold, 0))),
        ]
        samples.extend(self._pods())
        samples.extend(self._host_applications())
        self.store(samples)
        return True

    def _pods(self) -> list[tuple[Key, float]]:
        samples: list[tuple[Key, float]] = []
        for pod in self.context.pods():
            try:
                cold, hot = self._pair(pod.directory)
            except READ_ERRORS as error:
                skips(pod, error)
                continue
            uid = (kinds.POD_UID, pod.uid)
            samples += [
                (key_of(kinds.POD_MEMORY_COLD, uid), float(cold)),
                (key_of(kinds.POD_MEMORY_HOT, uid), float(hot)),
            ]
            for container in pod.containers:
                if not container.directory:
                    continue
                try:
                    cold, hot = self._pair(container.directory)
                except READ_ERRORS as error:
                    skips(pod, error)
                    continue
                identity = (kinds.CONTAINER_ID, container.id)
                samples += [
                    (key_of(kinds.CONTAINER_MEMORY_COLD, identity), float(cold)),
                    (key_of(kinds.CONTAINER_MEMORY_HOT, identity), float(hot)),
                ]
        return samples

    def _host_applications(self) -> list[tuple[Key, float]]:
        samples: list[tuple[Key, float]] = []
        for application in self.context.host_applications():
            directory = host_application_directory(application, self.context.layout.paths)
            if self.context.layout.paths.is_shared(directory):
                continue
            try:
                cold, hot = self._pair(directory)
            except READ_ERRORS as error:
                log.debug("host application not read", application=application.name, error=str(error))
                continue
            name = (kinds.HOST_APP_NAME, application.name)
            samples += [
                (key_of(kinds.HOST_APP_MEMORY_COLD, name), float(cold)),
                (key_of(kinds.HOST_APP_MEMORY_HOT, name), float(hot)),
            ]
        return samples
