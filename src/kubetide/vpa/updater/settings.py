"""Settings of the updater. Names and defaults of upstream first, then what kubetide adds for safety."""

from datetime import timedelta
from typing import Annotated, ClassVar

from kubetide.api.values.compat import Compat
from kubetide.config import Doc, Settings
from kubetide.errors import SettingsError
from kubetide.vpa.admission.core.heartbeat import ADMISSION_LEASE, FRESH
from kubetide.vpa.core.compat import DEFAULT, check_gates, compat_of, gate_enabled


class UpdaterSettings(Settings, frozen=True, kw_only=True):
    section: ClassVar[str] = "updater"

    interval: Annotated[
        timedelta,
        Doc("How often all pods are looked at; also the deadline of one loop.", flag="updater-interval", minimum=1),
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
        Doc("A container OOM-killed sooner than this after its start makes its pod a candidate at once."),
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
        tuple[str, ...],
        Doc(
            "Features as Name=true: InPlace, PerVPAConfig, CPUStartupBoost, NativeSidecar, RequestToLimitRatio; "
            "AllAlpha for all of them."
        ),
    ] = ()
    compat: Annotated[
        str,
        Doc(
            "Release of VPA whose rules decide: 1.7, or 1.8 (upstream's main branch). docs/reference/compat.md lists "
            "what differs.",
            flag="compat",
            aliases=("compat-vpa",),
        ),
    ] = str(DEFAULT)
    admission_lease: Annotated[
        str,
        Doc(
            "Lease by which the admission controller shows that it works; its --status-lease-name.",
            flag="admission-controller-status-lease-name",
        ),
    ] = ADMISSION_LEASE
    admission_namespace: Annotated[
        str,
        Doc(
            "Namespace of the admission controller's lease. Empty: the environment's NAMESPACE, else kube-system.",
            flag="admission-controller-status-lease-namespace",
        ),
    ] = ""
    admission_lease_timeout: Annotated[
        timedelta,
        Doc(
            "How long after its last renewal the admission controller's lease is fresh. Longer than twice its "
            "--status-lease-update-interval, or a late renewal stops updates.",
            flag="admission-controller-status-lease-timeout",
        ),
    ] = FRESH
    leader_elect: Annotated[
        bool, Doc("Act only while holding the lease. Off upstream; on here, so that two never act at once.")
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
        bool, Doc("Switch off everything that kubetide adds to upstream's updater for safety.")
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
    concurrency: Annotated[int, Doc("Evictions and resizes that are under way at once.", minimum=1)] = 10

    def gate(self, name: str) -> bool:
        """Return whether a feature gate is switched on."""
        return gate_enabled(self.feature_gates, name)

    @property
    def followed(self) -> Compat:
        """Return the release whose rules decide."""
        return compat_of(self.compat, exactly=self.upstream_behavior)

    def checked(self) -> "UpdaterSettings":
        """Return self, or raise SettingsError for a value that cannot be used."""
        check_gates(self.feature_gates, section=self.section)
        _ = self.followed
        if self.admission_lease_timeout <= timedelta():
            raise SettingsError("must be positive", subject=self.section, field="admission_lease_timeout")
        return self
