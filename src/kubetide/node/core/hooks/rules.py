"""The plugins, their rules, and which of them speaks for which object.

Rules come from the NodeSLO, the NodeResourceTopology and the Node; a rule is replaced as a whole, and an object that
cannot be read leaves the old rule in force. The plugins register in a fixed order, so that a best-effort pod with
CPUs of its own ends with the quota of its batch resources.

    pod         bvt: all · quota off: LSE, LSR · shares, quota, memory: BE · quota scaled: LS, unlabeled
    container   cpuset: all (quota off: LSE, LSR) · shares, quota, memory: BE · quota scaled: LS, unlabeled
    sandbox     cpuset: all (quota off: LSE, LSR)

An unlabeled pod with CPUs of its own counts as LSR here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kubetide.api.qos import cpu_normalization, qos
from kubetide.api.qos.cgroups import KUBE_QOS_CLASSES
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.compat import Compat
from kubetide.errors import InvalidInput
from kubetide.node.core.compat import NEWEST, NORMALIZED_AT_CREATION, POD_CPU_QOS
from kubetide.node.core.hooks import batch_resource, core_sched, cpuset, group_identity, normalization
from kubetide.node.core.hooks.context import ContainerRequest, HookResponse, HostAppRequest, KubeQosRequest, PodRequest
from kubetide.node.core.hooks.core_sched import CoreSchedRule
from kubetide.node.core.hooks.cpuset import CpusetRule
from kubetide.node.core.hooks.normalization import NormalizationRule
from kubetide.node.core.hooks.stages import FailurePolicy, Hooks, Stage
from kubetide.node.core.qos.pod_resctrl import group_of

GROUP_IDENTITY, CPUSET, GPU = "GroupIdentity", "CPUSetAllocator", "GPUEnvInject"
BATCH, NORMALIZATION, CORE_SCHED = "BatchResource", "CPUNormalization", "CoreSched"
OOM_SCORE, RESCTRL = "OOMScoreAdj", "Resctrl"
DEFAULT_GATES: dict[str, bool] = {
    GROUP_IDENTITY: True,
    CPUSET: True,
    GPU: False,
    BATCH: True,
    NORMALIZATION: False,
    CORE_SCHED: False,
    OOM_SCORE: False,
    RESCTRL: False,
}
Question = tuple[str, Callable[[], HookResponse]]
"""A plugin and what asks it; a plugin that cannot answer must not keep the others from being asked."""

_CONTAINER_STAGES = (Stage.PRE_CREATE_CONTAINER, Stage.PRE_UPDATE_CONTAINER_RESOURCES)


@dataclass(slots=True)
class HookRules:
    """The current rules of all plugins; None before the first word about them."""

    bvt: group_identity.BvtRule | None = None
    cpuset: CpusetRule | None = None
    batch: batch_resource.BatchRule = field(default_factory=batch_resource.BatchRule)
    normalization: NormalizationRule = field(default_factory=NormalizationRule)
    core_sched: CoreSchedRule | None = None


class Plugins:
    """All hook plugins of a node with their rules."""

    def __init__(
        self,
        *,
        gates: Mapping[str, bool] | None = None,
        policy: FailurePolicy = FailurePolicy.IGNORE,
        disabled: frozenset[Stage] = frozenset(),
        bvt_ready: bool = True,
        compat: Compat = NEWEST,
        keep_quota: bool = False,
    ) -> None:
        self.compat = compat
        self.keep_quota = keep_quota
        """Whether pods with CPUs of their own keep their CPU quota."""
        self.gates = {**DEFAULT_GATES, **(gates or {})}
        self.rules = HookRules()
        self.bvt_ready = bvt_ready
        """Whether the kernel has group identity and it is switched on."""
        self.resctrl_groups: frozenset[str] = frozenset()
        """Groups of single pods that exist: no runtime is told of another one."""
        self.hooks = Hooks(policy=policy, disabled=disabled)
        self._register()

    def on(self, plugin: str) -> bool:
        """Return whether a plugin is enabled."""
        return self.gates.get(plugin, False)

    def update_slo(self, spec: NodeSLOSpec) -> frozenset[str]:
        """Take over a NodeSLO; return the plugins whose rule changed."""
        changed: set[str] = set()
        bvt = group_identity.rule_from(spec)
        if bvt != self.rules.bvt:
            self.rules.bvt = bvt
            changed.add(GROUP_IDENTITY)
        if self.rules.batch.quota_enabled is None or not _forgotten(spec):
            self.rules.batch, updated = batch_resource.with_switch(self.rules.batch, spec)
            if updated:
                changed.add(BATCH)
        core = core_sched.rule_from(spec)
        if core != self.rules.core_sched:
            self.rules.core_sched = core
            changed.add(CORE_SCHED)
        return frozenset(name for name in changed if self.on(name))

    def update_topology(self, annotations: Mapping[str, str] | None) -> frozenset[str]:
        """Take over a NodeResourceTopology; return the plugins whose rule changed. Raise when it cannot be read."""
        rule = cpuset.rule_from_topology(annotations)
        if rule == self.rules.cpuset:
            return frozenset()
        self.rules.cpuset = rule
        return frozenset({CPUSET} if self.on(CPUSET) else ())

    def update_node(self, annotations: Mapping[str, str] | None) -> frozenset[str]:
        """Take over a Node; return the plugins whose rule changed. Raise when it cannot be read."""
        changed: set[str] = set()
        self.rules.batch, updated = batch_resource.with_ratio(
            self.rules.batch, cpu_normalization.node_ratio(annotations)
        )
        if updated:
            changed.add(BATCH)
        self.rules.normalization, updated = normalization.next_rule(self.rules.normalization, annotations)
        if updated:
            changed.add(NORMALIZATION)
        return frozenset(name for name in changed if self.on(name))

    def pod(self, request: PodRequest, *, restoring: bool = False) -> Iterable[Question]:
        """Yield what each plugin may want for a pod's own cgroup when it is reconciled.

        With `restoring` its quota may be scaled by a ratio that is gone, and is put back.
        """
        condition = _condition(request)
        if self.on(GROUP_IDENTITY):
            yield GROUP_IDENTITY, lambda: self._pod_bvt(request)
        if self.on(CPUSET) and condition in (qos.LSE, qos.LSR):
            yield CPUSET, lambda: HookResponse(cfs_quota=self._lifted_quota(request))
        if self.on(BATCH) and condition == qos.BE:
            yield BATCH, lambda: self._batch_pod(request)
        if self.on(NORMALIZATION) and condition in (qos.LS, qos.NONE):
            original = request.resources.quota if request.resources else None
            yield NORMALIZATION, lambda: self._normalized(request, original, restoring)

    def container(self, request: ContainerRequest, *, restoring: bool = False) -> Iterable[Question]:
        """Yield what each plugin may want for a container or sandbox when it is reconciled; `restoring` as for pods."""
        condition = _condition(request.pod)
        if self.on(CPUSET):
            yield CPUSET, lambda: self._container_cpus(request, owning=condition in (qos.LSE, qos.LSR))
        if request.sandbox:
            return
        if self.on(BATCH) and condition == qos.BE:
            yield BATCH, lambda: batch_resource.container_values(request, self.rules.batch)
        if self.on(NORMALIZATION) and condition in (qos.LS, qos.NONE):
            original = request.resources.quota if request.resources else None
            yield NORMALIZATION, lambda: self._normalized(request.pod, original, restoring)

    def kube_qos(self, request: KubeQosRequest) -> Iterable[Question]:
        """Yield what each plugin may want for a QoS directory."""
        bvt, core = self.rules.bvt, self.rules.core_sched
        if self.on(GROUP_IDENTITY) and bvt is not None and self.bvt_ready:
            yield GROUP_IDENTITY, lambda: HookResponse(cpu_bvt=group_identity.directory_bvt(bvt, request.kube_qos))
        if self.on(CORE_SCHED) and core is not None:
            yield CORE_SCHED, lambda: HookResponse(cpu_idle=int(core.for_pod("", request.kube_qos).idle))

    def host_app(self, request: HostAppRequest) -> Iterable[Question]:
        """Yield what each plugin may want for a host application."""
        bvt = self.rules.bvt
        if self.on(GROUP_IDENTITY) and bvt is not None and self.bvt_ready:
            yield GROUP_IDENTITY, lambda: HookResponse(cpu_bvt=group_identity.host_app_bvt(bvt, request.qos))
        if self.on(CPUSET) and request.qos == qos.LS:
            yield CPUSET, lambda: HookResponse(cpuset=cpuset.host_app_cpuset(request, self.rules.cpuset))

    def _register(self) -> None:
        if self.on(GROUP_IDENTITY):
            self.hooks.add_pod(Stage.PRE_RUN_POD_SANDBOX, GROUP_IDENTITY, self._pod_bvt)
        if self.on(CPUSET):
            self.hooks.add_pod(
                Stage.PRE_RUN_POD_SANDBOX, CPUSET, lambda request: HookResponse(cfs_quota=self._lifted_quota(request))
            )
            for stage in _CONTAINER_STAGES:
                self.hooks.add_container(
                    stage,
                    CPUSET,
                    lambda request: HookResponse(
                        cpuset=self._cpuset(request), cfs_quota=self._lifted_quota(request.pod)
                    ),
                )
        if self.on(GPU):
            self.hooks.add_container(Stage.PRE_CREATE_CONTAINER, GPU, _gpu)
        if self.on(BATCH):
            self.hooks.add_pod(Stage.PRE_RUN_POD_SANDBOX, BATCH, self._batch_pod)
            for stage in _CONTAINER_STAGES:
                self.hooks.add_container(
                    stage, BATCH, lambda request: batch_resource.container_values(request, self.rules.batch)
                )
        if self.on(RESCTRL):
            # Making and removing a group is the shell's work; being registered has the runtime announce both moments.
            for stage in (Stage.PRE_RUN_POD_SANDBOX, Stage.PRE_REMOVE_POD_SANDBOX):
                self.hooks.add_pod(stage, RESCTRL, lambda request: HookResponse())
            self.hooks.add_container(Stage.PRE_CREATE_CONTAINER, RESCTRL, self._resctrl_group)
        if self.on(NORMALIZATION) and self.compat.has(NORMALIZED_AT_CREATION):
            for stage in _CONTAINER_STAGES:
                self.hooks.add_container(stage, NORMALIZATION, self._normalized_at_creation)

    def _pod_bvt(self, request: PodRequest) -> HookResponse:
        if self.rules.bvt is None or not self.bvt_ready:
            return HookResponse()
        own = group_identity.own_cpu_qos(request.annotations) if self.compat.has(POD_CPU_QOS) else None
        return HookResponse(cpu_bvt=group_identity.pod_bvt(self.rules.bvt, request.qos, request.kube_qos, own))

    def _batch_pod(self, request: PodRequest) -> HookResponse:
        values = batch_resource.pod_values(request, self.rules.batch)
        # Without any container the sum of limits is 0, and a memory limit of 0 would kill the pod.
        return replace(values, memory_limit=-1) if values.memory_limit == 0 else values

    def _container_cpus(self, request: ContainerRequest, *, owning: bool) -> HookResponse:
        quota = self._lifted_quota(request.pod) if owning else None
        return HookResponse(cpuset=self._cpuset(request), cfs_quota=quota)

    def _lifted_quota(self, request: PodRequest) -> int | None:
        return None if self.keep_quota else cpuset.unset_quota(request)

    def _cpuset(self, request: ContainerRequest) -> str | None:
        return cpuset.container_cpuset(
            request.pod,
            request.cgroup_parent,
            self.rules.cpuset,
            be_cpu_manager=self.gates.get("BECPUManager", False),
        )

    def _resctrl_group(self, request: ContainerRequest) -> HookResponse:
        group = group_of(request.pod.uid)
        return HookResponse(resctrl_group=group if group in self.resctrl_groups else None)

    def _normalized_at_creation(self, request: ContainerRequest) -> HookResponse:
        """Scale the quota that the runtime was told: the pod's is scaled, and a child may not have more."""
        if _condition(request.pod) not in (qos.LS, qos.NONE) or request.resources is None:
            return HookResponse()
        return self._normalized(request.pod, request.resources.quota, restoring=False)

    def _normalized(self, pod: PodRequest, original: int | None, restoring: bool) -> HookResponse:
        rule = NormalizationRule(enable=True, ratio=1.0) if restoring else self.rules.normalization
        return HookResponse(cfs_quota=normalization.normalized_quota(pod, original, rule))


