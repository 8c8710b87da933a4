"""Memory QoS as a strategy: protection, throttling, reclaim and OOM kill order of every cgroup of a class.

A pod's configuration is that of its class, replaced by a template when the pod asks for `auto` (or by the off values
for `none`), and then overridden field by field by the pod's annotation. The tier directories carry the sum of what
their pods protect, because a child's protection is worth no more than its parent's. When the last pod of a class
leaves, the tier's protection is set back to 0; a class that never had pods is not touched.

While nothing changed, values are not computed again for a while; those that the kernel did not take are wanted again
every sync.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from kubetide.api.objects import resources
from kubetide.api.objects.core import Container
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT, BURSTABLE, GUARANTEED, KUBE_QOS_CLASSES, CgroupPaths
from kubetide.api.qos.slo_strategies import MemoryQOS, PodMemoryQOS, ResourceQOS, ResourceQOSStrategy
from kubetide.api.values.codec import decode_folded
from kubetide.api.values.quantity import ZERO
from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.compat import PAGE_CACHE_LIMIT
from kubetide.node.core.kernel_values import NOTHING, Needs
from kubetide.node.core.outcomes import Outcomes
from kubetide.node.core.plan import Batch, Plan, Subject, Target, Write
from kubetide.node.core.qos.extensions import Extensions
from kubetide.node.core.qos.memory_values import (
    FILES,
    UNLIMITED,
    MemoryValue,
    memory_high,
    page_cache_limit,
    percent_of,
    writes_of,
)
from kubetide.node.core.qos.strategy import skipped
from kubetide.node.core.snapshot import PodState, Snapshot

AUTO, NONE = "auto", "none"
PROTECTIONS = ("memory.min", "memory.low")
Seen = tuple[datetime, ResourceQOSStrategy, int, tuple[PodState, ...]]
REASON = "cgroup reconcile"
REPEAT_AFTER = timedelta(seconds=10)

OFF = MemoryQOS(
    enable=False,
    min_limit_percent=0,
    low_limit_percent=0,
    throttling_percent=0,
    wmark_ratio=0,
    wmark_scale_permill=50,
    wmark_min_adj=0,
    priority_enable=0,
    priority=0,
    oom_kill_group=0,
)
_BASE = msgspec.structs.replace(OFF, enable=None)
TEMPLATES: dict[str, MemoryQOS] = {
    qos.LSE: msgspec.structs.replace(_BASE, wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=-25),
    qos.LSR: msgspec.structs.replace(_BASE, wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=-25),
    qos.LS: msgspec.structs.replace(_BASE, wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=-25),
    qos.BE: msgspec.structs.replace(_BASE, wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=50),
    qos.SYSTEM: _BASE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryValues:
    """The values of one sync, by level."""

    tiers: list[MemoryValue]
    pods: list[MemoryValue]
    containers: list[MemoryValue]
    protected: frozenset[str]
    """Kubernetes QoS classes whose tier got a protection from its pods."""


@dataclass(frozen=True, slots=True)
class TierProtection:
    """What a value of a tier, once in force, says about the protection of its Kubernetes QoS class."""

    kube_qos: str
    raised: bool


@dataclass(slots=True)
class MemoryQos:
    """Writes the memory files of tiers, pods and containers."""

    page_size: int = 4096
    interval: timedelta = timedelta(seconds=1)
    name: str = "cgroup-reconcile"
    gate: str = "CgroupReconcile"
    extensions: Extensions = field(default_factory=Extensions)
    """Who is asked about pods without the annotation."""
    _protected: frozenset[str] = frozenset()
    """Kubernetes QoS classes whose tier has a protection of ours in force."""
    _known: dict[str, bool] = field(default_factory=dict)
    """Which memory files this kernel has."""
    _seen: Seen | None = None
    """What the last decision was made from."""
    _last: Seen | None = None
    """What the last decision was made from whose plan was written."""
    _failed: tuple[Write, ...] = ()
    """What the kernel did not take the last time."""

    def needs(self, snapshot: Snapshot) -> Needs:
        """Return the memory files of which it is not known yet whether this kernel has them."""
        if snapshot.slo is None or snapshot.slo.resource_qos_strategy is None:
            return NOTHING
        root = snapshot.paths.kube_root
        return Needs(present=[(files.CGROUP_FILES[name], root) for name, _ in FILES if name not in self._known])

    def applied(self, plan: Plan, outcomes: Outcomes) -> None:
        """Take over which tiers are protected, and what has to be tried again."""
        if not plan.batches:
            return
        self._failed = tuple(outcome.write for outcome in outcomes if outcome.failed)
        self._last = self._seen
        raised: set[str] = set()
        lowered: set[str] = set()
        kept: set[str] = set()
        for outcome in outcomes:
            effect = outcome.write.effect
            if isinstance(effect, TierProtection):
                if not effect.raised:
                    (kept if outcome.failed else lowered).add(effect.kube_qos)
                elif outcome.in_force:
                    raised.add(effect.kube_qos)
        self._protected = (self._protected | raised) - (lowered - kept)

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the memory values of every cgroup."""
        strategy = snapshot.slo.resource_qos_strategy if snapshot.slo else None
        if strategy is None or snapshot.node is None or not snapshot.node.status.allocatable:
            return skipped("no QoS strategy, or the node's allocatable memory is not known")
        allocatable = resources.parse_list(snapshot.node.status.allocatable).get(resources.MEMORY, ZERO).value
        if self._unchanged(snapshot, strategy, allocatable):
            return Plan(batches=self._again(), trace={"pods": len(snapshot.pods), "unchanged": True})
        values = memory_values(
            strategy,
            [pod for pod in snapshot.pods if pod.is_active],
            snapshot.paths,
            allocatable=allocatable,
            page_size=self.page_size,
            injected=self.extensions.memory_qos,
            page_cache=snapshot.compat.has(PAGE_CACHE_LIMIT),
        )
        stale = [
            value
            for kube_qos in KUBE_QOS_CLASSES
            if kube_qos in self._protected - values.protected
            for value in writes_of(snapshot.paths.tier(kube_qos), dict.fromkeys(PROTECTIONS, 0))
        ]
        subjects = {pod.directory: pod for pod in snapshot.pods}
        levels = (
            tuple(
                _write(value, Target.TIER, effect=_protection(value, snapshot.paths, raised=raised))
                for part, raised in ((values.tiers, True), (stale, False))
                for value in self._possible(snapshot, part)
            ),
            tuple(
                _write(value, Target.POD, subjects.get(value.directory))
                for value in self._possible(snapshot, values.pods)
            ),
            tuple(_write(value, Target.CONTAINER) for value in self._possible(snapshot, values.containers)),
        )
        trace: dict[str, object] = {"pods": len(subjects)}
        if self.extensions.problems:
            trace["extensions"] = dict(self.extensions.problems)
        return Plan(batches=(Batch(levels=levels, leveled=True),), trace=trace)

    def _again(self) -> tuple[Batch, ...]:
        """Return what the kernel did not take the last time, level by level."""
        levels = tuple(
            tuple(write for write in self._failed if write.target is target)
            for target in (Target.TIER, Target.POD, Target.CONTAINER)
        )
        return (Batch(levels=levels, leveled=True),) if self._failed else ()

    def _unchanged(self, snapshot: Snapshot, strategy: ResourceQOSStrategy, allocatable: int) -> bool:
        """Return whether the last sync saw the same and is recent: then its values stand, and need no second look.

        An extension may think differently about the same pods, so it is asked every time.
        """
        if self.extensions.active:
            return False
        last = self._last
        if last is not None and snapshot.now - last[0] < REPEAT_AFTER and last[1:3] == (strategy, allocatable):
            before, now = last[3], snapshot.pods
            if len(before) == len(now) and all(old is new for old, new in zip(before, now, strict=True)):
                return True
        self._seen = (snapshot.now, strategy, allocatable, snapshot.pods)
        return False

    def _possible(self, snapshot: Snapshot, values: list[MemoryValue]) -> list[MemoryValue]:
        """Leave out files that this kernel does not have; most have half of them, and there are thousands of values.

        What is missing is remembered once the kubelet made its root: before, nothing can be said about the kernel.
        """
        for resource in {value.resource for value in values} - self._known.keys():
            known = snapshot.kernel.has(files.CGROUP_FILES[resource], snapshot.paths.kube_root)
            if known is not None:
                self._known[resource] = known
        return [value for value in values if self._known.get(value.resource, False)]


