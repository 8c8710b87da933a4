"""CPU suppress as a strategy: one sync from snapshot to plan, and the memory of what is in force.

The arithmetic is in `cpu_suppress`; here it is decided which policy runs, which one is taken back, and which
directories get a value. The tree below the best-effort tier is taken from the kernel, not derived from the pods: a
container that the agent does not know yet must not keep CPUs that were taken away.

    using        the kernel has a limit of ours: it was written, or found while the policy is on
    recovered    the kernel took the write that lifts it; until then lifting is tried again every sync
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from kubetide.api.objects import resources
from kubetide.api.qos import qos, reservation
from kubetide.api.qos.cgroups import BEST_EFFORT, join
from kubetide.api.values.cpuset import CpuSet
from kubetide.api.values.quantity import ZERO
from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.compat import SMALLEST_CPUSET, SUPPRESS_MINIMUM
from kubetide.node.core.hooks.cpuset import kubelet_policy
from kubetide.node.core.kernel_values import NOTHING, Needs
from kubetide.node.core.outcomes import Outcomes
from kubetide.node.core.plan import Batch, Plan, Subject, Target, Write
from kubetide.node.core.qos import cpu_suppress as rule
from kubetide.node.core.qos.share_control import ShareControl
from kubetide.node.core.qos.strategy import skipped, threshold_of
from kubetide.node.core.series import kinds
from kubetide.node.core.snapshot import PodState, Snapshot
from kubetide.node.core.usage import UsageSplit, is_not_best_effort, is_not_best_effort_application, split_usage

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
    share: ShareControl = field(default_factory=ShareControl)
    """What the threshold follows instead of being fixed, if somebody asked for that."""
    _batch: tuple[tuple[object, ...], Batch] | None = None
    """The last update of the CPUs with what it was made from: the same tree gets the same batch, not one like it."""

    def needs(self, snapshot: Snapshot) -> Needs:
        """Return the limits of the best-effort tier and the tree below it."""
        tier = (snapshot.paths.tier(BEST_EFFORT),)
        threshold = threshold_of(snapshot)
        if threshold is not None:
            chooses = threshold.cpu_suppress_policy != CFS_QUOTA and snapshot.compat.has(SMALLEST_CPUSET)
            inside = tier if chooses else ()
            return Needs(quotas=tier, cpus=tier, trees=tier, cpus_inside=inside, texts=self.share.places(snapshot))
        return Needs(trees=tier) if self.cpuset_status == USING else NOTHING  # to release it

    def applied(self, plan: Plan, outcomes: Outcomes) -> None:
        """Take over what is in force: a quota that was taken, CPUs of which some were taken or all given back."""
        given_back, kept = False, False
        for outcome in outcomes:
            status = str(outcome.write.effect)
            if outcome.write.file is files.CPU_QUOTA:
                if outcome.in_force:
                    self.quota_status = status
            elif status == RECOVERED:
                given_back, kept = True, kept or outcome.failed
            elif outcome.in_force:
                self.cpuset_status = USING
        if given_back and not kept:
            self.cpuset_status = RECOVERED

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the writes of one sync."""
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
        capacity = resources.parse_list(snapshot.node.status.capacity).get(resources.CPU, ZERO)
        if capacity <= ZERO:
            return skipped("the node reports no CPU capacity")
        percent, least = threshold.cpu_suppress_threshold_percent, threshold.cpu_suppress_min_percent
        allowed, controlled = self.share.step(snapshot, 65 if percent is None else percent, least)
        usage = _usage(snapshot, node_used)
        left = rule.left_milli(
            capacity_milli=capacity.milli,
            threshold_percent=allowed,
            pods=usage.pods,
            host_applications=usage.host_applications,
            system=usage.system,
            min_percent=least if snapshot.compat.has(SUPPRESS_MINIMUM) else None,
        )
        best_effort = snapshot.metrics.last(kinds.NODE_BE, kinds.BE_CPU_USED)
        trace = {
            "policy": threshold.cpu_suppress_policy or "cpuset",
            "leftMilli": left,
            "thresholdPercent": percent,
            "nodeUsedCores": round(node_used, 3),
            "podsUsedCores": round(usage.pods, 3),
            "hostApplicationsUsedCores": round(usage.host_applications, 3),
            "systemUsedCores": round(usage.system, 3),
            "bestEffortUsedCores": None if best_effort is None else best_effort / 1000,
            **controlled,
        }
        if threshold.cpu_suppress_policy == CFS_QUOTA:
            batches = self._by_quota(snapshot, left, capacity.value, trace)
            return Plan(batches=(*batches, *self._recover_cpusets(snapshot)), trace=trace)
        batches = self._by_cpuset(snapshot, left, trace)
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
        current = snapshot.kernel.quotas.get(tier)
        if current is None:
            trace["skipped"] = f"the quota of {tier} cannot be read: {snapshot.kernel.problem(files.CPU_QUOTA, tier)}"
            return ()
        if current >= 0:
            self.quota_status = USING  # also one that an agent before this one left behind
        target = rule.quota_target(left, cpus, current)
        trace |= {"currentQuota": current, "quota": current if target is None else target}
        trace["reason"] = f"best-effort work may use {left}m of CPU, what is left below the threshold{_told(trace)}"
        if target is None:
            return ()
        message = f"best-effort quota {current} -> {target} us, {left} milli-CPU left{_told(trace)}"
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
            effect=USING,
        )
        return (Batch.flat(write, cached=False),)

    def _by_cpuset(self, snapshot: Snapshot, left: int, trace: dict[str, object]) -> tuple[Batch, ...]:
        tier = snapshot.paths.tier(BEST_EFFORT)
        current = _current_cpus(snapshot, tier)
        if current is None:
            trace["skipped"] = f"the CPUs of {tier} cannot be read: {snapshot.kernel.problem(files.CPUSET, tier)}"
            return ()
        try:
            owner, excluded = _owner(snapshot), rule.excluded_cpus(snapshot.topology_annotations)
        except InvalidInput as error:
            trace["skipped"] = f"CPUs cannot be chosen: {error}"
            return ()
        count = rule.cpu_count(left, len(current), len(snapshot.processors))
        chosen = rule.choose(count, rule.pools(snapshot.processors, owner, excluded))
        trace |= {"currentCpus": str(current), "cpus": str(chosen), "count": count}
        trace["reason"] = f"best-effort work may use CPUs {chosen}: {left}m are left below the threshold{_told(trace)}"
        if not len(chosen):
            return ()
        change = (
            f"{current} -> {chosen}, {left} milli-CPU left{_told(trace)}" if chosen != current else f"{chosen} kept"
        )
        plan = self.cpus_plan(snapshot, chosen, f"best-effort CPUs {change}")
        trace |= plan.trace
        return plan.batches

    def cpus_plan(self, snapshot: Snapshot, chosen: CpuSet, message: str = "") -> Plan:
        """Return the writes that put these CPUs into force.

        With the kubelet's static CPU manager only containers get them: it refuses directories above them that lack
        CPUs it hands out itself. Before the topology is known nobody knows which manager runs, so nothing is
        narrowed.
        """
        if not snapshot.topology_annotations:
            return skipped("the node's topology is not known yet")
        tier = snapshot.paths.tier(BEST_EFFORT)
        if (unread := _unread(snapshot, tier)) is not None:
            return skipped(f"the cgroups below {unread} are not known")
        try:
            upper = chosen
            if kubelet_policy(snapshot.topology_annotations) == STATIC:
                excluded = rule.excluded_cpus(snapshot.topology_annotations)
                upper = rule.all_best_effort(snapshot.processors, _owner(snapshot), excluded)
        except InvalidInput as error:
            return skipped(f"the kubelet's CPU policy cannot be read: {error}")
        return Plan(batches=(self._cpu_batch(snapshot, tier, upper, chosen, message, USING),))

    def _recover_quota(self, snapshot: Snapshot) -> tuple[Batch, ...]:
        if self.quota_status == RECOVERED:
            return ()
        write = Write(
            file=files.CPU_QUOTA,
            value="-1",
            directory=snapshot.paths.tier(BEST_EFFORT),
            target=Target.TIER,
            reason=RECOVERY_REASON,
            message="best-effort quota lifted",
            effect=RECOVERED,
        )
        return (Batch.flat(write, cached=False),)

    def _recover_cpusets(self, snapshot: Snapshot, *, keep_managed: bool = False) -> tuple[Batch, ...]:
        """Give every directory below the tier all best-effort CPUs; every sync, because new ones appear."""
        try:
            cpus = rule.all_best_effort(
                snapshot.processors, _owner(snapshot), rule.excluded_cpus(snapshot.topology_annotations)
            )
        except InvalidInput:
            return ()
        tier = snapshot.paths.tier(BEST_EFFORT)
        if not len(cpus) or _unread(snapshot, tier) is not None:
            return ()
        managed = {pod.directory for pod in snapshot.pods if _managed(pod)} if keep_managed else set()
        return (self._cpu_batch(snapshot, tier, cpus, cpus, "best-effort CPUs given back", RECOVERED, managed),)

    def _cpu_batch(
        self,
        snapshot: Snapshot,
        tier: str,
        upper: CpuSet,
        lower: CpuSet,
        message: str,
        effect: str,
        without: Collection[str] = (),
    ) -> Batch:
        """Return one leveled update of the tier: `upper` for it and its pods, `lower` for what is inside the pods."""
        children = snapshot.kernel.children
        inputs = (tier, upper, lower, message, effect, without, children)
        if self._batch is None or self._batch[0] != inputs:
            pods = [join(tier, name) for name in children.get(tier, ())]
            containers = [join(pod, name) for pod in pods if pod not in without for name in children.get(pod, ())]
            levels = (
                _cpu_writes([tier], upper, Target.TIER, message, effect),
                _cpu_writes(pods, upper, Target.POD, message, effect),
                _cpu_writes(containers, lower, Target.CONTAINER, message, effect),
            )
            self._batch = (inputs, Batch(levels=levels, leveled=True))
        return self._batch[1]


