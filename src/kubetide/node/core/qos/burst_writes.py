"""The writes of CPU burst: kernel bursts, quotas of containers, and what their pod's quota has to follow.

    pod = current + what its containers gain or lose + what is owed

A pod's quota moves by what the quotas of its containers move. When the kernel takes one of these writes and not the
other, the difference is owed: the next sync makes up for it, or the pod would throttle (or outgrow) its containers
for ever. Every quota therefore says what it adds to the debt once it is in force.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kubetide.api.qos import cpu_normalization, qos
from kubetide.api.qos.slo_strategies import CPUBurstConfig
from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.formats import cpu
from kubetide.node.core.plan import Batch, Subject, Target, Write
from kubetide.node.core.qos.burst_quota import Operation, static_burst_us
from kubetide.node.core.snapshot import ContainerState, PodState, Snapshot

AUTO, BURST_ONLY, QUOTA_ONLY = "auto", "cpuBurstOnly", "cfsQuotaBurstOnly"
DEFAULT_BURST_PERCENT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStep:
    """What happens to the quota of one container."""

    container: ContainerState
    limit_milli: int
    current: int
    target: int
    operation: Operation

    @property
    def delta(self) -> int:
        """Return by how much the quota changes."""
        return self.target - self.current


@dataclass(frozen=True, slots=True)
class Moved:
    """What a quota that is in force adds to what its pod owes: its own change, or for the pod's quota the reverse."""

    pod: str
    owed: int


def base_quota(snapshot: Snapshot, pod: PodState, limit_milli: int) -> int:
    """Return the quota of a limit; on a normalized node the scaled one, or two writers would undo each other."""
    base = cpu.milli_to_quota(limit_milli)
    if not snapshot.gates.get("CPUNormalization", False) or snapshot.node is None or pod.raw_qos == qos.SYSTEM:
        return base
    try:
        ratio = cpu_normalization.node_ratio(snapshot.node.metadata.annotations)
    except InvalidInput:
        return base
    return cpu.normalized_quota(base, ratio)


def container_burst(limit_milli: int, config: CPUBurstConfig) -> int:
    """Return the cfs burst of a container; 0 while its policy does not allow one."""
    if config.policy not in (AUTO, BURST_ONLY):
        return 0
    percent = DEFAULT_BURST_PERCENT if config.cpu_burst_percent is None else config.cpu_burst_percent
    return static_burst_us(limit_milli, percent)


def burst_writes(pod: PodState, config: CPUBurstConfig) -> list[Write]:
    """Return the bursts of the containers and, as their sum, of the pod. The executor keeps them below the quota."""
    writes: list[Write] = []
    total = 0
    for container in pod.containers:
        if not container.directory:
            continue
        value = container_burst(qos.container_cpu_limit_millis(container.spec), config)
        total += value
        writes.append(
            Write(
                file=files.CPU_BURST,
                value=str(value),
                directory=container.directory,
                target=Target.CONTAINER,
                reason="CPUBurst",
                subject=_subject(pod, container),
            )
        )
    if writes:
        writes.append(
            Write(
                file=files.CPU_BURST,
                value=str(total),
                directory=pod.directory,
                target=Target.POD,
                reason="CPUBurst",
                subject=_subject(pod),
            )
        )
    return writes


def quota_writes(
    snapshot: Snapshot, pod: PodState, steps: Iterable[QuotaStep], *, owed: int = 0
) -> tuple[tuple[Write, ...], tuple[Write, ...]]:
    """Return the quota of the pod, moved by what its containers gain or lose, and the quotas of the containers.

    `owed` is what is left over from writes that failed. An unlimited pod is left alone. A pod does not shrink below
    what its containers may use at least: one that starts anew comes with a quota that the pod's never had.
    """
    known = list(steps)
    moving = [step for step in known if step.delta]
    below = tuple(
        Write(
            file=files.CPU_QUOTA,
            value=str(step.target),
            directory=step.container.directory,
            target=Target.CONTAINER,
            reason="CFSQuotaBurst",
            subject=_subject(pod, step.container),
            message=f"{step.operation} from {step.current}",
            effect=Moved(pod.directory, step.delta),
        )
        for step in moving
    )
    delta = sum(step.delta for step in moving) + owed
    current = snapshot.kernel.quotas.get(pod.directory)
    if not delta or current is None or current <= 0:
        return (), below
    target = current + delta
    if delta < 0:
        target = max(target, base_quota(snapshot, pod, sum(step.limit_milli for step in known)))
    above = Write(
        file=files.CPU_QUOTA,
        value=str(target),
        directory=pod.directory,
        target=Target.POD,
        reason="CFSQuotaBurst",
        subject=_subject(pod),
        message=f"{target - current:+d} for its containers",
        effect=Moved(pod.directory, -delta),
    )
    return (above,), below


def quota_batch(above: Iterable[Write], below: Iterable[Write]) -> Batch:
    """Return the quotas of pods and of containers as one update.

    Each differs from what the kernel was just seen to have, so what was written a while ago does not count.
    """
    return Batch(levels=(tuple(above), tuple(below)), leveled=True, cached=False)


def _subject(pod: PodState, container: ContainerState | None = None) -> Subject:
    if container is None:
        return Subject(type="pod", namespace=pod.namespace, name=pod.name)
    return Subject(
        type="pod",
        namespace=pod.namespace,
        name=pod.name,
        container=container.name,
        container_id=container.id,
    )