def memory_values(
    strategy: ResourceQOSStrategy,
    pods: list[PodState],
    paths: CgroupPaths,
    *,
    allocatable: int,
    page_size: int,
    injected: Callable[[PodState], PodMemoryQOS | None] = lambda pod: None,
    page_cache: bool = False,
) -> MemoryValues:
    """Return the values of all tiers, pods and containers."""
    sums: dict[str, dict[str, int]] = {}
    pod_values: list[MemoryValue] = []
    container_values: list[MemoryValue] = []
    for pod in pods:
        silent = qos.ANNOTATION_MEMORY_QOS not in (pod.pod.metadata.annotations or {})
        own = injected(pod) if silent else None
        config = merged_config(pod, strategy.for_qos(pod.qos), own).memory_qos
        if config is None:
            continue
        request = _pod_request(pod)
        for name, percent in (("memory.min", config.min_limit_percent), ("memory.low", config.low_limit_percent)):
            if percent is not None:
                of_class = sums.setdefault(pod.kube_qos, {})
                of_class[name] = of_class.get(name, 0) + percent_of(request, percent)
        cached = _page_cache(config, pod) if page_cache else {}
        pod_values += writes_of(pod.directory, _values(config, request) | cached)
        for container in pod.containers:
            if container.directory:
                limit = _container_limit(pod, container.spec)
                values = _values(config, _container_request(pod, container.spec))
                values["memory.high"] = _high(
                    config, _container_request(pod, container.spec), allocatable if limit is None else limit, page_size
                )
                low_bound, high = values["memory.min"], values["memory.high"]
                if low_bound is not None and high is not None and 0 < high < low_bound:
                    values["memory.high"] = low_bound
                container_values += writes_of(container.directory, values)
    return MemoryValues(
        tiers=_tier_values(strategy, sums, paths),
        pods=pod_values,
        containers=container_values,
        protected=frozenset({*sums, GUARANTEED} if sums else ()),
    )


