"""CPU suppress as a strategy: one round from snapshot to plan, and the memory of what is in force.

The arithmetic is in `cpu_suppress`; here it is decided which policy runs, which one is taken back, and which
directories get a value. The tree below the best-effort tier is walked, not derived from the pods: a container that
the agent does not know yet must not keep CPUs that were taken away.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta

from kubetide.api import qos, reservation, resources
from kubetide.api.cgroups import BEST_EFFORT, join
from kubetide.api.cpuset import CpuSet
from kubetide.api.quantity import ZERO
from kubetide.errors import InvalidInput
from kubetide.node.executor.plan import Batch, Plan, Subject, Target, Write
from kubetide.node.hooks.cpuset import kubelet_policy
from kubetide.node.host import files
from kubetide.node.host.protocol import is_gone
from kubetide.node.qos import cpu_suppress as rule
from kubetide.node.qos.switch import skipped, threshold_of
from kubetide.node.series import kinds
from kubetide.node.snapshot import PodState, Snapshot
from kubetide.node.usage import UsageSplit, is_not_best_effort, is_not_best_effort_application, split_usage

CFS_QUOTA = "cfsQuota"
STATIC = "static"
USING, RECOVERED = "using", "recovered"
REASON = "AdjustBEByNodeCPUUsage"
RECOVERY_REASON = "suppressBECPU"


@dataclass(slots=True)
class CpuSuppress:
    """Keeps best-effort work within what latency-sensitive pods leave."""

    interval: timedelta = timedelta(seconds=1)
    name: str = "cpu-suppress"
    gate: str = "BECPUSuppress"
    quota_status: str | None = None
    cpuset_status: str | None = None

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the writes of one round."""
        threshold = threshold_of(snapshot)
        if threshold is None:
            return skipped("no NodeSLO, or its switch for best-effort work is missing")
        if snapshot.gates.get("BECPUManager", False):
            quota = self._recover_quota(snapshot)
            cpusets = self._recover_cpusets(snapshot, keep_managed=True)
            return Plan(batches=(*quota, *cpusets), trace={"policy": "left to the best-effort CPU manager"})
        if not threshold.enable:
            batches = (*self._recover_quota(snapshot), *self._recover_cpusets(snapshot))
            return Plan(batches=batches, trace={"policy": "off", "reason": "disabled by the NodeSLO"})
        node_used = snapshot.metrics.last(kinds.NODE_CPU)
        if snapshot.node is None or not snapshot.pods or node_used is None:
            return skipped("node, pods or the node's CPU usage are not known")
        percent = threshold.cpu_suppress_threshold_percent
        usage = _usage(snapshot, node_used)
        capacity = resources.parse_list(snapshot.node.status.capacity).get(resources.CPU, ZERO)
        left = rule.left_milli(
            capacity_milli=capacity.milli,
            threshold_percent=65 if percent is None else percent,
            pods=usage.pods,
            host_applications=usage.host_applications,
            system=usage.system,
        )
        trace = {
            "policy": threshold.cpu_suppress_policy or "cpuset",
            "leftMilli": left,
            "thresholdPercent": percent,
            "nodeUsedCores": round(node_used, 3),
            "podsUsedCores": round(usage.pods, 3),
            "hostApplicationsUsedCores": round(usage.host_applications, 3),
            "systemUsedCores": round(usage.system, 3),
        }
        if threshold.cpu_suppress_policy == CFS_QUOTA:
            batches = self._by_quota(snapshot, left, capacity.value, trace)
            self.quota_status = USING
            return Plan(batches=(*batches, *self._recover_cpusets(snapshot)), trace=trace)
        batches = self._by_cpuset(snapshot, left, trace)
        self.cpuset_status = USING
        return Plan(batches=(*batches, *self._recover_quota(snapshot)), trace=trace)

    def release(self, snapshot: Snapshot) -> Plan:
        """Return the writes that lift what this strategy narrowed; nobody would lift it without the agent."""
        batches: list[Batch] = []
        if self.quota_status == USING:
            batches += self._recover_quota(snapshot)
        if self.cpuset_status == USING:
            batches += self._recover_cpusets(snapshot)
        return Plan(batches=tuple(batches))

    def _by_quota(self, snapshot: Snapshot, left: int, cpus: int, trace: dict[str, object]) -> tuple[Batch, ...]:
        tier = snapshot.paths.tier(BEST_EFFORT)
        try:
            current = snapshot.cgroups.cpu_quota(tier)
        except (OSError, InvalidInput) as error:
            trace["skipped"] = f"the quota of {tier} cannot be read: {error}"
            return ()
        target = rule.quota_target(left, cpus, current)
        trace |= {"currentQuota": current, "quota": current if target is None else target}
        if target is None:
            return ()
        message = f"best-effort quota {current} -> {target} us, {left} milli-CPU left"
        node = Subject(type="node", name=snapshot.node.metadata.name if snapshot.node else "")
        write = Write(
            file=files.CPU_QUOTA,
            value=str(target),
            directory=tier,
            target=Target.TIER,
            reason=REASON,
            level=1,
            subject=node,
            message=message,
        )
        return (Batch.flat(write, cached=False),)

    def cpuset_plan(self, snapshot: Snapshot, left: int) -> Plan:
        """Return the writes of the cpuset policy for this much CPU."""
        trace: dict[str, object] = {}
        return Plan(batches=self._by_cpuset(snapshot, left, trace), trace=trace)

    def _by_cpuset(self, snapshot: Snapshot, left: int, trace: dict[str, object]) -> tuple[Batch, ...]:
        try:
            owner, excluded = _owner(snapshot), rule.excluded_cpus(snapshot.topology_annotations)
            current = snapshot.cgroups.cpuset(snapshot.paths.tier(BEST_EFFORT))
        except (InvalidInput, OSError) as error:
            trace["skipped"] = f"CPUs cannot be chosen: {error}"
            return ()
        count = rule.cpu_count(left, len(current), len(snapshot.processors))
        chosen = rule.choose(count, rule.pools(snapshot.processors, owner, excluded))
        trace |= {"currentCpus": str(current), "cpus": str(chosen), "count": count}
        if not len(chosen):
            return ()
        plan = self.cpus_plan(snapshot, chosen, f"best-effort CPUs {current} -> {chosen}, {left} milli-CPU left")
        trace |= plan.trace
        return plan.batches

    def cpus_plan(self, snapshot: Snapshot, chosen: CpuSet, message: str = "") -> Plan:
        """Return the writes that put these CPUs into force.

        With the kubelet's static CPU manager only containers get them: it refuses directories above them that lack
        CPUs it hands out itself. Before the topology is known nobody can tell which manager runs, so nothing is
        narrowed.
        """
        if not snapshot.topology_annotations:
            return skipped("the node's topology is not known yet")
        tier = snapshot.paths.tier(BEST_EFFORT)
        try:
            upper = chosen
            if kubelet_policy(snapshot.topology_annotations) == STATIC:
                excluded = rule.excluded_cpus(snapshot.topology_annotations)
                upper = rule.all_best_effort(snapshot.processors, _owner(snapshot), excluded)
        except InvalidInput as error:
            return skipped(f"the kubelet's CPU policy cannot be read: {error}")
        return Plan(batches=(_cpu_batch(snapshot, tier, upper, chosen, message),))

    def _recover_quota(self, snapshot: Snapshot) -> tuple[Batch, ...]:
        if self.quota_status == RECOVERED:
            return ()
        self.quota_status = RECOVERED
        write = Write(
            file=files.CPU_QUOTA,
            value="-1",
            directory=snapshot.paths.tier(BEST_EFFORT),
            target=Target.TIER,
            reason=RECOVERY_REASON,
            message="best-effort quota lifted",
        )
        return (Batch.flat(write, cached=False),)

    def _recover_cpusets(self, snapshot: Snapshot, *, keep_managed: bool = False) -> tuple[Batch, ...]:
        """Give every directory below the tier all best-effort CPUs; every round, because new ones appear."""
        try:
            cpus = rule.all_best_effort(
                snapshot.processors, _owner(snapshot), rule.excluded_cpus(snapshot.topology_annotations)
            )
        except InvalidInput:
            return ()
        if not len(cpus):
            return ()
        self.cpuset_status = RECOVERED
        managed = {pod.directory for pod in snapshot.pods if _managed(pod)} if keep_managed else set()
        tier = snapshot.paths.tier(BEST_EFFORT)
        return (_cpu_batch(snapshot, tier, cpus, cpus, "best-effort CPUs given back", without=managed),)


