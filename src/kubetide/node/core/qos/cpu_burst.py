"""CPU burst as a strategy: the kernel's own burst, and quotas that grow while a container is throttled.

Latency-sensitive pods are throttled by short spikes although the node has CPU to spare. Two remedies: the kernel
lets a cgroup save unused quota for a spike (cfs burst), and the agent raises the quota itself step by step, as long
as the shared pool has room and the container's token bucket allows it. The numbers are in `burst_quota`, the
files they are written to in `burst_writes`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import CPUBurstConfig
from kubetide.api.values.codec import decode_folded
from kubetide.api.values.quantity import ZERO
from kubetide.errors import InvalidInput
from kubetide.node.core.kernel_values import NOTHING, Needs
from kubetide.node.core.outcomes import Outcomes
from kubetide.node.core.plan import Batch, Plan, Write
from kubetide.node.core.qos.burst_limiter import Limiters
from kubetide.node.core.qos.burst_quota import (
    Operation,
    PoolState,
    ceiling_us,
    pool_state,
    target_us,
    under_pool,
    usage_percent,
)
from kubetide.node.core.qos.burst_writes import (
    AUTO,
    QUOTA_ONLY,
    Moved,
    QuotaStep,
    base_quota,
    burst_writes,
    quota_batch,
    quota_writes,
)
from kubetide.node.core.qos.extensions import Extensions
from kubetide.node.core.qos.strategy import skipped
from kubetide.node.core.series import kinds
from kubetide.node.core.series.query import AVG
from kubetide.node.core.snapshot import ContainerState, PodState, Snapshot

DEFAULT_POOL_PERCENT = 50
LONGEST_WINDOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ContainerSamples:
    """The newest samples of all containers by id, asked for once per sync: a node has hundreds of them."""

    used: Mapping[str, float]
    throttled: Mapping[str, float]

    @staticmethod
    def of(snapshot: Snapshot) -> "ContainerSamples":
        """Return those of a snapshot."""
        return ContainerSamples(
            snapshot.metrics.latest(kinds.CONTAINER_CPU, kinds.CONTAINER_ID),
            snapshot.metrics.latest(kinds.CONTAINER_THROTTLED, kinds.CONTAINER_ID),
        )


@dataclass(slots=True)
class CpuBurst:
    """Lets containers of the shared pool exceed their CPU limit for a while."""

    limiters: Limiters
    interval: timedelta = timedelta(seconds=1)
    name: str = "cpu-burst"
    gate: str = "CPUBurst"
    extensions: Extensions = field(default_factory=Extensions)
    """Who is asked about pods without the annotation."""
    _owed: dict[str, int] = field(default_factory=dict)
    """By directory of a pod: how far the quotas of its containers moved and its own did not."""
    _bursts: dict[str, tuple[PodState, CPUBurstConfig, list[Write]]] = field(default_factory=dict)
    """By directory of a pod: its bursts, and what they were made from."""
    _batch: Batch = field(default_factory=Batch.flat)
    """The bursts of the last sync: the same bursts are handed over as the same batch."""

    def needs(self, snapshot: Snapshot) -> Needs:
        """Return the quotas of the pods that may burst and of their containers."""
        if snapshot.slo is None or snapshot.slo.cpu_burst_strategy is None:
            return NOTHING
        quotas: list[str] = []
        for pod in snapshot.pods:
            if _may_burst(pod):
                quotas.append(pod.directory)
                quotas += (one.directory for one in pod.containers if one.directory)
        return Needs(quotas=quotas)

    def applied(self, plan: Plan, outcomes: Outcomes) -> None:
        """Note by how much a pod and its containers now differ from what was planned together."""
        for outcome in outcomes:
            if isinstance(moved := outcome.write.effect, Moved) and outcome.in_force:
                self._owed[moved.pod] = self._owed.get(moved.pod, 0) + moved.owed
        self._owed = {pod: owed for pod, owed in self._owed.items() if owed}

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the burst and quota of every container that may burst."""
        node = snapshot.slo.cpu_burst_strategy if snapshot.slo else None
        if node is None:
            return skipped("no CPU burst strategy in the NodeSLO")
        state = self._pool(snapshot, node.share_pool_threshold_percent)
        plain = CPUBurstConfig(
            policy=node.policy,
            cpu_burst_percent=node.cpu_burst_percent,
            cfs_quota_burst_percent=node.cfs_quota_burst_percent,
            cfs_quota_burst_period_seconds=node.cfs_quota_burst_period_seconds,
        )
        pod_quotas: list[Write] = []
        container_quotas: list[Write] = []
        bursts: list[Write] = []
        made: dict[str, tuple[PodState, CPUBurstConfig, list[Write]]] = {}
        moved: dict[str, object] = {}
        samples = ContainerSamples.of(snapshot)
        for pod in snapshot.pods:
            if not _may_burst(pod):
                continue
            config = self._config(pod, plain)
            known = self._bursts.get(pod.directory)
            if known is None or known[0] is not pod or known[1] != config:
                known = (pod, config, burst_writes(pod, config))
            made[pod.directory] = known
            bursts += known[2]
            steps = self.quota_steps(snapshot, pod, config, state, samples)
            above, below = quota_writes(snapshot, pod, steps, owed=self._owed.get(pod.directory, 0))
            pod_quotas += above
            container_quotas += below
            for step in steps:
                if step.delta:
                    moved[f"{pod.key}/{step.container.name}"] = f"{step.current} -> {step.target} ({step.operation})"
        self.limiters.drop_expired(snapshot.now)
        self._bursts = made
        if self._batch.levels != (tuple(bursts),):
            self._batch = Batch.flat(*bursts)
        if self._owed:
            here = {pod.directory for pod in snapshot.pods if snapshot.kernel.quotas.get(pod.directory, -1) > 0}
            self._owed = {pod: owed for pod, owed in self._owed.items() if pod in here}
        quota = quota_batch(pod_quotas, container_quotas)
        trace: dict[str, object] = {"pool": str(state), "quotas": moved, "limiters": len(self.limiters)}
        if self.extensions.problems:
            trace["extensions"] = dict(self.extensions.problems)
        return Plan(batches=(quota, self._batch), trace=trace)

    def _config(self, pod: PodState, node: CPUBurstConfig) -> CPUBurstConfig:
        annotations = pod.pod.metadata.annotations or {}
        if qos.ANNOTATION_CPU_BURST in annotations:
            return pod_config(annotations, node) or node
        injected = self.extensions.cpu_burst(pod) if self.extensions.active else None
        return pod_config(annotations, node, injected) or node

    def release(self, snapshot: Snapshot) -> Plan:
        """Return the writes that bring raised quotas back to their base: nobody would lower them without the agent."""
        above: list[Write] = []
        below: list[Write] = []
        for pod in snapshot.pods:
            if not _may_burst(pod):
                continue
            steps = self.quota_steps(snapshot, pod, CPUBurstConfig(policy="none"), PoolState.UNKNOWN)
            of_pod, of_containers = quota_writes(snapshot, pod, steps, owed=self._owed.get(pod.directory, 0))
            above += of_pod
            below += of_containers
        return Plan(batches=(quota_batch(above, below),))

    def quota_steps(
        self,
        snapshot: Snapshot,
        pod: PodState,
        config: CPUBurstConfig,
        state: PoolState,
        samples: ContainerSamples | None = None,
    ) -> list[QuotaStep]:
        """Return the quota step of every container that has a CPU limit and a cgroup and has not ended."""
        samples = samples or ContainerSamples.of(snapshot)
        steps: list[QuotaStep] = []
        for container in pod.containers:
            limit = qos.container_cpu_limit_millis(container.spec)
            if limit <= 0 or not container.directory or container.ended:
                continue
            current = snapshot.kernel.quotas.get(container.directory)
            if current is None:
                continue
            operation = under_pool(self._operation(snapshot, container, config, limit, samples), state)
            base = base_quota(snapshot, pod, limit)
            target = target_us(current, base, ceiling_us(base, config.cfs_quota_burst_percent), operation)
            steps.append(
                QuotaStep(container=container, limit_milli=limit, current=current, target=target, operation=operation)
            )
        return steps

    def _operation(
        self,
        snapshot: Snapshot,
        container: ContainerState,
        config: CPUBurstConfig,
        limit_milli: int,
        samples: ContainerSamples,
    ) -> Operation:
        used = samples.used.get(container.id)
        allowed = self.limiters.allow(
            container.id,
            period_seconds=config.cfs_quota_burst_period_seconds,
            percent=config.cfs_quota_burst_percent,
            usage_percent=usage_percent(used, limit_milli),
            now=snapshot.now,
        )
        if config.policy not in (AUTO, QUOTA_ONLY):
            return Operation.RESET
        if not allowed:
            return Operation.DOWN
        throttled = samples.throttled.get(container.id)
        return Operation.UP if throttled is not None and throttled > 0 else Operation.REMAIN

    def _pool(self, snapshot: Snapshot, threshold_percent: int | None) -> PoolState:
        seconds = min(5 * self.interval.total_seconds(), LONGEST_WINDOW_SECONDS)
        used = snapshot.metrics.averages(kinds.POD_CPU, kinds.POD_UID, seconds=seconds)
        return share_pool_state(
            node_used=snapshot.metrics.query(kinds.NODE_CPU, seconds=seconds).aggregate(AVG),
            cpus=len(snapshot.processors) or None,
            pods=snapshot.pods,
            pod_used=used,
            threshold_percent=DEFAULT_POOL_PERCENT if threshold_percent is None else threshold_percent,
        )


