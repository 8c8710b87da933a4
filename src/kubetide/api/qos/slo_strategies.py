"""What a NodeSLO says, block by block, as structs: every field may be absent, and absent means "not set here".

Fields keep the spelling of the objects (`cpuQOS`, `readIOPS`); defaults and the merge of a received spec over them
are the business of whoever merges. A QoS class block (`ResourceQOS`) is the same for all four classes.
"""

import msgspec

from kubetide.api.objects.meta import ApiObject
from kubetide.api.values.quantity import QuantityText


class ResourceThresholdStrategy(ApiObject, frozen=True, kw_only=True, gc=False):
    """When best-effort work is suppressed or evicted."""

    enable: bool | None = None
    cpu_suppress_threshold_percent: int | None = None
    cpu_suppress_policy: str | None = None
    memory_evict_threshold_percent: int | None = None
    memory_evict_lower_percent: int | None = None
    cpu_evict_be_satisfaction_lower_percent: int | None = msgspec.field(
        name="cpuEvictBESatisfactionLowerPercent", default=None
    )
    cpu_evict_be_satisfaction_upper_percent: int | None = msgspec.field(
        name="cpuEvictBESatisfactionUpperPercent", default=None
    )
    cpu_evict_be_usage_threshold_percent: int | None = msgspec.field(
        name="cpuEvictBEUsageThresholdPercent", default=None
    )
    cpu_evict_time_window_seconds: int | None = None
    cpu_evict_policy: str | None = None
    cpu_suppress_min_percent: int | None = None
    cpu_evict_threshold_percent: int | None = None
    cpu_evict_lower_percent: int | None = None
    evict_enabled_priority_threshold: int | None = None
    cpu_allocatable_evict_threshold_percent: int | None = None
    cpu_allocatable_evict_lower_percent: int | None = None
    memory_allocatable_evict_threshold_percent: int | None = None
    memory_allocatable_evict_lower_percent: int | None = None
    allocatable_evict_priority_threshold: int | None = None


class CPUQOS(ApiObject, frozen=True, kw_only=True, gc=False):
    """Scheduling identity of a class."""

    enable: bool | None = None
    group_identity: int | None = None
    sched_idle: int | None = None
    core_expeller: bool | None = None


class MemoryQOS(ApiObject, frozen=True, kw_only=True, gc=False):
    """Memory protection, throttling and reclaim of a class."""

    enable: bool | None = None
    min_limit_percent: int | None = None
    low_limit_percent: int | None = None
    throttling_percent: int | None = None
    wmark_ratio: int | None = None
    wmark_scale_permill: int | None = None
    wmark_min_adj: int | None = None
    priority_enable: int | None = None
    priority: int | None = None
    oom_kill_group: int | None = None
    page_cache_enable: bool | None = None
    page_cache_limit_percent: int | None = None
    page_cache_limit_size: int | None = None
    page_cache_reclaim_sync: bool | None = None


class PodMemoryQOS(MemoryQOS, frozen=True, kw_only=True, gc=False):
    """The memoryQOS annotation of a pod: a policy and single fields that override it."""

    policy: str | None = None


class ResctrlQOS(ApiObject, frozen=True, kw_only=True, gc=False):
    """Cache ways and memory bandwidth of a class."""

    enable: bool | None = None
    cat_range_start_percent: int | None = None
    cat_range_end_percent: int | None = None
    mba_percent: int | None = None


class IOCfg(ApiObject, frozen=True, kw_only=True, gc=False):
    """Limits of one block device."""

    read_iops: int | None = msgspec.field(name="readIOPS", default=None)
    write_iops: int | None = msgspec.field(name="writeIOPS", default=None)
    read_bps: int | None = msgspec.field(name="readBPS", default=None)
    write_bps: int | None = msgspec.field(name="writeBPS", default=None)
    io_weight_percent: int | None = None
    read_latency: int | None = None
    write_latency: int | None = None
    enable_user_model: bool | None = None
    read_latency_percent: int | None = None
    write_latency_percent: int | None = None
    model_read_bps: int | None = msgspec.field(name="modelReadBPS", default=None)
    model_write_bps: int | None = msgspec.field(name="modelWriteBPS", default=None)
    model_read_seq_iops: int | None = msgspec.field(name="modelReadSeqIOPS", default=None)
    model_write_seq_iops: int | None = msgspec.field(name="modelWriteSeqIOPS", default=None)
    model_read_rand_iops: int | None = msgspec.field(name="modelReadRandIOPS", default=None)
    model_write_rand_iops: int | None = msgspec.field(name="modelWriteRandIOPS", default=None)


