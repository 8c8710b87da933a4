"""How much of the L3 cache each class occupies and how much memory it moved: counters of the resctrl groups.

The kernel counts per group and cache (`mon_data/mon_L3_NN`); the values are shown as they are, without rates: a
counter that the hardware reuses starts anew, and whoever asks Prometheus for a rate knows what to do about it.
"""

from kubetide.node.collectors.base import READ_ERRORS, BaseCollector, Context, log
from kubetide.node.core.files import resctrl_file
from kubetide.node.core.formats.cpu import cpu_flags, cpu_model
from kubetide.node.core.formats.numbers import FormatError, is_index, unsigned
from kubetide.node.core.qos.l3_cache import AMD_VENDOR, INTEL_VENDOR
from kubetide.node.core.qos.resctrl import GROUPS
from kubetide.node.telemetry import RoundGauge

MONITOR = "mon_L3_"
BANDWIDTHS = {"mbm_local_bytes": "local", "mbm_total_bytes": "total"}


def has_monitoring(cpuinfo: str) -> bool:
    """Return whether the CPU counts cache occupancy and memory bandwidth by group."""
    flags = cpu_flags(cpuinfo)
    known = cpu_model(cpuinfo).vendor in (INTEL_VENDOR, AMD_VENDOR)
    return known and "cqm_llc" in flags and any(flag.startswith("cqm_mbm") for flag in flags)


class ResctrlCollector(BaseCollector):
    """Shows the counters of the groups of the three classes."""

    name = "ResctrlCollector"

    def __init__(self, context: Context, interval: float) -> None:
        super().__init__(context, interval)
        self._occupancy = RoundGauge(
            context.telemetry.gauge(
                "koordlet_resctrl_llc_occupancy",
                "Bytes of the L3 cache that a class occupies.",
                ("node", "qos", "cache_id"),
            )
        )
        self._bandwidth = RoundGauge(
            context.telemetry.gauge(
                "koordlet_resctrl_memory_bandwidth",
                "Bytes that a class moved to and from memory so far.",
                ("node", "qos", "cache_id", "type"),
            )
        )

    def collect(self) -> bool:
        """Read every counter that is there; a group that does not exist yet has none."""
        node = self.context.node_name
        self._occupancy.begin()
        self._bandwidth.begin()
        for group in GROUPS:
            for cache_id, path in self._monitors(group):
                value = self._counter(f"{path}/llc_occupancy")
                if value is not None:
                    self._occupancy.set((node, group, cache_id), value)
                for name, kind in BANDWIDTHS.items():
                    value = self._counter(f"{path}/{name}")
                    if value is not None:
                        self._bandwidth.set((node, group, cache_id, kind), value)
        self._occupancy.end()
        self._bandwidth.end()
        return True

    def _monitors(self, group: str) -> list[tuple[str, str]]:
        """Return the id of every cache and the directory with its counters."""
        data = self.context.layout.system_file(resctrl_file(group, "mon_data"))
        try:
            names = self.context.host.list_dirs(data)
        except OSError as error:
            log.debug("resctrl group not read", group=group, error=str(error))
            return []
        found = ((name.removeprefix(MONITOR), f"{data}/{name}") for name in names if name.startswith(MONITOR))
        return [(str(int(number)), path) for number, path in found if is_index(number)]

    def _counter(self, path: str) -> float | None:
        try:
            return float(unsigned(self.context.host.read(path).strip()))
        except (FormatError, *READ_ERRORS) as error:  # "Unavailable" while the hardware has no number
            log.debug("resctrl counter not read", file=path, error=str(error))
            return None
