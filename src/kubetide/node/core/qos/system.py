"""Kernel settings of the node: how much memory is kept free, how early reclaim begins, how the scheduler behaves.

    min_free_kbytes = capacity KiB x factor / 10000
    sched_features  one word per feature that is not as it should be: NAME or NO_NAME

What is not set is left alone. A scheduler feature that this kernel does not list is not written: it would fail every
time. The switch of group identity belongs to the hook of that name while a class of the NodeSLO uses it.

A value outside the kernel's useful range is not clamped but left out: it means that somebody mistyped a factor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from kubetide.api.objects import resources
from kubetide.api.qos.slo_strategies import SystemStrategy
from kubetide.api.values.quantity import ZERO
from kubetide.node.core import files
from kubetide.node.core.compat import PAGE_CACHE_LIMIT, SCHED_SETTINGS
from kubetide.node.core.files import SystemFile, ValueRefused
from kubetide.node.core.hooks.group_identity import rule_from
from kubetide.node.core.kernel_values import NOTHING, Needs
from kubetide.node.core.plan import Batch, Plan, Subject, Target, Write
from kubetide.node.core.qos.strategy import skipped
from kubetide.node.core.snapshot import Snapshot

REASON = "systemConfig reconcile"
_OFF = "NO_"


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
        if snapshot.compat.has(PAGE_CACHE_LIMIT) and strategy.page_cache_limit_enabled in (0, 1):
            wanted.append((files.PAGE_CACHE_LIMIT, strategy.page_cache_limit_enabled))
        trace: dict[str, object] = {file.name: value for file, value in wanted}
        words: list[str] = []
        if snapshot.compat.has(SCHED_SETTINGS):
            scheduler = scheduler_values(strategy)
            if _hook_owns_identity(snapshot) and any(file is files.SCHED_GROUP_IDENTITY for file, _ in scheduler):
                scheduler = [(file, value) for file, value in scheduler if file is not files.SCHED_GROUP_IDENTITY]
                trace["problem"] = "schedGroupIdentityEnabled is left to the group identity hook while a class uses it"
            wanted = [*wanted, *scheduler]
            trace |= {file.name: value for file, value in scheduler}
            words, problem = feature_words(strategy.sched_features, snapshot.kernel.setting(files.SCHED_FEATURES))
            trace |= {"schedFeatures": words} if words else {}
            trace |= {"schedFeaturesProblem": problem} if problem else {}
        subject = Subject(type="node", name=snapshot.node.metadata.name if snapshot.node else "")

        def write(file: SystemFile, value: str) -> Write:
            return Write(file=file, value=value, target=Target.SYSTEM, reason=REASON, subject=subject)

        settings = Batch.flat(*(write(file, str(value)) for file, value in wanted))
        # The file lists all features whatever is written to it, so the executor cannot compare.
        features = Batch.flat(*(write(files.SCHED_FEATURES, f"{word}\n") for word in words), cached=False)
        return Plan(batches=(settings, features) if words else (settings,), trace=trace)

    def needs(self, snapshot: Snapshot) -> Needs:
        """Return the scheduler features, when the NodeSLO sets any."""
        strategy = snapshot.slo.system_strategy if snapshot.slo else None
        return Needs(settings=(files.SCHED_FEATURES,)) if strategy is not None and strategy.sched_features else NOTHING


def system_values(strategy: SystemStrategy, memory_bytes: int) -> list[tuple[SystemFile, int]]:
    """Return the memory settings whose values are within range."""
    factor = strategy.min_free_kbytes_factor
    wanted = (
        (files.MIN_FREE_KBYTES, None if factor is None else memory_bytes // 1024 * factor // 10000),
        (files.WATERMARK_SCALE_FACTOR, strategy.watermark_scale_factor),
        (files.REAP_BACKGROUND, strategy.memcg_reap_back_ground),
    )
    return [(file, value) for file, value in wanted if value is not None and _valid(file, value)]


def scheduler_values(strategy: SystemStrategy) -> list[tuple[SystemFile, int]]:
    """Return the scheduler's settings whose values are within range."""
    wanted = (
        (files.SCHED_GROUP_IDENTITY, strategy.sched_group_identity_enabled),
        (files.SCHED_IDLE_SAVER_WMARK, strategy.sched_idle_saver_wmark),
    )
    return [(file, value) for file, value in wanted if value is not None and _valid(file, value)]


def feature_words(wanted: Mapping[str, bool] | None, current: str | None) -> tuple[list[str], str]:
    """Return the words to write into sched_features, and what is wrong with the wanted value or the file."""
    if not wanted:
        return [], ""
    if current is None:
        return [], "this kernel has no sched_features"
    listed = set(current.split())
    known = {word.removeprefix(_OFF) for word in listed}
    both = sorted(name for name in known if name in listed and _OFF + name in listed)
    if both:
        return [], f"sched_features lists {both[0]} both on and off"
    unknown = sorted(wanted.keys() - known)
    words = [name if on else _OFF + name for name, on in sorted(wanted.items()) if name in known]
    problem = f"this kernel has no scheduler feature {', '.join(unknown)}" if unknown else ""
    return [word for word in words if word not in listed], problem


def _hook_owns_identity(snapshot: Snapshot) -> bool:
    """Return whether the group identity hook uses the kernel's switch."""
    used = snapshot.slo is not None and rule_from(snapshot.slo).enable
    return used and snapshot.gates.get("GroupIdentity", False)


def _valid(file: SystemFile, value: int) -> bool:
    try:
        file.validate(str(value))
    except ValueRefused:
        return False
    return True
