"""Workload controllers, scale and disruption budgets, reduced to the fields that kubetide reads."""

from datetime import datetime

from kubetide.api.objects.core import PodTemplate
from kubetide.api.objects.meta import ApiObject, TypedObject
from kubetide.api.values.conditions import Condition
from kubetide.api.values.selectors import LabelSelector


class WorkloadSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplate | None = None


class WorkloadStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0


class Deployment(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ReplicaSet(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class StatefulSet(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class DaemonSetStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    current_number_scheduled: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0


class DaemonSet(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: WorkloadSpec = WorkloadSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class JobSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    parallelism: int | None = None
    completions: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplate | None = None


class JobStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class Job(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class JobTemplate(ApiObject, frozen=True, kw_only=True, gc=False):
    spec: JobSpec = JobSpec()


class CronJobSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    schedule: str = ""
    suspend: bool | None = None
    job_template: JobTemplate = JobTemplate()


class CronJob(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: CronJobSpec = CronJobSpec()


class ReplicationControllerSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    replicas: int | None = None
    selector: dict[str, str] | None = None
    """A plain label map: this kind is older than label selectors."""
    template: PodTemplate | None = None


class ReplicationController(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: ReplicationControllerSpec = ReplicationControllerSpec()
    status: WorkloadStatus = WorkloadStatus()


class ScaleSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    replicas: int = 0


class ScaleStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    replicas: int = 0
    selector: str = ""


class Scale(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


class PodDisruptionBudgetSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, datetime] | None = None
    conditions: tuple[Condition, ...] | None = None


class PodDisruptionBudget(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