def merged_config(pod: PodState, node: ResourceQOS | None, injected: PodMemoryQOS | None = None) -> ResourceQOS:
    """Return the pod's configuration: class, template by policy, then its own fields."""
    node = node or ResourceQOS()
    text = (pod.pod.metadata.annotations or {}).get(qos.ANNOTATION_MEMORY_QOS)
    own = injected
    if text is not None:
        try:
            own = decode_folded(text, PodMemoryQOS, what=qos.ANNOTATION_MEMORY_QOS)
        except InvalidInput:
            own = None
    if own is None:
        return node
    if own.policy == NONE:
        return msgspec.structs.replace(node, memory_qos=OFF)
    memory = node.memory_qos or MemoryQOS()
    if own.policy == AUTO:
        memory = msgspec.structs.replace(TEMPLATES.get(pod.qos, MemoryQOS()), enable=memory.enable)
    changes = {
        name: value for name, value in msgspec.structs.asdict(own).items() if name != "policy" and value is not None
    }
    return msgspec.structs.replace(node, memory_qos=msgspec.structs.replace(memory, **changes))


def _tier_values(
    strategy: ResourceQOSStrategy, sums: Mapping[str, Mapping[str, int]], paths: CgroupPaths
) -> list[MemoryValue]:
    found: list[MemoryValue] = []
    for kube_qos in (GUARANTEED, BURSTABLE, BEST_EFFORT):
        values: dict[str, int | None] = {}
        for name in PROTECTIONS:
            # The Guaranteed directory is the root of all pods, so it carries what all of them need.
            of = sums.values() if kube_qos == GUARANTEED else [sums.get(kube_qos, {})]
            parts = [amounts[name] for amounts in of if name in amounts]
            values[name] = sum(parts) if parts else None
        block = strategy.for_kube_qos(kube_qos)
        config = block.memory_qos if block else None
        if config is not None:
            values |= _kill_order(config)
        found += writes_of(paths.tier(kube_qos), values)
    return found