def _usage(snapshot: Snapshot, node_used: float) -> UsageSplit:
    reserved = reservation.node_reserved(snapshot.node).get(resources.CPU, ZERO) if snapshot.node else ZERO
    return split_usage(
        node_used,
        float(reserved),
        (pod.pod for pod in snapshot.pods),
        snapshot.metrics.latest(kinds.POD_CPU, kinds.POD_UID),
        snapshot.host_applications,
        snapshot.metrics.latest(kinds.HOST_APP_CPU, kinds.HOST_APP_NAME),
        counts_pod=is_not_best_effort,
        counts_application=is_not_best_effort_application,
    )


def _owner(snapshot: Snapshot) -> dict[int, str]:
    return rule.owners((pod.raw_qos, pod.pod.metadata.annotations) for pod in snapshot.pods)


def _managed(pod: PodState) -> bool:
    """Tell whether the scheduler decided about the pod's CPUs: then its containers belong to the cpuset hook."""
    try:
        status = qos.resource_status(pod.pod.metadata.annotations)
    except InvalidInput:
        return False
    return status is not None and bool(status.cpuset or status.numa_node_resources)


def _cpu_batch(
    snapshot: Snapshot, tier: str, upper: CpuSet, lower: CpuSet, message: str, *, without: Collection[str] = ()
) -> Batch:
    """Return one leveled update of the tier: `upper` for it and its pods, `lower` for what is inside the pods."""
    pods, containers = _tree(snapshot, tier)
    containers = [path for path in containers if path.rpartition("/")[0] not in without]
    return Batch(
        levels=(
            tuple(_cpus([tier], upper, Target.TIER, message)),
            tuple(_cpus(pods, upper, Target.POD, message)),
            tuple(_cpus(containers, lower, Target.CONTAINER, message)),
        ),
        leveled=True,
    )


def _tree(snapshot: Snapshot, tier: str) -> tuple[list[str], list[str]]:
    """Return the pod and container directories below a tier, in lexical order."""
    pods = [join(tier, name) for name in _children(snapshot, tier)]
    return pods, [join(pod, name) for pod in pods for name in _children(snapshot, pod)]


def _children(snapshot: Snapshot, directory: str) -> list[str]:
    reader = snapshot.cgroups
    try:
        return sorted(reader.host.list_dirs(reader.layout.cgroup_dir("cpuset", directory)))
    except OSError as error:
        if is_gone(error):
            return []
        raise


def _cpus(directories: Iterable[str], cpus: CpuSet, target: Target, message: str) -> Iterable[Write]:
    for directory in directories:
        yield Write(
            file=files.CPUSET, value=str(cpus), directory=directory, target=target, reason=REASON, message=message
        )