def share_pool_state(
    *,
    node_used: float | None,
    cpus: int | None,
    pods: Iterable[PodState],
    pod_used: Mapping[str, float],
    threshold_percent: int,
) -> PoolState:
    """Return how full the shared pool is; unknown without the node's usage or its CPUs."""
    if node_used is None or cpus is None:
        return PoolState.UNKNOWN
    total, used = float(cpus), node_used
    for pod in pods:
        if pod.raw_qos in (qos.LSE, qos.LSR):
            total -= qos.pod_request(pod.pod).get("cpu", ZERO).milli / 1000
        if pod.raw_qos in (qos.LSE, qos.LSR, qos.BE):
            used -= pod_used.get(pod.uid, 0.0)
    return pool_state(total_cores=total, used_cores=used, threshold_percent=threshold_percent)


def pod_config(
    annotations: Mapping[str, str] | None, node: CPUBurstConfig | None, injected: CPUBurstConfig | None = None
) -> CPUBurstConfig | None:
    """Return the node's config with the fields that the pod sets; a broken annotation counts as none."""
    text = (annotations or {}).get(qos.ANNOTATION_CPU_BURST)
    own = injected
    if text is not None:
        try:
            own = decode_folded(text, CPUBurstConfig, what=qos.ANNOTATION_CPU_BURST)
        except InvalidInput:
            return node
    if own is None:
        return node
    if node is None:
        return own
    changes = {name: value for name, value in msgspec.structs.asdict(own).items() if value is not None}
    return msgspec.structs.replace(node, **changes)


def _may_burst(pod: PodState) -> bool:
    """Return whether a pod lives in the shared pool. One that owns CPUs has no quota: a base would bring it back."""
    if pod.raw_qos in (qos.LSE, qos.LSR, qos.BE) or not pod.is_active:
        return False
    return bool(pod.raw_qos) or qos.dedicated_cpus(pod.pod.metadata.annotations) is None
