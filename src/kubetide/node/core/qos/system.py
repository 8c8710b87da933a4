"""Kernel settings of the node: how much memory is kept free and how early reclaim begins.

    min_free_kbytes = capacity KiB x factor / 10000

A value outside the kernel's useful range is not clamped but left out: it means that somebody mistyped a factor.
"""

from dataclasses import dataclass
from datetime import timedelta

from kubetide.api.objects import resources
from kubetide.api.qos.slo_strategies import SystemStrategy
from kubetide.api.values.quantity import ZERO
from kubetide.node.core import files
from kubetide.node.core.files import SystemFile, ValueRefused
from kubetide.node.core.plan import Batch, Plan, Subject, Target, Write
from kubetide.node.core.qos.switch import skipped
from kubetide.node.core.snapshot import Snapshot

REASON = "systemConfig reconcile"


@dataclass(slots=True)
class SystemConfig:
    """Writes the node's memory settings."""

    interval: timedelta = timedelta(seconds=1)
    name: str = "system-config"
    gate: str = "SystemConfig"

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the settings that the NodeSLO asks for."""
        strategy = snapshot.slo.system_strategy if snapshot.slo else None
        capacity = resources.parse_list(snapshot.node.status.capacity) if snapshot.node else {}
        memory = capacity.get(resources.MEMORY, ZERO).value
        if strategy is None or memory <= 0:
            return skipped("no system strategy, or the node's memory is not known")
        wanted = system_values(strategy, memory)
        subject = Subject(type="node", name=snapshot.node.metadata.name if snapshot.node else "")
        writes = (
            Write(file=file, value=str(value), target=Target.SYSTEM, reason=REASON, subject=subject)
            for file, value in wanted
        )
        return Plan(batches=(Batch.flat(*writes),), trace={file.name: value for file, value in wanted})


def system_values(strategy: SystemStrategy, memory_bytes: int) -> list[tuple[SystemFile, int]]:
    """Return the settings whose values are within range."""
    factor = strategy.min_free_kbytes_factor
    wanted = (
        (files.MIN_FREE_KBYTES, None if factor is None else memory_bytes // 1024 * factor // 10000),
        (files.WATERMARK_SCALE_FACTOR, strategy.watermark_scale_factor),
        (files.REAP_BACKGROUND, strategy.memcg_reap_back_ground),
    )
    return [(file, value) for file, value in wanted if value is not None and _valid(file, value)]


def _valid(file: SystemFile, value: int) -> bool:
    try:
        file.validate(str(value))
    except ValueRefused:
        return False
    return True
