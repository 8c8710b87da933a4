"""Memory with page cache, of the node, pods and containers."""

from kubetide.node.collectors.base import READ_ERRORS, BaseCollector, Context, skips
from kubetide.node.core.formats import memory
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Key
from kubetide.node.core.series.store import key_of


class PageCacheCollector(BaseCollector):
    """Samples the `…_with_page_cache` kinds."""

    name = "PageCacheCollector"

    def __init__(self, context: Context, interval: float) -> None:
        super().__init__(context, interval)
        self._reader = context.reader

    def collect(self) -> bool:
        """Read the node, then every pod and its containers."""
        found = memory.meminfo(self.context.host.read(self.context.layout.proc("meminfo")))
        samples: list[tuple[Key, float]] = [
            (key_of(kinds.NODE_MEMORY_WITH_PAGE_CACHE), float(found.usage_with_page_cache_bytes))
        ]
        for pod in self.context.pods():
            try:
                used = self._reader.memory_stat(pod.directory).usage_with_page_cache
            except READ_ERRORS as error:
                skips(pod, error)
                continue
            samples.append((key_of(kinds.POD_MEMORY_WITH_PAGE_CACHE, (kinds.POD_UID, pod.uid)), float(used)))
            for container in pod.containers:
                if not container.directory:
                    continue
                try:
                    inner = self._reader.memory_stat(container.directory).usage_with_page_cache
                except READ_ERRORS as error:
                    skips(pod, error)
                    continue
                key = key_of(kinds.CONTAINER_MEMORY_WITH_PAGE_CACHE, (kinds.CONTAINER_ID, container.id))
                samples.append((key, float(inner)))
        self.store(samples)
        return True
