"""How often pods and containers ran into their CPU quota: throttled periods per period since the last reading."""

from kubetide.node.collectors.base import READ_ERRORS, BaseCollector, Context, Previous, skips
from kubetide.node.core.formats.cpu import Throttling, throttled_ratio
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Key
from kubetide.node.core.series.store import key_of


class ThrottlingCollector(BaseCollector):
    """Samples the throttled ratio of pods and containers."""

    name = "PodThrottledCollector"

    def __init__(self, context: Context, interval: float) -> None:
        super().__init__(context, interval)
        self._reader = context.reader
        self._previous: Previous[Throttling] = Previous(context.clock, interval)

    def collect(self) -> bool:
        """Read every pod and its containers."""
        samples: list[tuple[Key, float]] = []
        for pod in self.context.pods():
            try:
                ratio = self._ratio(pod.uid, pod.directory)
            except READ_ERRORS as error:
                skips(pod, error)
                continue
            if ratio is None:
                continue
            samples.append((key_of(kinds.POD_THROTTLED, (kinds.POD_UID, pod.uid)), ratio))
            for container in pod.containers:
                if not container.directory:
                    continue
                try:
                    inner = self._ratio(container.id, container.directory)
                except READ_ERRORS as error:
                    skips(pod, error)
                    continue
                if inner is not None:
                    key = key_of(kinds.CONTAINER_THROTTLED, (kinds.CONTAINER_ID, container.id))
                    samples.append((key, inner))
        self._previous.forget_old()
        self.store(samples)
        return True

    def _ratio(self, identity: str, directory: str) -> float | None:
        current = self._reader.throttling(directory)
        before = self._previous.swap(identity, current)
        return None if before is None else throttled_ratio(current, before[1])