def _told(trace: Mapping[str, object]) -> str:
    """Return what the audit log and `explain` add about a threshold that is controlled."""
    share = trace.get("share")
    if not isinstance(share, dict) or "target" not in share:
        return ""
    return f" of {share['percent']} % ({share['target']}, observed {share['observedPercent']}: {share['reason']})"


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


def _current_cpus(snapshot: Snapshot, tier: str) -> CpuSet | None:
    """Return the fewest CPUs of the tier or of a container below it; None while those of the tier are not known.

    Under the kubelet's static CPU manager only containers are narrowed, and sandboxes keep all CPUs. A container that
    went away meanwhile, or has none of its own, says nothing.
    """
    if tier not in snapshot.kernel.cpus:
        return None
    return min((cpus for cpus in snapshot.kernel.cpus.values() if len(cpus)), key=len, default=CpuSet())


def _owner(snapshot: Snapshot) -> dict[int, str]:
    return rule.owners((pod.raw_qos, pod.pod.metadata.annotations) for pod in snapshot.pods)


def _managed(pod: PodState) -> bool:
    """Return whether the scheduler decided about the pod's CPUs: then its containers belong to the cpuset hook."""
    try:
        status = qos.resource_status(pod.pod.metadata.annotations)
    except InvalidInput:
        return False
    return status is not None and bool(status.cpuset or status.numa_node_resources)


def _unread(snapshot: Snapshot, tier: str) -> str | None:
    """Return a directory of the tree whose children could not be read: what is below it would be forgotten."""
    children = snapshot.kernel.children
    places = (tier, *(join(tier, name) for name in children.get(tier, ())))
    return next((place for place in places if place not in children), None)


def _cpu_writes(
    directories: Iterable[str], cpus: CpuSet, target: Target, message: str, effect: str
) -> tuple[Write, ...]:
    value = str(cpus)
    return tuple(
        Write(
            file=files.CPUSET,
            value=value,
            directory=directory,
            target=target,
            reason=REASON,
            message=message,
            effect=effect,
        )
        for directory in directories
    )
