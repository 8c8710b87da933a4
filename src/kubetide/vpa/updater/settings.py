"""Settings of the updater. Names and defaults of the original first, then what kubetide adds for safety."""

from datetime import timedelta
from typing import Annotated, ClassVar

from kubetide.config import Doc, Settings


class UpdaterSettings(Settings, frozen=True, kw_only=True):
    section: ClassVar[str] = "updater"

    interval: Annotated[
        timedelta,
        Doc("How often all pods are looked at; also the deadline of one run.", flag="updater-interval"),
    ] = timedelta(minutes=1)
    min_replicas: Annotated[
        int,
        Doc("Workloads with fewer live pods are left alone. A VPA may override it with spec.updatePolicy.minReplicas."),
    ] = 2
    eviction_tolerance: Annotated[
        float, Doc("Share of a workload's configured replicas that may be disturbed at once.", maximum=1)
    ] = 0.5
    eviction_rate_limit: Annotated[
        float,
        Doc(
            "Evictions per second, and resizes per second, each with a bucket of its own; 0 or less: no limit.",
            minimum=None,
        ),
    ] = -1.0
    eviction_rate_burst: Annotated[int, Doc("How many evictions may come at once under the rate limit.")] = 1
    pod_update_threshold: Annotated[
        float, Doc("A pod inside the recommended range is changed only if its requests differ by this share.")
    ] = 0.1
    lifetime_threshold: Annotated[
        timedelta,
        Doc(
            "A pod inside the recommended range is changed only when it is this old.",
            flag="in-recommendation-bounds-eviction-lifetime-threshold",
        ),
    ] = timedelta(hours=12)
    evict_after_oom_threshold: Annotated[
        timedelta,
        Doc("A container killed for memory sooner than this after its start makes its pod a candidate at once."),
    ] = timedelta(minutes=10)
    use_admission_controller_status: Annotated[
        bool, Doc("Do nothing while the lease of the admission controller is not fresh.")
    ] = True
    in_place_skip_disruption_budget: Annotated[
        bool, Doc("Resize in place without regard to the disruption budget where no container has to restart.")
    ] = False
    vpa_object_namespace: Annotated[str, Doc("Look at the VPAs of this namespace only; empty: all.")] = ""
    ignored_vpa_object_namespaces: Annotated[
        tuple[str, ...], Doc("Namespaces whose VPAs are left alone. Not together with --vpa-object-namespace.")
    ] = ()
    feature_gates: Annotated[
        tuple[str, ...], Doc("Alpha features as Name=true: InPlace, PerVPAConfig, CPUStartupBoost.")
    ] = ()
    admission_namespace: Annotated[
        str,
        Doc("Namespace of the admission controller's lease. Empty: the environment's NAMESPACE, else kube-system."),
    ] = ""
    leader_elect: Annotated[
        bool, Doc("Act only while holding the lease. Off in the original; on here, so that two never act at once.")
    ] = True
    leader_elect_resource_lock: Annotated[str, Doc("Accepted for compatibility; the lock is always a Lease.")] = (
        "leases"
    )
    leader_elect_resource_name: Annotated[str, Doc("Name of the leader lease.")] = "vpa-updater"
    leader_elect_resource_namespace: Annotated[str, Doc("Namespace of the leader lease.")] = "kube-system"
    leader_elect_lease_duration: Annotated[timedelta, Doc("How long others wait for a silent leader.")] = timedelta(
        seconds=15
    )
    leader_elect_renew_deadline: Annotated[timedelta, Doc("How long a leader tries to renew.")] = timedelta(seconds=10)
    leader_elect_retry_period: Annotated[timedelta, Doc("How often the lease is tried.")] = timedelta(seconds=2)
    address: Annotated[str, Doc("Where metrics and health are served when the updater runs alone.")] = ":8943"
    profiling: Annotated[bool, Doc("Accepted for compatibility; has no effect.")] = False

    upstream_behavior: Annotated[
        bool, Doc("Switch off everything that kubetide adds to the original updater for safety.")
    ] = False
    disruptions_per_minute: Annotated[
        int, Doc("Evictions and resizes in any minute, over the whole cluster; 0: no limit.")
    ] = 60
    disruption_burst: Annotated[int, Doc("How many of them may come at one moment.")] = 10
    wait_for_replacements: Annotated[
        bool, Doc("Leave a workload alone while the replacement of an evicted pod is not Ready.")
    ] = True
    pause_on_unchanged: Annotated[
        bool, Doc("Pause a workload (condition UpdatesPaused) after two replacements without the recommendation.")
    ] = True
    memory_headroom: Annotated[
        float, Doc("Memory is never shrunk below current usage plus this share; below 0: no such limit.", minimum=None)
    ] = 0.2
    fit_nodes: Annotated[bool, Doc("Never make a pod larger than every node.")] = True
    concurrency: Annotated[int, Doc("Evictions and resizes that are under way at once.")] = 10

    def gate(self, name: str) -> bool:
        """Tell whether a feature gate is switched on."""
        return gate_enabled(self.feature_gates, name)


def gate_enabled(gates: tuple[str, ...], name: str) -> bool:
    """Tell whether `Name=true` is among the gates; the last mention counts."""
    value = "false"
    for entry in gates:
        key, _, text = entry.partition("=")
        if key.strip() == name:
            value = text.strip().lower() or "true"
    return value in ("true", "1", "t")
