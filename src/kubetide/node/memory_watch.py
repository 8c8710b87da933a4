"""Looks at the memory of containers every second, closely only where it is near a limit (`core.memory_alarms`).

A container far from its limit costs one small file a second. Its limit is the one that was read with the last window of
samples (`sample_stream`), and is read again before anything is said about it.
"""

from contextlib import suppress

from kubetide.clock import Clock
from kubetide.node.collectors.base import READ_ERRORS
from kubetide.node.core.memory_alarms import LOOKED_AT, Alarm, ContainerKey, MemoryAlarms, MemoryLook
from kubetide.node.core.snapshot import PodState
from kubetide.node.host.readers import CgroupReader


class MemoryWatch:
    """Finds the containers whose memory is running out."""

    def __init__(self, reader: CgroupReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._alarms = MemoryAlarms()
        self._limits: dict[str, int] = {}
        """Bytes by cgroup, as last read: the lower one of its limits; -1 without any."""

    def look(self, pods: tuple[PodState, ...]) -> dict[ContainerKey, Alarm]:
        """Return all alarms there are now, on a worker."""
        at, near, found = self._clock.monotonic(), [], {}
        for pod in pods:
            for container in (*pod.containers, *pod.init_containers):
                if not container.directory or not container.running:
                    continue
                try:
                    look = self._look(container.directory)
                except READ_ERRORS:
                    # It has just ended; the samples of the window report what cannot be read.
                    continue
                if look is None:
                    continue
                key = (pod.uid, container.name)
                near.append(key)
                alarm = self._alarms.take(key, look, at=at)
                if alarm is not None:
                    found[key] = alarm
        self._alarms.keep(near)
        return found

    def begin_window(self) -> None:
        """Forget limits: all of them are read anew with a window."""
        self._limits = {}

    def note_limit(self, directory: str, limit: int) -> None:
        """Keep the limit of a cgroup, or the usage above which the kernel slows it down, if that is lower."""
        with suppress(*READ_ERRORS):
            high = self._reader.memory_high(directory)
            limit = high if 0 < high < limit else limit
        self._limits[directory] = limit

    def _look(self, directory: str) -> MemoryLook | None:
        """Return a close look at a cgroup; None where it has no limit, or is far from it."""
        reader = self._reader
        if directory not in self._limits:
            self.note_limit(directory, reader.memory_limit(directory))
        limit = self._limits[directory]
        if limit <= 0:
            return None
        usage = reader.memory_usage(directory)
        if usage < LOOKED_AT * limit:
            return None
        self.note_limit(directory, reader.memory_limit(directory))
        stat = reader.memory_stat(directory)
        pressure = events = None
        with suppress(*READ_ERRORS):
            pressure = reader.memory_pressure(directory)
        with suppress(*READ_ERRORS):
            events = reader.limits_reached(directory)
        need = max(usage - stat.inactive_file - stat.active_file, 0)
        return MemoryLook(need=need, limit=self._limits[directory], pressure=pressure, events=events)