class BlockCfg(ApiObject, frozen=True, kw_only=True, gc=False):
    """One block device by name and kind, and its limits."""

    name: str = ""
    type: str = ""
    io_cfg: IOCfg | None = None


class BlkIOQOS(ApiObject, frozen=True, kw_only=True, gc=False):
    """Block I/O of a class, of the root cgroup or (as annotation) of a pod."""

    enable: bool | None = None
    blocks: tuple[BlockCfg, ...] | None = None


class NetworkQOS(ApiObject, frozen=True, kw_only=True, gc=False):
    """Network shares of a class: a percentage or a rate."""

    enable: bool | None = None
    ingress_request: int | str | None = None
    ingress_limit: int | str | None = None
    egress_request: int | str | None = None
    egress_limit: int | str | None = None


class ResourceQOS(ApiObject, frozen=True, kw_only=True, gc=False):
    """All blocks of one class."""

    cpu_qos: CPUQOS | None = msgspec.field(name="cpuQOS", default=None)
    memory_qos: MemoryQOS | None = msgspec.field(name="memoryQOS", default=None)
    blkio_qos: BlkIOQOS | None = msgspec.field(name="blkioQOS", default=None)
    resctrl_qos: ResctrlQOS | None = msgspec.field(name="resctrlQOS", default=None)
    network_qos: NetworkQOS | None = msgspec.field(name="networkQOS", default=None)


class QOSPolicies(ApiObject, frozen=True, kw_only=True, gc=False):
    """Which mechanism separates classes."""

    cpu_policy: str | None = None
    net_qos_policy: str | None = msgspec.field(name="netQOSPolicy", default=None)


class ResourceQOSStrategy(ApiObject, frozen=True, kw_only=True, gc=False):
    """The QoS of the classes."""

    policies: QOSPolicies | None = None
    lsr_class: ResourceQOS | None = None
    ls_class: ResourceQOS | None = None
    be_class: ResourceQOS | None = None
    system_class: ResourceQOS | None = None
    cgroup_root: ResourceQOS | None = None

    def for_qos(self, qos: str) -> ResourceQOS | None:
        """Return the class of a (defaulted) QoS."""
        return {
            "LSE": self.lsr_class,
            "LSR": self.lsr_class,
            "LS": self.ls_class,
            "BE": self.be_class,
            "SYSTEM": self.system_class,
        }.get(qos)

    def for_kube_qos(self, kube_qos: str) -> ResourceQOS | None:
        """Return the class of a Kubernetes QoS directory."""
        return {"Guaranteed": self.lsr_class, "Burstable": self.ls_class, "BestEffort": self.be_class}.get(kube_qos)


class CPUBurstConfig(ApiObject, frozen=True, kw_only=True, gc=False):
    """How a container may exceed its CPU limit; also the cpuBurst annotation of a pod."""

    policy: str | None = None
    cpu_burst_percent: int | None = None
    cfs_quota_burst_percent: int | None = None
    cfs_quota_burst_period_seconds: int | None = None


class CPUBurstStrategy(CPUBurstConfig, frozen=True, kw_only=True, gc=False):
    """CPU burst of a node."""

    share_pool_threshold_percent: int | None = None


class SystemStrategy(ApiObject, frozen=True, kw_only=True, gc=False):
    """Kernel settings of a node."""

    min_free_kbytes_factor: int | None = None
    watermark_scale_factor: int | None = None
    memcg_reap_back_ground: int | None = None
    total_network_bandwidth: QuantityText | None = None
    sched_group_identity_enabled: int | None = None
    sched_idle_saver_wmark: int | None = None
    sched_features: dict[str, bool] | None = None
    page_cache_limit_enabled: int | None = None


class CgroupPath(ApiObject, frozen=True, kw_only=True, gc=False):
    """Where the cgroup of a host application lies."""

    base: str = ""
    parent_dir: str = ""
    relative_path: str = ""


class HostApplication(ApiObject, frozen=True, kw_only=True, gc=False):
    """A process group outside Kubernetes that the agent accounts for."""

    name: str = ""
    priority: str = ""
    qos: str = ""
    cgroup_path: CgroupPath | None = None


class NodeSLOSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    """The whole NodeSLO."""

    resource_used_threshold_with_be: ResourceThresholdStrategy | None = msgspec.field(
        name="resourceUsedThresholdWithBE", default=None
    )
    resource_qos_strategy: ResourceQOSStrategy | None = msgspec.field(name="resourceQOSStrategy", default=None)
    cpu_burst_strategy: CPUBurstStrategy | None = None
    system_strategy: SystemStrategy | None = None
    host_applications: tuple[HostApplication, ...] | None = None
