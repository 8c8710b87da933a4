"""Settings of the updater. Names and defaults of upstream first, then what kubetide adds for safety."""

from datetime import timedelta
from typing import Annotated, ClassVar

from kubetide.api.values.compat import Compat
from kubetide.api.values.schedule import ScheduleError, parse_windows
from kubetide.config import Doc, Settings
from kubetide.errors import SettingsError
from kubetide.kube.control.core.ranges import ShardMode, refuse_beside_auto
from kubetide.vpa import settings as shared
from kubetide.vpa.admission.core.heartbeat import ADMISSION_LEASE, FRESH
from kubetide.vpa.core.compat import DEFAULT, check_gates, compat_of, gate_enabled
from kubetide.vpa.updater.core.disruption import Limits


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
    vpa_object_namespace: shared.VpaNamespace = ""
    ignored_vpa_object_namespaces: shared.IgnoredNamespaces = ()
    feature_gates: shared.FeatureGates = ()
    compat: shared.CompatRelease = str(DEFAULT)
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
    leader_elect: shared.LeaderElect = True
    leader_elect_resource_lock: Annotated[str, Doc("Accepted for compatibility; the lock is always a Lease.")] = (
        "leases"
    )
    leader_elect_resource_name: shared.LeaseName = "vpa-updater"
    leader_elect_resource_namespace: shared.LeaseNamespace = "kube-system"
    leader_elect_lease_duration: shared.LeaseDuration = timedelta(seconds=15)
    leader_elect_renew_deadline: shared.RenewDeadline = timedelta(seconds=10)
    leader_elect_retry_period: shared.RetryPeriod = timedelta(seconds=2)
    shards: shared.Shards = ShardMode.OFF
    address: Annotated[str, Doc("Where metrics and health are served when the updater runs alone.")] = ":8943"
    profiling: shared.Profiling = False

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
    update_windows: Annotated[
        str,
        Doc(
            "When pods may be evicted, or resized with a restart: cron schedules (UTC), each with a duration, such as "
            "`0 2 * * mon-fri 3h; 0 0 * * sat,sun 24h`; empty: always. `kubetide.io/update-windows` of a VPA wins.",
        ),
    ] = ""
    resize_before_oom: Annotated[
        bool,
        Doc(
            "Raise the memory limit of a container in place when its node reports that it will soon be reached, in "
            "every mode that changes running pods. Needs kubetide's metrics server and agents with --metrics-stream.",
        ),
    ] = False
    growths_per_minute: Annotated[
        int,
        Doc(
            "How many containers --resize-before-oom may give more memory in a minute; 0: no limit. Where replicas "
            "share the work it holds for each of them."
        ),
    ] = 120
    memory_headroom: shared.MemoryHeadroom = 0.2
    fit_nodes: shared.FitNodes = True
    concurrency: Annotated[int, Doc("Evictions and resizes that are under way at once.", minimum=1)] = 10

    def gate(self, name: str) -> bool:
        """Return whether a feature gate is switched on."""
        return gate_enabled(self.feature_gates, name)

    @property
    def limits(self) -> Limits:
        """Return how much may be disturbed over the whole cluster."""
        return Limits(
            per_minute=0 if self.upstream_behavior else self.disruptions_per_minute,
            burst=self.disruption_burst,
            rate=self.eviction_rate_limit,
            rate_burst=self.eviction_rate_burst,
            at_once=self.concurrency,
        )

    @property
    def followed(self) -> Compat:
        """Return the release whose rules decide."""
        return compat_of(self.compat, exactly=self.upstream_behavior)

    def checked(self) -> "UpdaterSettings":
        """Return self, or raise SettingsError for a value that cannot be used."""
        check_gates(self.feature_gates, section=self.section)
        _ = self.followed
        refuse_beside_auto(self.shards, {"leader-elect=false": not self.leader_elect}, field="updater shards")
        if self.admission_lease_timeout <= timedelta():
            raise SettingsError("must be positive", subject=self.section, field="admission_lease_timeout")
        try:
            parse_windows(self.update_windows)
        except ScheduleError as error:
            raise SettingsError(str(error), subject=self.section, field="update_windows") from error
        return self
