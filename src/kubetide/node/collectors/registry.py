"""Which collectors run: the table of names, intervals and what switches them on."""

from collections.abc import Mapping

from kubetide.errors import SettingsError
from kubetide.node.collectors.base import Collector, Context, log
from kubetide.node.collectors.best_effort import BestEffortCollector
from kubetide.node.collectors.cold_memory import ColdMemoryCollector
from kubetide.node.collectors.cpi import CpiCollector
from kubetide.node.collectors.gpu import GpuCollector
from kubetide.node.collectors.host_apps import HostApplicationCollector
from kubetide.node.collectors.info import NodeInfoCollector
from kubetide.node.collectors.node import NodeCollector, SystemCollector
from kubetide.node.collectors.numa import NUMA_SECONDS, NumaCollector
from kubetide.node.collectors.page_cache import PageCacheCollector
from kubetide.node.collectors.pods import PodCollector
from kubetide.node.collectors.pressure import PressureCollector
from kubetide.node.collectors.resctrl import ResctrlCollector, has_monitoring
from kubetide.node.collectors.storage import StorageCollector
from kubetide.node.collectors.throttling import ThrottlingCollector
from kubetide.node.core.compat import NUMA_USAGE
from kubetide.node.host.detect import DEFAULT_TICK_NANOS, has_kidled, tick_nanos
from kubetide.node.host.protocol import Commands
from kubetide.node.runtime.nvml import GpuSource
from kubetide.node.settings import NodeSettings

SHORTEST_INTERVAL = 1.0


def _ticks(commands: Commands | None) -> int:
    if commands is None:
        return DEFAULT_TICK_NANOS
    try:
        return tick_nanos(commands.run(("getconf", "CLK_TCK")))
    except OSError as error:
        log.info("length of a clock tick not known, assuming 10 ms", error=str(error))
        return DEFAULT_TICK_NANOS


def _monitors_resctrl(context: Context) -> bool:
    try:
        return has_monitoring(context.host.read(context.layout.proc("cpuinfo")))
    except OSError:
        return False


def make_collectors(
    context: Context,
    settings: NodeSettings,
    gates: Mapping[str, bool],
    *,
    commands: Commands | None = None,
    gpus: GpuSource | None = None,
) -> tuple[Collector, ...]:
    """Return the collectors that the settings and gates ask for."""
    interval = settings.collect_res_used_interval.total_seconds()
    if interval < SHORTEST_INTERVAL:
        raise SettingsError("must be at least 1s", field="collect-res-used-interval")
    info = settings.collect_node_cpu_info_interval.total_seconds()
    collectors: list[Collector] = []
    if gates["Accelerators"] and gpus is not None:
        collectors.append(GpuCollector(context, interval, gpus))
    collectors += [
        NodeCollector(context, interval, _ticks(commands)),
        BestEffortCollector(context, interval),
        PodCollector(context, interval),
        ThrottlingCollector(context, interval),
        HostApplicationCollector(context, interval),
        SystemCollector(context, interval, settings.collect_sys_metric_outdated_interval.total_seconds()),
        NodeInfoCollector(context, info, commands=commands, huge_pages=gates["HugePageReport"]),
    ]
    if settings.version.has(NUMA_USAGE):
        collectors.append(NumaCollector(context, max(interval, NUMA_SECONDS), _ticks(commands)))
    if gates["BlkIOReconcile"] and commands is not None:
        storage = settings.collect_node_storage_info_interval.total_seconds()
        collectors.append(StorageCollector(context, storage, commands))
    if gates["PSICollector"]:
        collectors.append(PressureCollector(context, settings.psi_collector_interval.total_seconds()))
    if gates["CPICollector"]:
        collectors.append(
            CpiCollector(
                context,
                settings.cpi_collector_interval.total_seconds(),
                window=settings.collect_cpi_timewindow.total_seconds(),
            )
        )
    if gates["ColdPageCollector"] and has_kidled(context.host, context.layout):
        cold = ColdMemoryCollector(context, settings.coldpage_collector_interval.total_seconds())
        try:
            cold.start()
        except OSError as error:
            log.warning("cold memory not collected", error=str(error))
        else:
            collectors.append(cold)
    if gates["ResctrlCollector"] and settings.enable_resctrl_collector:
        if _monitors_resctrl(context):
            collectors.append(ResctrlCollector(context, settings.resctrl_collector_interval.total_seconds()))
        else:
            log.warning("resctrl not collected: this CPU counts neither cache occupancy nor memory bandwidth")
    if settings.enable_pagecache_collector:
        collectors.append(PageCacheCollector(context, interval))
    return tuple(collectors)
