"""Settings of the recommender: flags and defaults of VPA 1.7.1 first, then what kubetide adds."""

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar

from kubetide.api.objects.vpa import DEFAULT_RECOMMENDER
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.config import Doc, Settings
from kubetide.errors import InvalidInput, SettingsError
from kubetide.kube.control.core.ranges import ShardMode, refuse_beside_auto
from kubetide.vpa import settings as shared
from kubetide.vpa.core.ceilings import CEILINGS
from kubetide.vpa.core.compat import DEFAULT, check_gates, compat_of, gate_enabled
from kubetide.vpa.core.learned import Estimator

PROMETHEUS = "prometheus"
DEFAULT_LEASE = "vpa-recommender-lease"
OLD_LEASE = "vpa-recommender"
"""The lease of versions before 1.3: while one of them holds it, kubetide waits."""
_DAY = timedelta(days=1)
_PROMETHEUS_UNITS = {"y": 365 * 86400.0, "w": 7 * 86400.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PROMETHEUS_PART = re.compile(r"([0-9]+)(ms|[ywdhms])")


class HpaConflicts(StrEnum):
    """What to do about an HPA that scales the same workload on a resource that the VPA controls."""

    IGNORE = "ignore"
    REPORT = "report"
    AVOID = "avoid"
    COORDINATE = "coordinate"


class RecommenderSettings(Settings, frozen=True, kw_only=True):
    section: ClassVar[str] = "recommender"

    recommender_name: Annotated[
        str, Doc("Which VPAs to serve: those naming this recommender; `default` also takes those naming none.")
    ] = "default"
    interval: Annotated[
        timedelta,
        Doc("How often usage is read and recommendations are computed.", flag="recommender-interval"),
    ] = timedelta(minutes=1)
    checkpoints_gc_interval: Annotated[timedelta, Doc("How often checkpoints whose VPA is gone are deleted.")] = (
        timedelta(minutes=10)
    )
    checkpoints_timeout: Annotated[
        timedelta, Doc("How long one loop may spend writing checkpoints; the rest are written first in the next.")
    ] = timedelta(minutes=1)
    min_checkpoints: Annotated[int, Doc("Accepted for compatibility; has no effect.")] = 10
    update_worker_count: Annotated[
        int,
        Doc(
            "How many statuses or checkpoints are written at once. More is faster and loads the server more.", minimum=1
        ),
    ] = 10
    storage: Annotated[
        str,
        Doc(
            "Where history comes from at start: `prometheus`, or `checkpoint`, as when it is empty.",
            choices=("", "checkpoint", PROMETHEUS),
        ),
    ] = ""
    prometheus_address: Annotated[str, Doc("Where Prometheus listens.")] = "http://prometheus.monitoring.svc"
    prometheus_cadvisor_job_name: Annotated[
        str, Doc("Value of the job label of container usage; empty for no such matcher.")
    ] = "kubernetes-cadvisor"
    prometheus_query_timeout: Annotated[str, Doc("How long one query may take, e.g. 5m.")] = "5m"
    prometheus_insecure: Annotated[bool, Doc("Accept any certificate of Prometheus.")] = False
    prometheus_bearer_token: Annotated[str, Doc("Token to send to Prometheus.")] = ""
    prometheus_bearer_token_file: Annotated[str, Doc("File with the token to send to Prometheus.")] = ""
    username: Annotated[str, Doc("User name for Prometheus; needs --password too.")] = ""
    password: Annotated[str, Doc("Password for Prometheus.")] = ""
    history_length: Annotated[str, Doc("How far back Prometheus is asked, e.g. 8d.")] = "8d"
    history_resolution: Annotated[str, Doc("Step between samples of history, e.g. 1h.")] = "1h"
    history_cpu_metric: Annotated[str, Doc("The counter of CPU seconds.")] = "container_cpu_usage_seconds_total"
    history_memory_metric: Annotated[str, Doc("The gauge of memory in use.")] = "container_memory_working_set_bytes"
    pod_label_prefix: Annotated[str, Doc("What precedes pod labels in the label metric.")] = "pod_label_"
    metric_for_pod_labels: Annotated[
        str, Doc("Query that returns pod labels; a plain selector is asked over the whole history.")
    ] = 'up{job="kubernetes-pods"}'
    pod_namespace_label: Annotated[str, Doc("Label of the label metric that holds the namespace.")] = (
        "kubernetes_namespace"
    )
    pod_name_label: Annotated[str, Doc("Label of the label metric that holds the pod name.")] = "kubernetes_pod_name"
    container_namespace_label: Annotated[str, Doc("Label of the usage metrics that holds the namespace.")] = "namespace"
    container_pod_name_label: Annotated[str, Doc("Label of the usage metrics that holds the pod name.")] = "pod_name"
    container_name_label: Annotated[str, Doc("Label of the usage metrics that holds the container name.")] = "name"
    memory_saver: Annotated[
        bool, Doc("Track only pods that some VPA matches. Saves memory; a new VPA then starts without history.")
    ] = False
    memory_aggregation_interval: Annotated[
        timedelta, Doc("Length of a memory window: one peak per container and window counts.", minimum=1)
    ] = _DAY
    memory_aggregation_interval_count: Annotated[
        int, Doc("Number of windows after which an aggregate without samples is forgotten.", minimum=1)
    ] = 8
    memory_histogram_decay_half_life: Annotated[
        timedelta, Doc("After this time a memory peak counts half.", minimum=1)
    ] = _DAY
    cpu_histogram_decay_half_life: Annotated[timedelta, Doc("After this time a CPU sample counts half.", minimum=1)] = (
        _DAY
    )
    oom_bump_up_ratio: Annotated[float, Doc("Factor on memory after a container ran out of it.", minimum=1)] = 1.2
    oom_min_bump_up_bytes: Annotated[float, Doc("Least memory added after a container ran out of it.")] = 104857600.0
    margin_fraction: Annotated[
        float,
        Doc("Share added to every estimate as a safety margin.", flag="recommendation-margin-fraction"),
    ] = 0.15
    pod_min_cpu_millicores: Annotated[
        float,
        Doc("Least CPU recommended for a pod.", flag="pod-recommendation-min-cpu-millicores"),
    ] = 25.0
    pod_min_memory_mb: Annotated[
        float,
        Doc("Least memory recommended for a pod, in MiB.", flag="pod-recommendation-min-memory-mb"),
    ] = 250.0
    target_cpu_percentile: Annotated[float, Doc("Percentile of CPU usage that becomes the target.", maximum=1)] = 0.9
    target_memory_percentile: Annotated[
        float, Doc("Percentile of memory peaks that becomes the target.", maximum=1)
    ] = 0.9
    lower_bound_cpu_percentile: Annotated[
        float,
        Doc(
            "Percentile of CPU usage for the lower bound.", flag="recommendation-lower-bound-cpu-percentile", maximum=1
        ),
    ] = 0.5
    lower_bound_memory_percentile: Annotated[
        float,
        Doc(
            "Percentile of memory peaks for the lower bound.",
            flag="recommendation-lower-bound-memory-percentile",
            maximum=1,
        ),
    ] = 0.5
    upper_bound_cpu_percentile: Annotated[
        float,
        Doc(
            "Percentile of CPU usage for the upper bound.", flag="recommendation-upper-bound-cpu-percentile", maximum=1
        ),
    ] = 0.95
    upper_bound_memory_percentile: Annotated[
        float,
        Doc(
            "Percentile of memory peaks for the upper bound.",
            flag="recommendation-upper-bound-memory-percentile",
            maximum=1,
        ),
    ] = 0.95
    confidence_interval_cpu: Annotated[
        timedelta, Doc("Length of history at which CPU bounds are trusted fully.", minimum=1)
    ] = _DAY
    confidence_interval_memory: Annotated[
        timedelta, Doc("Length of history at which memory bounds are trusted fully.", minimum=1)
    ] = _DAY
    round_cpu_millicores: Annotated[int, Doc("Round CPU up to a multiple of this many millicores.", minimum=1)] = 1
    round_memory_bytes: Annotated[int, Doc("Round memory up to a multiple of this many bytes.", minimum=1)] = 1
    humanize_memory: Annotated[
        bool, Doc("Print memory with two decimals of a large unit; deprecated, changes the value a little.")
    ] = False
    max_allowed_cpu: Annotated[
        str,
        Doc(
            "Most CPU recommended where no maxAllowed is set.",
            flag="container-recommendation-max-allowed-cpu",
        ),
    ] = ""
    max_allowed_memory: Annotated[
        str,
        Doc(
            "Most memory recommended where no maxAllowed is set.",
            flag="container-recommendation-max-allowed-memory",
        ),
    ] = ""
    cpu_integer_post_processor_enabled: Annotated[bool, Doc("Honour the annotation that asks for whole cores.")] = False
    use_external_metrics: Annotated[bool, Doc("Read usage from external metrics instead of metrics.k8s.io.")] = False
    external_metrics_cpu_metric: Annotated[str, Doc("External metric with CPU usage.")] = ""
    external_metrics_memory_metric: Annotated[str, Doc("External metric with memory usage.")] = ""
    vpa_object_namespace: Annotated[str, Doc("Serve the VPAs of this namespace only; empty: all.")] = ""
    ignored_vpa_object_namespaces: shared.IgnoredNamespaces = ()
    feature_gates: Annotated[
        tuple[str, ...],
        Doc(
            "Features as Name=true: PerVPAConfig lets a container policy tune OOM, windows and percentiles, "
            "NativeSidecar sizes init containers that keep running."
        ),
    ] = ()
    compat: shared.CompatRelease = str(DEFAULT)
    address: Annotated[str, Doc("Where metrics and health are served.")] = ":8942"
    profiling: shared.Profiling = False
    leader_elect: shared.LeaderElect = True
    leader_elect_resource_name: shared.LeaseName = DEFAULT_LEASE
    leader_elect_resource_namespace: shared.LeaseNamespace = "kube-system"
    leader_elect_lease_duration: shared.LeaseDuration = timedelta(seconds=15)
    leader_elect_renew_deadline: shared.RenewDeadline = timedelta(seconds=10)
    leader_elect_retry_period: shared.RetryPeriod = timedelta(seconds=2)

    upstream_behavior: Annotated[
        bool, Doc("Follow the release of --compat exactly: without later fixes, and with samples that cannot be true.")
    ] = False
    max_sample_skew: Annotated[
        timedelta,
        Doc(
            "How far ahead of our clock a usage sample may be dated. What is dated later is refused and counted, and "
            "checkpoints that lie further ahead are brought back to the present."
        ),
    ] = timedelta(minutes=5)
    step_timeout: Annotated[
        timedelta, Doc("How long reading VPAs, usage or writing statuses may take in one loop; what is left waits.")
    ] = timedelta(minutes=1)
    history_deadline: Annotated[
        timedelta,
        Doc("How long to wait for Prometheus at start before going on without history. 0 waits for ever."),
    ] = timedelta(minutes=30)
    status_interval: Annotated[
        timedelta,
        Doc(
            "How long a bound may wait to be written that moved by at most 1 % and past no request of a pod. Targets, "
            "conditions and all that would change a decision are written at once. 0 writes every difference in every "
            "loop, which costs a request per VPA and loop."
        ),
    ] = timedelta(minutes=10)
    checkpoint_interval: Annotated[
        timedelta,
        Doc(
            "How often the checkpoints of a VPA are written, each VPA at a moment of its own; at once when an amount "
            "moved by more than 1 % since. 0 writes them in every loop."
        ),
    ] = timedelta(minutes=20)
    shard: Annotated[
        str,
        Doc(
            "`i/n`: serve only the VPAs whose stable hash modulo n is i, for clusters that outgrow one process. "
            "--shards=auto needs no numbers and takes over what a replica leaves behind; stop all fixed shards first."
        ),
    ] = ""
    shards: shared.Shards = ShardMode.OFF
    per_vpa_tuning: Annotated[
        bool, Doc("Honour annotations `kubetide.io/…` by which a VPA sets percentiles, margin, half-lives, OOM bump.")
    ] = False
    oom_floor: Annotated[
        bool, Doc("After an OOM keep memory at the raised value, which then decays slowly, so it is not shrunk again.")
    ] = False
    oom_floor_half_life: Annotated[timedelta, Doc("How fast the OOM floor decays.", minimum=1)] = timedelta(days=7)
    throttled_cpu_bump_up_ratio: Annotated[
        float,
        Doc(
            "A CPU sample at 95 % of the container's limit or more, or of a container that its node reports throttled "
            "in a quarter of its periods, is a lower bound of what it would use: it counts this many times over. "
            "1 takes it for demand, as upstream does.",
            minimum=1,
        ),
    ] = 1.0
    cpu_peaks: Annotated[
        bool,
        Doc(
            "Take the 99th percentile of the seconds of a minute for its CPU where nodes report it (agents with "
            "--metrics-stream), not the mean. Sizes pods for their busy seconds.",
        ),
    ] = False
    memory_without_page_cache: Annotated[
        bool,
        Doc(
            "Leave page cache out of memory samples where nodes report it (agents with --metrics-stream). Upstream "
            "counts what was touched lately as need.",
        ),
    ] = False
    never_shrinking_condition: Annotated[
        bool,
        Doc("Set the condition MemoryNeverShrinks on VPAs with containers that grow and never give memory back."),
    ] = False
    ceilings: Annotated[
        tuple[str, ...],
        Doc(
            "What recommendations may not exceed: `nodes` (the largest node that takes the pod), `limit-ranges`, "
            "`quotas` (what is left is shared among the VPAs of a namespace). The condition RecommendationCapped "
            "reports what was held. Empty: none, as upstream.",
            flag="recommendation-ceilings",
        ),
    ] = ()
    estimator: Annotated[
        Estimator,
        Doc(
            "Which rule sizes pods: `vpa` (upstream's), `adaptive` (learned, memory request and limit apart) or "
            "`adaptive-one` (learned, memory limit = request). The annotation `kubetide.io/estimator` of a VPA wins.",
        ),
    ] = Estimator.VPA
    learned: Annotated[
        bool,
        Doc(
            "Whether anything learned may decide. Off, the plain rule holds at once for every VPA, whatever its "
            'annotations ask for; `kubetide.io/learned: "off"` does the same for one.',
        ),
    ] = True
    hpa_conflicts: Annotated[
        HpaConflicts,
        Doc(
            "An HPA that scales the same workload on cpu or memory: `ignore` it, `report` it in a condition, report "
            "it and `avoid` that resource, or `coordinate`: size cpu for the HPA's target, and seldom. The annotation "
            "`kubetide.io/hpa-conflicts` of a VPA wins, unless this is `ignore`."
        ),
    ] = HpaConflicts.REPORT
    low_confidence_condition: Annotated[
        bool, Doc("Set the condition LowConfidence while history is shorter than the confidence interval.")
    ] = False
    fetching_history_condition: Annotated[
        bool, Doc("Set the condition FetchingHistory while the history of a VPA is not loaded.")
    ] = False

    recommendation_metrics: Annotated[
        bool,
        Doc(
            "Show every recommendation as a metric, under the names of kube-state-metrics "
            "(kube_verticalpodautoscaler_…): four series per container and resource."
        ),
    ] = False

    def gate(self, name: str) -> bool:
        """Return whether an alpha feature is switched on."""
        return gate_enabled(self.feature_gates, name)

    @property
    def followed(self) -> Compat:
        """Return the release whose rules decide."""
        return compat_of(self.compat, exactly=self.upstream_behavior)

    @property
    def waits(self) -> tuple[timedelta, timedelta]:
        """Return how long statuses and checkpoints may wait; upstream writes both in every loop."""
        if self.upstream_behavior:
            return timedelta(0), timedelta(0)
        return self.status_interval, self.checkpoint_interval

    @property
    def shard_of(self) -> tuple[int, int]:
        """Return (own number, number of shards); (0, 1) without sharding."""
        if not self.shard:
            return 0, 1
        match = re.fullmatch(r"([0-9]+)/([0-9]+)", self.shard)
        if match is None or int(match[2]) == 0 or int(match[1]) >= int(match[2]):
            raise SettingsError(f"{self.shard!r} is not i/n with i below n", subject="recommender", field="shard")
        return int(match[1]), int(match[2])

    @property
    def lease_name(self) -> str:
        """Return the name of the lease; each recommender name and each shard has its own."""
        number, count = self.shard_of
        name = self.leader_elect_resource_name
        if self.recommender_name != DEFAULT_RECOMMENDER and name == DEFAULT_LEASE:
            name = f"{name}-{self.recommender_name}"
        return name if count == 1 else f"{name}-{number}-of-{count}"

    @property
    def largest(self) -> dict[str, Quantity]:
        """Return the amounts that stand in for a missing maxAllowed."""
        given = {"cpu": self.max_allowed_cpu, "memory": self.max_allowed_memory}
        return {name: parse_quantity(text) for name, text in given.items() if text}

    def checked(self) -> "RecommenderSettings":
        """Return self, or raise SettingsError for values that cannot stand together."""
        if self.vpa_object_namespace and self.ignored_vpa_object_namespaces:
            raise SettingsError(
                "cannot stand together with ignored_vpa_object_namespaces",
                subject="recommender",
                field="vpa_object_namespace",
            )
        if self.interval <= timedelta(0):
            raise SettingsError("must be positive", subject="recommender", field="interval")
        for name in ("max_sample_skew", "status_interval", "checkpoint_interval"):
            if getattr(self, name) < timedelta(0):
                raise SettingsError("must be 0 or above", subject="recommender", field=name)
        for name in ("history_length", "history_resolution", "prometheus_query_timeout"):
            if prometheus_duration(getattr(self, name)) <= timedelta(0):
                raise SettingsError("must be positive", subject="recommender", field=name)
        for name in self.ceilings:
            if name not in CEILINGS:
                raise SettingsError(
                    f"{name!r} is not one of {', '.join(CEILINGS)}", subject="recommender", field="ceilings"
                )
        check_gates(self.feature_gates, section=self.section)
        _ = self.shard_of, self.largest, self.followed
        excluded = {"shard": bool(self.shard), "leader-elect=false": not self.leader_elect}
        refuse_beside_auto(self.shards, excluded, field="recommender shards")
        return self


def prometheus_duration(text: str) -> timedelta:
    """Return a duration as Prometheus writes it: whole numbers with units from y down to ms."""
    parts = _PROMETHEUS_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidInput(f"{text!r} is not a duration such as 8d, 1h or 30m")
    return timedelta(seconds=sum(int(number) * _PROMETHEUS_UNITS[unit] for number, unit in parts))
