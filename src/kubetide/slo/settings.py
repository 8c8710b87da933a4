"""Settings of the SLO controller. Names and defaults of upstream first, then what kubetide adds."""

from datetime import timedelta
from typing import Annotated, ClassVar

from kubetide.api.values.compat import Compat
from kubetide.config import Doc, Settings, selection
from kubetide.kube.control.core.ranges import ShardMode, refuse_beside_auto
from kubetide.slo.core.compat import parse_compat
from kubetide.slo.core.gates import gate_enabled, gate_warnings


class SloSettings(Settings, frozen=True, kw_only=True):
    section: ClassVar[str] = "slo"

    compat: Annotated[
        str,
        Doc(
            "Release of Koordinator whose rules hold, 1.4 to 1.8: formulas, defaults, fields of the ConfigMap. "
            "docs/reference/compat.md says what changed when.",
            flag="compat",
        ),
    ] = "1.8"
    config_name: Annotated[str, Doc("Name of the ConfigMap.", flag="slo-config-name")] = "slo-controller-config"
    config_namespace: Annotated[str, Doc("Namespace of the ConfigMap.")] = "koordinator-system"
    controllers: Annotated[
        tuple[str, ...],
        Doc(
            "Which of nodemetric, nodeslo, noderesource run: a name, * for all, -name for all but it.",
            choices=selection("nodemetric", "nodeslo", "noderesource"),
        ),
    ] = ("*",)
    plugins: Annotated[
        tuple[str, ...],
        Doc(
            "Which resources are calculated; the same list grammar as controllers.",
            flag="noderesource-plugins",
            choices=selection(
                "MidResource",
                "BatchResource",
                "CPUNormalization",
                "ResourceAmplification",
                "GPUDeviceResource",
                "RDMADeviceResource",
            ),
        ),
    ] = (
        "MidResource",
        "BatchResource",
        "CPUNormalization",
        "ResourceAmplification",
        "GPUDeviceResource",
        "RDMADeviceResource",
    )
    workers: Annotated[
        int, Doc("Nodes worked on at once. More is faster and costs the API server more.", minimum=1)
    ] = 16
    sync_period: Annotated[
        timedelta | None, Doc("Look at every node again after this time, changed or not; empty: only on changes.")
    ] = None
    feature_gates: Annotated[
        tuple[str, ...],
        Doc(
            "Features as Name=true: ConfigMapValidatingWebhook, NodeValidatingWebhook, NodeMutatingWebhook, "
            "EnableSyncGPUSharedResource (all off by default); "
            "WebhookFramework=false switches the webhooks off."
        ),
    ] = ()
    names_needed: Annotated[
        bool,
        Doc("The webhook demands unique names of node entries.", flag="node-strategy-name-need-check"),
    ] = False
    webhook_port: Annotated[int, Doc("Port of the validating webhook, where a gate switches it on.", maximum=65535)] = (
        9876
    )
    webhook_cert_dir: Annotated[
        str, Doc("Folder with tls.crt and tls.key of the webhook; reloaded when they change.")
    ] = "/tmp/k8s-webhook-server/serving-certs"
    address: Annotated[
        str, Doc("Where metrics are served when the SLO controller runs alone.", flag="metrics-addr")
    ] = ":8080"
    health_address: Annotated[
        str,
        Doc(
            "Where health is served as well when it runs alone, so that probes of existing manifests find it; "
            "empty: only beside the metrics.",
            flag="health-probe-addr",
        ),
    ] = ":8000"
    pprof_addr: Annotated[str, Doc("Accepted for compatibility; has no effect.")] = ""
    enable_pprof: Annotated[bool, Doc("Accepted for compatibility; has no effect.")] = False
    growth_limit_percent: Annotated[
        int,
        Doc(
            "Let batch resources grow by at most this share of the node's capacity per update, so that allocatable "
            "does not swing. They still shrink at once. 0: no limit, as upstream.",
            maximum=100,
        ),
    ] = 0
    gradual_release: Annotated[
        bool,
        Doc(
            "After a high-priority pod has left, release what it used over one aggregation window instead of at once: "
            "its replacement is often on the way."
        ),
    ] = False
    leader_elect: Annotated[bool, Doc("Act only while holding the lease.", flag="enable-leader-election")] = True
    leader_elect_resource_name: Annotated[
        str, Doc("Name of the leader lease: upstream's, so that both never act at once.")
    ] = "koordinator-manager"
    leader_elect_resource_namespace: Annotated[
        str, Doc("Namespace of the leader lease.", aliases=("leader-election-namespace",))
    ] = "koordinator-system"
    leader_elect_lease_duration: Annotated[timedelta, Doc("How long others wait for a silent leader.")] = timedelta(
        seconds=15
    )
    leader_elect_renew_deadline: Annotated[timedelta, Doc("How long a leader that cannot renew goes on acting.")] = (
        timedelta(seconds=10)
    )
    leader_elect_retry_period: Annotated[timedelta, Doc("How often the lease is tried or renewed.")] = timedelta(
        seconds=2
    )

    shards: Annotated[
        ShardMode,
        Doc(
            "auto: all replicas work, each on its share of the nodes; a replica that joins takes ranges of them, those "
            "of one that goes are taken over when its lease has run out. off: one replica leads, the others stand by."
        ),
    ] = ShardMode.OFF

    def __post_init__(self) -> None:
        excluded = {"enable-leader-election=false": not self.leader_elect}
        refuse_beside_auto(self.shards, excluded, field="slo shards")

    @property
    def version(self) -> Compat:
        """The release whose rules hold."""
        return parse_compat(self.compat)

    def runs(self, controller: str) -> bool:
        """Return whether a controller is switched on."""
        return is_listed(self.controllers, controller)

    def calculates(self, plugin: str) -> bool:
        """Return whether a plugin is switched on."""
        return is_listed(self.plugins, plugin)

    def gate(self, name: str) -> bool:
        """Return whether a feature is switched on; the last word about it counts."""
        return gate_enabled(self.feature_gates, name, self.version.version)

    def gate_warnings(self) -> tuple[str, ...]:
        """Return what to report about the feature gates that were set."""
        return tuple(gate_warnings(self.feature_gates, self.version.version))


def is_listed(entries: tuple[str, ...], name: str) -> bool:
    """Return whether a list has a name: the first entry for `name` decides, `*` only if there is none."""
    for entry in entries:
        if entry in (name, f"-{name}"):
            return entry == name
    return "*" in entries
