"""The shapes of the `slo-controller-config` ConfigMap: what each data key may hold.

They serve to read: keys match without regard to case, unknown keys are passed over, a wrong type makes the whole key
unreadable. Afterwards strategies travel as raw dicts that hold just the given fields, because "not given" and "given
as 0" must stay apart through every merge.
"""

from typing import Any

import msgspec

from kubetide.api.objects.meta import ApiObject
from kubetide.api.qos.slo_strategies import (
    CPUBurstStrategy,
    HostApplication,
    ResourceQOSStrategy,
    ResourceThresholdStrategy,
    SystemStrategy,
)
from kubetide.api.values.selectors import LabelSelector


class MetricAggregatePolicy(ApiObject, frozen=True, kw_only=True, gc=False):
    durations: tuple[str, ...] | None = None


class ColocationStrategy(ApiObject, frozen=True, kw_only=True, gc=False):
    """How much of a node is overcommitted, and how its usage is measured."""

    enable: bool | None = None
    metric_aggregate_duration_seconds: int | None = None
    metric_report_interval_seconds: int | None = None
    metric_aggregate_policy: MetricAggregatePolicy | None = None
    metric_memory_collect_policy: str | None = None
    cpu_reclaim_threshold_percent: int | None = None
    cpu_calculate_policy: str | None = None
    memory_reclaim_threshold_percent: int | None = None
    memory_calculate_policy: str | None = None
    degrade_time_minutes: int | None = None
    update_time_threshold_seconds: int | None = None
    resource_diff_threshold: float | None = None
    mid_cpu_threshold_percent: int | None = msgspec.field(name="midCPUThresholdPercent", default=None)
    mid_memory_threshold_percent: int | None = None
    mid_unallocated_percent: int | None = None
    mid_reclaim_mode: str | None = None
    mid_static_cpu_reserved_percent: int | None = msgspec.field(name="midStaticCPUReservedPercent", default=None)
    mid_static_memory_reserved_percent: int | None = None
    batch_cpu_threshold_percent: int | None = msgspec.field(name="batchCPUThresholdPercent", default=None)
    batch_memory_threshold_percent: int | None = None
    extensions: dict[str, Any] | None = None


class NodeColocation(ColocationStrategy, frozen=True, kw_only=True, gc=False):
    name: str | None = None
    node_selector: LabelSelector | None = None


class ColocationConfig(ColocationStrategy, frozen=True, kw_only=True, gc=False):
    node_configs: tuple[NodeColocation, ...] | None = None


class NodeThreshold(ResourceThresholdStrategy, frozen=True, kw_only=True, gc=False):
    name: str | None = None
    node_selector: LabelSelector | None = None


class ThresholdConfig(ApiObject, frozen=True, kw_only=True, gc=False):
    cluster_strategy: ResourceThresholdStrategy | None = None
    node_strategies: tuple[NodeThreshold, ...] | None = None


class NodeQOS(ResourceQOSStrategy, frozen=True, kw_only=True, gc=False):
    name: str | None = None
    node_selector: LabelSelector | None = None


class QOSConfig(ApiObject, frozen=True, kw_only=True, gc=False):
    cluster_strategy: ResourceQOSStrategy | None = None
    node_strategies: tuple[NodeQOS, ...] | None = None


class NodeCPUBurst(CPUBurstStrategy, frozen=True, kw_only=True, gc=False):
    name: str | None = None
    node_selector: LabelSelector | None = None


class CPUBurstConfig(ApiObject, frozen=True, kw_only=True, gc=False):
    cluster_strategy: CPUBurstStrategy | None = None
    node_strategies: tuple[NodeCPUBurst, ...] | None = None


class NodeSystem(SystemStrategy, frozen=True, kw_only=True, gc=False):
    name: str | None = None
    node_selector: LabelSelector | None = None


class SystemConfig(ApiObject, frozen=True, kw_only=True, gc=False):
    cluster_strategy: SystemStrategy | None = None
    node_strategies: tuple[NodeSystem, ...] | None = None


class NodeHostApplications(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str | None = None
    node_selector: LabelSelector | None = None
    applications: tuple[HostApplication, ...] | None = None


class HostApplicationConfig(ApiObject, frozen=True, kw_only=True, gc=False):
    applications: tuple[HostApplication, ...] | None = None
    node_configs: tuple[NodeHostApplications, ...] | None = None


class ModelRatio(ApiObject, frozen=True, kw_only=True, gc=False):
    """Performance of a CPU model against the baseline machine, by what is switched on."""

    base_ratio: float | None = None
    hyper_thread_enabled_ratio: float | None = None
    turbo_enabled_ratio: float | None = None
    hyper_thread_turbo_enabled_ratio: float | None = None


class CPUNormalizationStrategy(ApiObject, frozen=True, kw_only=True, gc=False):
    enable: bool | None = None
    ratio_model: dict[str, ModelRatio] | None = None
    default_ratio: float | None = None


class NodeCPUNormalization(CPUNormalizationStrategy, frozen=True, kw_only=True, gc=False):
    name: str | None = None
    node_selector: LabelSelector | None = None


class CPUNormalizationConfig(CPUNormalizationStrategy, frozen=True, kw_only=True, gc=False):
    node_configs: tuple[NodeCPUNormalization, ...] | None = None


class AmplificationStrategy(ApiObject, frozen=True, kw_only=True, gc=False):
    """By how much resources of a node are enlarged for the scheduler."""

    enable: bool | None = None
    resource_amplification_ratio: dict[str, float] | None = None


class NodeAmplification(AmplificationStrategy, frozen=True, kw_only=True, gc=False):
    name: str | None = None
    node_selector: LabelSelector | None = None


class AmplificationConfig(AmplificationStrategy, frozen=True, kw_only=True, gc=False):
    node_configs: tuple[NodeAmplification, ...] | None = None