def _values(config: MemoryQOS, request: int) -> dict[str, int | None]:
    minimum = None if config.min_limit_percent is None else percent_of(request, config.min_limit_percent)
    low = None if config.low_limit_percent is None else percent_of(request, config.low_limit_percent)
    if minimum is not None and low is not None and 0 < low < minimum:
        low = minimum
    return {
        "memory.min": minimum,
        "memory.low": low,
        "memory.high": None,
        "memory.wmark_ratio": config.wmark_ratio,
        "memory.wmark_scale_factor": config.wmark_scale_permill,
        "memory.wmark_min_adj": config.wmark_min_adj,
        **_kill_order(config),
    }


def _page_cache(config: MemoryQOS, pod: PodState) -> dict[str, int | None]:
    best_effort = pod.raw_qos == qos.BE
    limit = qos.extended_limit(pod.pod, qos.BATCH_MEMORY) if best_effort else qos.pod_memory_limit(pod.pod)
    return page_cache_limit(
        limit,
        size=config.page_cache_limit_size,
        percent=0 if config is OFF else config.page_cache_limit_percent,
        enable=config.page_cache_enable,
        sync=config.page_cache_reclaim_sync,
    )


def _kill_order(config: MemoryQOS) -> dict[str, int | None]:
    return {
        "memory.priority": config.priority,
        "memory.use_priority_oom": config.priority_enable,
        "memory.oom.group": config.oom_kill_group,
    }


def _high(config: MemoryQOS, request: int, limit: int, page_size: int) -> int | None:
    if config.throttling_percent is None:
        return None
    if config.throttling_percent == 0:
        return UNLIMITED
    return memory_high(request, limit, config.throttling_percent, page_size)


def _pod_request(pod: PodState) -> int:
    if pod.raw_qos == qos.BE:
        return qos.extended_request(pod.pod, qos.BATCH_MEMORY)
    return qos.pod_request(pod.pod).get("memory", ZERO).value


def _container_request(pod: PodState, container: Container) -> int:
    return qos.container_request(container, qos.BATCH_MEMORY if pod.raw_qos == qos.BE else "memory")


def _container_limit(pod: PodState, container: Container) -> int | None:
    limit = qos.container_limit(container, qos.BATCH_MEMORY if pod.raw_qos == qos.BE else "memory")
    return limit if limit > 0 else None


def _protection(value: MemoryValue, paths: CgroupPaths, *, raised: bool) -> TierProtection | None:
    """Return what a value of a tier says about its protection, None for a value of another kind."""
    if value.resource not in PROTECTIONS:
        return None
    return TierProtection(next(name for name in KUBE_QOS_CLASSES if paths.tier(name) == value.directory), raised)


def _write(
    value: MemoryValue, target: Target, pod: PodState | None = None, effect: TierProtection | None = None
) -> Write:
    return Write(
        file=files.CGROUP_FILES[value.resource],
        value=str(value.value),
        directory=value.directory,
        target=target,
        reason=REASON,
        subject=Subject(type="pod", namespace=pod.namespace, name=pod.name) if pod else Subject(),
        effect=effect,
    )