def kube_qos_requests(directories: Mapping[str, str]) -> list[KubeQosRequest]:
    """Return the QoS directories in the order in which they are reconciled."""
    return [KubeQosRequest(kube_qos=kube_qos, cgroup_parent=directories[kube_qos]) for kube_qos in KUBE_QOS_CLASSES]


def _forgotten(spec: NodeSLOSpec) -> bool:
    """Return whether the switch of best-effort work is not said: suppression then stays, and so do quotas below it."""
    threshold = spec.resource_used_threshold_with_be
    return threshold is not None and threshold.enable is None


def _condition(request: PodRequest) -> str:
    if request.qos:
        return request.qos
    try:
        return qos.LSR if cpuset.resource_status(request.annotations).cpuset else qos.NONE
    except InvalidInput:
        return qos.NONE


def _gpu(request: ContainerRequest) -> HookResponse:
    devices = visible_devices(request.pod.annotations)
    return HookResponse(env={"NVIDIA_VISIBLE_DEVICES": devices} if devices is not None else {})


def visible_devices(annotations: Mapping[str, str] | None) -> str | None:
    """Return the minors of the GPUs that the scheduler gave a pod, in their order; None when it has none."""
    devices = (qos.device_allocations(annotations) or {}).get("gpu")
    return ",".join(str(device.minor) for device in devices) if devices else None
