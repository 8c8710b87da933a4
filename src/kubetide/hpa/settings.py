"""Settings of the horizontal autoscaler: those of upstream with its flag names and defaults, then kubetide's."""

import math
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar

from kubetide.api.objects.hpa_compat import DEFAULT_VERSION, GATES_FIELD, HpaCompat, hpa_compat
from kubetide.api.values.shard_selector import NAMESPACE, UID, ShardSelector, shard_of
from kubetide.config import Doc, Settings
from kubetide.errors import InvalidInput, SelectorError, SettingsError
from kubetide.hpa.core.annotations import SelectionStrategy
from kubetide.hpa.core.observation import Options
from kubetide.hpa.core.pods import ReadinessRules
from kubetide.kube.control.core.ranges import NO_RANGES, ShardMode, refuse_beside_auto, selector_of


class MetricsScope(StrEnum):
    """How much usage is read at once."""

    AUTO = "auto"
    CLUSTER = "cluster"
    NAMESPACE = "namespace"


class ShardBy(StrEnum):
    """What a shard is a part of."""

    NAMESPACE = "namespace"
    UID = "uid"


class HpaSettings(Settings, frozen=True, kw_only=True):
    section: ClassVar[str] = "hpa"

    sync_period: Annotated[
        timedelta,
        Doc(
            "How often each autoscaler is re-evaluated. Shorter reacts sooner and queries metrics more.",
            flag="horizontal-pod-autoscaler-sync-period",
        ),
    ] = timedelta(seconds=15)
    tolerance: Annotated[
        float,
        Doc(
            "How far usage may be from its target, as a share of it, without any reaction.",
            flag="horizontal-pod-autoscaler-tolerance",
        ),
    ] = 0.1
    downscale_stabilization: Annotated[
        timedelta,
        Doc(
            "How far back a higher recommendation keeps a target from shrinking. Longer wastes more and flaps less.",
            flag="horizontal-pod-autoscaler-downscale-stabilization",
        ),
    ] = timedelta(minutes=5)
    cpu_initialization_period: Annotated[
        timedelta,
        Doc(
            "How long after its start the CPU usage of a pod is distrusted.",
            flag="horizontal-pod-autoscaler-cpu-initialization-period",
        ),
    ] = timedelta(minutes=5)
    initial_readiness_delay: Annotated[
        timedelta,
        Doc(
            "How long after its start a change of a pod's readiness counts as its first.",
            flag="horizontal-pod-autoscaler-initial-readiness-delay",
        ),
    ] = timedelta(seconds=30)
    workers: Annotated[
        int,
        Doc(
            "How many autoscalers are evaluated at once. More is faster and loads the API server more.",
            flag="concurrent-horizontal-pod-autoscaler-syncs",
            minimum=1,
        ),
    ] = 5
    feature_gates: Annotated[
        tuple[str, ...],
        Doc(
            "Single features as Name=true or Name=false, on top of what the release of --compat has: "
            "HPAScaleToZero, HPAConfigurableTolerance, HPAGeneration, PodLevelResources.",
            flag="hpa-feature-gates",
        ),
    ] = ()
    compat: Annotated[
        str,
        Doc(
            "The Kubernetes release whose horizontal autoscaler to behave like, 1.33 to 1.38. "
            "docs/reference/compat.md lists what changes with it.",
            flag="compat",
        ),
    ] = str(DEFAULT_VERSION)

    take_over: Annotated[
        bool,
        Doc(
            "Act although kube-controller-manager runs. Set it together with "
            "--controllers=*,-horizontal-pod-autoscaler-controller there, or the two will fight."
        ),
    ] = False
    dry_run: Annotated[bool, Doc("Compute and publish every decision, write nothing.", flag="hpa-dry-run")] = False
    rollout_aware: Annotated[
        bool,
        Doc("During a rolling update, let surge, terminating and warming pods not move a target on their own."),
    ] = False
    learned: Annotated[
        bool,
        Doc(
            "Whether anything learned may decide. Off, the plain rule holds at once for every autoscaler, whatever its "
            'annotations ask for; `kubetide.io/learned: "off"` does the same for one.',
        ),
    ] = True
    prometheus: Annotated[
        str,
        Doc(
            "Where Prometheus answers, such as http://prometheus.monitoring.svc:9090: learned headroom then begins "
            "with the past load of a target (usage of containers as cAdvisor counts it). Empty: it learns live.",
            flag="hpa-prometheus",
        ),
    ] = ""
    prometheus_token_file: Annotated[
        str, Doc("Bearer token to show to Prometheus, a file.", flag="hpa-prometheus-token-file")
    ] = ""
    prometheus_ca_file: Annotated[
        str, Doc("CA of Prometheus' certificate, a file. Empty: the system's.", flag="hpa-prometheus-ca-file")
    ] = ""
    headroom_history: Annotated[
        timedelta,
        Doc(
            "How much past load learned headroom begins with, at most 46,080 sync periods (8 days of 15s). Each day "
            "takes a second of CPU, once per autoscaler.",
            flag="hpa-headroom-history",
        ),
    ] = timedelta(days=8)
    headroom_queries: Annotated[
        bool,
        Doc(
            "Honour kubetide.io/hpa-headroom-query, a query for the past load of a target. Whoever may write "
            "autoscalers may then ask Prometheus anything.",
            flag="hpa-headroom-queries",
        ),
    ] = False
    selection_strategy: Annotated[
        SelectionStrategy,
        Doc(
            "Which pods count: all that the target's selector matches (LabelSelector), or of those only the ones whose "
            "owners lead to the target (OwnerReference; reads the owners of pods once).",
            flag="hpa-selection-strategy",
        ),
    ] = SelectionStrategy.LABEL_SELECTOR
    decision_guard: Annotated[
        bool, Doc("Refuse to shrink a target on samples that cannot be true or are too old, or when no pod is ready.")
    ] = True
    external_metric_fallback: Annotated[
        bool,
        Doc(
            "Honour external.fallback of a metric (replicas, failureDurationSeconds), which is proposed to Kubernetes "
            "and in no release yet. The annotation kubetide.io/hpa-fallback wins over it.",
            flag="hpa-external-metric-fallback",
        ),
    ] = False
    proposed_fields: Annotated[
        bool,
        Doc(
            "Honour spec.syncPeriodSeconds and spec.selectionStrategy of autoscalers, which are proposed to Kubernetes "
            "and in no release yet: an API server that does not know them drops them. Annotations win over them.",
            flag="hpa-proposed-fields",
        ),
    ] = False
    max_usage_age: Annotated[
        timedelta,
        Doc(
            "How long after the end of its window usage is still good enough to shrink a target on; growing is not "
            "affected. Longer tolerates slower metrics and shrinks on an older load; 0: any age will do.",
            flag="hpa-max-usage-age",
        ),
    ] = timedelta(minutes=5)
    metrics_scope: Annotated[
        MetricsScope,
        Doc("Read pod usage once per namespace, once per cluster, or (auto) whichever reads less."),
    ] = MetricsScope.AUTO
    metrics_timeout: Annotated[
        timedelta, Doc("How long a metrics API may take to answer before the metric counts as failed.")
    ] = timedelta(seconds=30)
    scale_watch_from: Annotated[
        int,
        Doc(
            "With this many autoscalers of one kind of target, the targets are followed by a watch instead of reading "
            "each scale every reconcile (needs the right to list and watch them); 0: never."
        ),
    ] = 200
    status_interval: Annotated[
        timedelta,
        Doc(
            "How often a status is written in which nothing changed but values of metrics, each by at most a tenth. "
            "Conditions, replicas, generations and larger moves are written at once; explain and /metrics always show "
            "the newest. 0 writes every difference, which costs up to a request per autoscaler and sync period.",
            flag="hpa-status-interval",
        ),
    ] = timedelta(minutes=1)
    history: Annotated[int, Doc("How many past decisions of each autoscaler explain can show.")] = 20
    namespace: Annotated[
        str, Doc("Look at the autoscalers of this namespace only; empty: all.", flag="hpa-namespace")
    ] = ""
    shard: Annotated[
        str,
        Doc(
            "Look after a part of the namespaces only, such as 0/3 for the first of three: by the hash of their names, "
            "as shard selectors of the API server have it. Each shard has a lease of its own; empty: all.",
            flag="hpa-shard",
        ),
    ] = ""
    shard_by: Annotated[
        ShardBy,
        Doc(
            "What a shard is a part of: namespaces with all that is in them, or the uids of autoscalers, for one "
            "namespace that outgrows a process. By uid, every shard still reads all pods, and autoscalers of two "
            "shards that claim the same pods are not noticed.",
            flag="hpa-shard-by",
        ),
    ] = ShardBy.NAMESPACE

    shards: Annotated[
        ShardMode,
        Doc(
            "auto: all replicas work, each on its share of the namespaces; a replica that joins takes ranges "
            "of them, those of one that goes are taken over when its lease has run out. off: one replica leads, the "
            "others stand by.",
            flag="hpa-shards",
        ),
    ] = ShardMode.OFF

    shards_split: Annotated[
        tuple[str, ...],
        Doc(
            "With --hpa-shards=auto: namespaces that outgrow a replica. Their autoscalers are shared one by one, by "
            "their uids, and every replica reads all autoscalers and pods of them. Replicas with other namespaces here "
            "wait until all of those before them are gone.",
            flag="hpa-shards-split",
        ),
    ] = ()

    leader_elect: Annotated[bool, Doc("Act only while holding the lease.", flag="hpa-leader-elect")] = True
    leader_elect_resource_name: Annotated[
        str, Doc("Name of the leader lease.", flag="hpa-leader-elect-resource-name")
    ] = "kubetide-hpa"
    leader_elect_resource_namespace: Annotated[
        str, Doc("Namespace of the leader lease.", flag="hpa-leader-elect-resource-namespace")
    ] = "kube-system"
    identity: Annotated[str, Doc("Who holds the lease; empty: a random name.", flag="hpa-identity")] = ""

    coordinate: Annotated[
        bool,
        Doc(
            "Keep as many pods as a VPA of the same workload announces for smaller ones "
            "(`--hpa-conflicts=coordinate` of the recommender), so that they are there before pods shrink. Needs the "
            "VPA's CRD. Not upstream.",
            flag="hpa-coordinate",
        ),
    ] = False
    watch_usage: Annotated[
        bool,
        Doc(
            "Hear of usage as it changes, where the metrics server offers a watch (kubetide's does), and reconcile an "
            "autoscaler when a resource metric leaves its tolerance, not only when its sync period has passed. Not "
            "upstream.",
            flag="hpa-watch-usage",
        ),
    ] = False
    wake_interval: Annotated[
        timedelta, Doc("An autoscaler is woken by samples at most once in this time.", flag="hpa-wake-interval")
    ] = timedelta(seconds=1)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise SettingsError("must be at least 1", field="concurrent-horizontal-pod-autoscaler-syncs")
        if self.sync_period <= timedelta(0):
            raise SettingsError("must be above 0", field="horizontal-pod-autoscaler-sync-period")
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise SettingsError("must be 0 or above", field="horizontal-pod-autoscaler-tolerance")
        for name, span in (
            ("downscale-stabilization", self.downscale_stabilization),
            ("cpu-initialization-period", self.cpu_initialization_period),
            ("initial-readiness-delay", self.initial_readiness_delay),
        ):
            if span < timedelta(0):
                raise SettingsError("must be 0 or above", field=f"horizontal-pod-autoscaler-{name}")
        if self.max_usage_age < timedelta(0):
            raise SettingsError("must be 0 or above", field="hpa-max-usage-age")
        if self.prometheus and not self.prometheus.startswith(("http://", "https://")):
            raise SettingsError(
                f"{self.prometheus!r} is not a URL such as http://127.0.0.1:9090", field="hpa-prometheus"
            )
        if self.headroom_history <= timedelta(0):
            raise SettingsError("must be above 0", field="hpa-headroom-history")
        _ = self.compat_rules
        _ = self.shard_selector
        excluded = {
            "hpa-shard": bool(self.shard),
            "hpa-shard-by=uid": not self._by_namespace,
            "hpa-leader-elect=false": not self.leader_elect,
        }
        refuse_beside_auto(self.shards, excluded, field="hpa-shards")
        if self.shards_split and self.shards is not ShardMode.AUTO:
            raise SettingsError("needs --hpa-shards=auto", field="hpa-shards-split")

    @property
    def compat_rules(self) -> HpaCompat:
        """The release to behave like, with the gates that are set."""
        try:
            return hpa_compat(self.compat, map(_gate, self.feature_gates))
        except InvalidInput as error:
            field = "hpa-feature-gates" if error.field == GATES_FIELD else "compat"
            raise SettingsError(error.message, field=field) from error

    @property
    def options(self) -> Options:
        """What enters a decision."""
        return Options(
            tolerance=self.tolerance,
            compat=self.compat_rules,
            external_fallback=self.external_metric_fallback,
            downscale_window=self.downscale_stabilization,
            readiness=ReadinessRules(
                cpu_initialization_period=self.cpu_initialization_period,
                initial_readiness_delay=self.initial_readiness_delay,
            ),
            guard=self.decision_guard,
            max_usage_age=self.max_usage_age,
        )

    @property
    def shard_selector(self) -> ShardSelector | None:
        """The autoscalers to look after: None for all, none to begin with where replicas share them."""
        if self.shards is ShardMode.AUTO:
            return selector_of(NO_RANGES)
        if not self.shard:
            return None
        index, _, count = self.shard.partition("/")
        if not (_is_number(index) and _is_number(count)):
            raise SettingsError(f"{self.shard!r} is not of the form 0/3", field="hpa-shard")
        try:
            return shard_of(int(index), int(count), NAMESPACE if self._by_namespace else UID)
        except SelectorError as error:
            raise SettingsError(error.message, field="hpa-shard") from error

    @property
    def namespace_shard(self) -> ShardSelector | None:
        """The pods and targets to read; None for all. The uid of an autoscaler says nothing about those of its pods."""
        return self.shard_selector if self._by_namespace else None

    @property
    def _by_namespace(self) -> bool:
        return self.shard_by is ShardBy.NAMESPACE

    @property
    def lease_name(self) -> str:
        """The lease of this shard."""
        name = self.leader_elect_resource_name
        if not self.shard:
            return name
        return f"{name}{'' if self._by_namespace else '-uid'}-{self.shard.replace('/', '-of-')}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 5


def _gate(text: str) -> tuple[str, bool]:
    """Read `Name=true`."""
    name, _, value = (part.strip() for part in text.partition("="))
    if value.lower() not in ("true", "t", "1", "false", "f", "0"):
        raise InvalidInput(f"{name} must be true or false", field=GATES_FIELD)
    return name, value.lower() in ("true", "t", "1")
