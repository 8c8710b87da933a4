"""Facts about CPU and NUMA nodes, read now and then because CPUs can be switched off and on."""

import platform
from dataclasses import replace

from kubetide.errors import KubetideError
from kubetide.node.collectors.base import BaseCollector, Context, log
from kubetide.node.core.formats.numbers import FormatError
from kubetide.node.core.formats.processors import CpuBasicInfo, Processor, lscpu, threads_per_core
from kubetide.node.host.facts import cpu_basic_info, numa_facts, processors_from_sysfs
from kubetide.node.host.protocol import Commands

LSCPU = ("lscpu", "-e=CPU,NODE,SOCKET,CORE,CACHE,ONLINE")
LSCPU_SUMMARY = ("lscpu", "-y")


class NodeInfoCollector(BaseCollector):
    """Keeps processors and NUMA facts in the store; CPU facts are kept even if NUMA facts fail."""

    name = "NodeInfoCollector"

    def __init__(
        self, context: Context, interval: float, *, commands: Commands | None = None, huge_pages: bool = False
    ) -> None:
        super().__init__(context, interval)
        self._commands = commands
        self._huge_pages = huge_pages
        self._cpu = context.telemetry.counter(
            "koordlet_collect_node_cpu_info_status", "Syncs of CPU facts.", ("node", "status")
        )
        self._numa = context.telemetry.counter(
            "koordlet_collect_node_numa_info_status", "Syncs of NUMA facts.", ("node", "status")
        )

    def collect(self) -> bool:
        """Read both; both must succeed to count as started."""
        facts, host, layout = self.context.store.facts, self.context.host, self.context.layout
        node = self.context.node_name
        try:
            facts.processors = self._processors()
            facts.basic = self._with_threads(cpu_basic_info(host, layout))
        except (OSError, KubetideError) as error:
            self._cpu.labels(node, "failed").inc()
            log.warning("CPU facts not read", error=str(error))
            return False
        self._cpu.labels(node, "succeeded").inc()
        try:
            facts.numa = numa_facts(host, layout, huge_pages=self._huge_pages)
        except (OSError, KubetideError) as error:
            self._numa.labels(node, "failed").inc()
            log.warning("NUMA facts not read", error=str(error))
            return False
        self._numa.labels(node, "succeeded").inc()
        return True

    def _with_threads(self, basic: CpuBasicInfo) -> CpuBasicInfo:
        """Ask lscpu about hyper-threads where the kernel has no file that says."""
        smt = self.context.layout.sys("devices/system/cpu/smt/active")
        if self._commands is None or self.context.host.exists(smt):
            return basic
        try:
            return replace(basic, hyper_threads=threads_per_core(self._commands.run(LSCPU_SUMMARY)) > 1)
        except OSError:
            return basic

    def _processors(self) -> tuple[Processor, ...]:
        try:
            return processors_from_sysfs(self.context.host, self.context.layout)
        except FormatError:
            if self._commands is None:
                raise
            return lscpu(self._commands.run(LSCPU), arm64=platform.machine() == "aarch64")
