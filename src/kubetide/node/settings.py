"""How the agent of a node runs: roots, intervals, prediction, audit. Flags carry the names that upstream gave them."""

import os
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar

from kubetide.api.objects.sample_frames import STREAM_SERVICE
from kubetide.api.values.compat import Compat
from kubetide.config import Doc, Settings
from kubetide.node.core.compat import parse_compat


class PodSource(StrEnum):
    """Where the pods of the node are asked for."""

    AUTO = ""
    KUBELET = "kubelet"
    API_SERVER = "apiserver"


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


class NodeSettings(Settings, frozen=True, kw_only=True):
    """Settings of the node agent."""

    section: ClassVar[str] = "node"

    compat: Annotated[
        str,
        Doc(
            "Release of Koordinator whose rules hold, 1.4 to 1.8: defaults of a NodeSLO, feature gates, formulas. "
            "docs/reference/compat.md says what changed when.",
            flag="compat",
        ),
    ] = "1.8"
    node_name: Annotated[str, Doc("Name of this node's Node object. Empty: environment variable NODE_NAME.")] = ""
    addr: Annotated[str, Doc("Address of metrics, health and audit queries.")] = ":9316"
    feature_gates: Annotated[str, Doc("Feature gates as Name=true,Other=false; AllAlpha, AllBeta: groups.")] = ""
    runtime_hooks: Annotated[
        str, Doc("Feature gates of the runtime hooks, written like feature-gates.", flag="runtime-hooks")
    ] = ""

    cgroup_root_dir: Annotated[str, Doc("Where the host's cgroups are mounted.")] = "/sys/fs/cgroup/"
    sys_root_dir: Annotated[str, Doc("Where the host's /sys is mounted.")] = "/sys/"
    sys_fs_root_dir: Annotated[str, Doc("Where the host's /sys/fs is mounted.")] = "/sys/fs/"
    proc_root_dir: Annotated[str, Doc("Where the host's /proc is mounted.")] = "/proc/"
    var_run_root_dir: Annotated[str, Doc("Where the host's /var/run is mounted.")] = "/var/run/"
    run_root_dir: Annotated[str, Doc("Where the host's /run is mounted.")] = "/run/"
    kubelet_root_dir: Annotated[str, Doc("The kubelet's state directory.")] = "/var/lib/kubelet"
    var_lib_kubelet_dir: Annotated[str, Doc("The same, by its upstream name; wins when it is given.")] = ""
    cgroup_prefix: Annotated[str, Doc("The kubelet's --cgroup-root: the pods' cgroups lie under this one.")] = ""
    cgroup_driver: Annotated[
        str, Doc("systemd or cgroupfs. Empty: found out at start.", choices=("", "systemd", "cgroupfs"))
    ] = ""
    host_mode: Annotated[bool, Doc("The agent runs on the host itself: tools are run without nsenter.")] = True

    collect_res_used_interval: Annotated[
        timedelta, Doc("How often usage is sampled. Shorter sees shorter peaks and costs more CPU.", minimum=1)
    ] = _seconds(1)
    collect_sys_metric_outdated_interval: Annotated[
        timedelta, Doc("Parts older than this are not used for the system's usage.")
    ] = _seconds(10)
    collect_node_cpu_info_interval: Annotated[timedelta, Doc("How often CPU and NUMA facts are read.", minimum=1)] = (
        _seconds(60)
    )
    collect_node_storage_info_interval: Annotated[timedelta, Doc("How often disks are listed.", minimum=1)] = _seconds(
        1
    )
    cpi_collector_interval: Annotated[timedelta, Doc("How often cycles and instructions are counted.", minimum=1)] = (
        _seconds(60)
    )
    collect_cpi_timewindow: Annotated[timedelta, Doc("How long counters run for one sample.")] = _seconds(10)
    psi_collector_interval: Annotated[timedelta, Doc("How often pressure is read.", minimum=1)] = _seconds(10)
    coldpage_collector_interval: Annotated[timedelta, Doc("How often cold memory is read.", minimum=1)] = _seconds(5)
    enable_resctrl_collector: Annotated[
        bool, Doc("Sample the counters of resctrl groups; needs the gate ResctrlCollector too.")
    ] = False
    resctrl_collector_interval: Annotated[timedelta, Doc("How often the counters of resctrl groups are read.")] = (
        _seconds(10)
    )
    enable_pagecache_collector: Annotated[bool, Doc("Sample memory with page cache too.")] = False

    pod_source: Annotated[
        PodSource, Doc("kubelet or apiserver. Empty: the kubelet if it answers at start, else the API server.")
    ] = PodSource.AUTO
    kubelet_preferred_address_type: Annotated[str, Doc("Which address of the node the kubelet is asked at.")] = (
        "InternalIP"
    )
    kubelet_sync_interval: Annotated[timedelta, Doc("How often the kubelet is asked for its pods.", minimum=1)] = (
        _seconds(10)
    )
    kubelet_sync_timeout: Annotated[timedelta, Doc("How long the kubelet may take to answer.", minimum=1)] = _seconds(3)
    kubelet_insecure_tls: Annotated[bool, Doc("Ask the kubelet's read-only port over plain HTTP.")] = False
    kubelet_read_only_port: Annotated[int, Doc("The kubelet's read-only port.", maximum=65535)] = 10255
    node_topology_sync_interval: Annotated[
        timedelta, Doc("How often the NodeResourceTopology is calculated.", minimum=1)
    ] = _seconds(3)
    disable_query_kubelet_config: Annotated[bool, Doc("Do not ask the kubelet for its configuration.")] = False
    enable_node_metric_report: Annotated[bool, Doc("Write the status of the NodeMetric.")] = True

    metric_history_path: Annotated[
        str, Doc("Directory of the sample history, which survives a restart. Empty: memory only.")
    ] = ""
    metric_history_retention: Annotated[timedelta, Doc("How long samples are kept on disk.")] = timedelta(hours=12)
    metric_history_max_mb: Annotated[int, Doc("How large the history may grow, in MiB.")] = 100
    metric_memory_window: Annotated[
        timedelta,
        Doc(
            "How far back samples are kept in memory; the longest aggregate duration must fit. Usage of containers and "
            "throttling are kept for five minutes at most.",
            minimum=1,
        ),
    ] = timedelta(minutes=35)

    prediction_checkpoint_filepath: Annotated[
        str, Doc("Directory of the prediction models. Empty: models are not saved.")
    ] = ""
    prediction_training_interval: Annotated[timedelta, Doc("How often models are trained.", minimum=1)] = timedelta(
        minutes=1
    )
    prediction_cold_start_duration: Annotated[timedelta, Doc("Younger pods are not predicted.")] = timedelta(hours=24)
    prediction_model_expiration_duration: Annotated[timedelta, Doc("Models without samples go after this.")] = (
        timedelta(minutes=30)
    )
    prediction_model_checkpoint_interval: Annotated[timedelta, Doc("A model is saved at most this often.")] = timedelta(
        minutes=10
    )
    prediction_model_checkpoint_max_per_step: Annotated[int, Doc("Models saved per minute.")] = 12
    prediction_safety_margin_percent: Annotated[int, Doc("Added to every predicted peak.")] = 10
    prediction_cpu_histogram_decay_halflife: Annotated[timedelta, Doc("Half-life of CPU.", minimum=1)] = timedelta(
        hours=12
    )
    prediction_memory_histogram_decay_halflife: Annotated[timedelta, Doc("Half-life of memory samples.", minimum=1)] = (
        timedelta(hours=24)
    )

    resource_force_update_seconds: Annotated[
        int, Doc("After this a value that was written is read again and repaired if somebody changed it.")
    ] = 60

    reconcile_interval_seconds: Annotated[
        int, Doc("Pause between syncs of burst, memory, block I/O, cache and kernel settings; 0 switches them off.")
    ] = 1
    best_effort_target: Annotated[
        str,
        Doc(
            "What latency-sensitive pods may feel, as pressure=PERCENT or throttled=PERCENT of the time: the threshold "
            "of CPU suppress follows it instead of being fixed. Empty: fixed. The annotation "
            "kubetide.io/best-effort-target of a Node, or `off` there, comes first."
        ),
    ] = ""
    best_effort_max_percent: Annotated[
        int, Doc("How far best-effort-target may raise the threshold of CPU suppress, in percent.", minimum=1)
    ] = 90
    cpu_suppress_interval_seconds: Annotated[int, Doc("Pause between syncs of CPU suppress; 0 switches it off.")] = 1
    cpu_evict_interval_seconds: Annotated[int, Doc("Pause between syncs of CPU evict; 0 switches it off.")] = 1
    cpu_evict_cool_time_seconds: Annotated[int, Doc("Rest of CPU evict after an eviction and after the start.")] = 20
    memory_evict_interval_seconds: Annotated[int, Doc("Pause between syncs of memory evict; 0 switches it off.")] = 1
    memory_evict_cool_time_seconds: Annotated[int, Doc("Rest of memory evict after an eviction.")] = 4
    only_evict_by_api: Annotated[
        bool, Doc("Never stop containers directly; otherwise memory evictions do so once the API accepted them.")
    ] = False
    qos_extension_plugins: Annotated[
        str, Doc("Extensions of the strategies, as name=true,other=false. Installed ones are off unless named here.")
    ] = ""

    runtime_hooks_network: Annotated[str, Doc("Kind of the hook server's address; only unix is served.")] = "unix"
    runtime_hooks_addr: Annotated[str, Doc("Socket of the hook server for a runtime proxy.")] = (
        "/var/run/koordlet/koordlet.sock"
    )
    runtime_hooks_host_endpoint: Annotated[str, Doc("The same socket as the runtime proxy sees it.")] = (
        "/var/run/koordlet/koordlet.sock"
    )
    runtime_hooks_config_path: Annotated[
        str, Doc("Directory in which a runtime proxy looks for hook servers; without it no hook server is started.")
    ] = "/etc/runtime/hookserver.d"
    runtime_hooks_failure_policy: Annotated[
        str, Doc("Ignore or Fail: what a failing hook server means to the runtime proxy.", choices=("Ignore", "Fail"))
    ] = "Ignore"
    runtime_hooks_plugin_failure_policy: Annotated[
        str, Doc("Ignore or Fail: whether a failing hook plugin fails the runtime's call.", choices=("Ignore", "Fail"))
    ] = "Ignore"
    runtime_hooks_disable_stages: Annotated[tuple[str, ...], Doc("Stages at which no hook runs.")] = ()
    enable_nri_runtime_hook: Annotated[bool, Doc("Register as an NRI plugin at the container runtime.")] = True
    runtime_hooks_nri_socket_path: Annotated[str, Doc("NRI socket of the runtime, below the var-run root.")] = (
        "nri/nri.sock"
    )
    runtime_hooks_nri_plugin_name: Annotated[str, Doc("Name under which the agent registers.")] = "koordlet_nri"
    runtime_hooks_nri_plugin_index: Annotated[str, Doc("Place among the runtime's plugins, two digits.")] = "00"
    runtime_hooks_nri_connect_timeout: Annotated[
        timedelta, Doc("An NRI connection that lives this long counts as good: the next pause is short again.")
    ] = _seconds(6)
    runtime_hooks_nri_backoff_duration: Annotated[timedelta, Doc("First pause before registering again.")] = _seconds(1)
    runtime_hooks_nri_backoff_factor: Annotated[float, Doc("How much longer each further pause is.")] = 2.0
    runtime_hooks_nri_backoff_cap: Annotated[timedelta, Doc("Longest pause before registering again.")] = _seconds(30)
    disable_unset_cpu_quota: Annotated[bool, Doc("Pods with CPUs of their own keep their CPU quota.")] = False
    runtime_hooks_reconcile_interval: Annotated[
        timedelta, Doc("How often hook values are repaired even when nothing changed.", minimum=1)
    ] = _seconds(10)
    default_runtime_type: Annotated[str, Doc("Runtime of containers whose id does not say it.")] = "containerd"

    metrics_stream: Annotated[
        bool,
        Doc("Send samples to the replicas of kubetide's metrics server (`kubetide run metrics`) as they are made."),
    ] = False
    metrics_window: Annotated[
        timedelta, Doc("What one sample covers. Shorter lets autoscalers act sooner.", minimum=1, maximum=60)
    ] = _seconds(5)
    memory_alarm_interval: Annotated[
        timedelta,
        Doc(
            "How often --metrics-stream looks for containers whose memory is running out, which the metrics server is "
            "told at once; 0: never. Costs a small file per container with a limit.",
            maximum=60,
        ),
    ] = _seconds(1)
    metrics_namespace: Annotated[
        str, Doc("Namespace of the metrics server. Empty: the environment's NAMESPACE, else kube-system.")
    ] = ""
    metrics_service: Annotated[str, Doc("Service of the metrics server, whose endpoints are its replicas.")] = (
        STREAM_SERVICE
    )
    metrics_address: Annotated[str, Doc("host:port of the metrics server instead of the Service's endpoints.")] = ""
    metrics_token_file: Annotated[
        str, Doc("Token to show to the metrics server: of the agent's service account, with its audience.")
    ] = "/var/run/secrets/kubetide/metrics/token"
    metrics_ca_file: Annotated[
        str, Doc("CA of the metrics server's certificate. Empty: what the server publishes in a ConfigMap.")
    ] = ""

    audit_log_dir: Annotated[str, Doc("Directory of the audit log. Empty: not kept.")] = "/var/log/kubetide-node"
    audit_verbose: Annotated[int, Doc("Events above this level are dropped; 0 keeps all.")] = 3
    audit_max_disk_space_mb: Annotated[int, Doc("Size of the audit log, in MiB.")] = 16
    audit_max_concurrent_readers: Annotated[int, Doc("Open audit queries.", minimum=1)] = 4
    audit_max_events_limit: Annotated[int, Doc("Events in one answer at most.", minimum=1)] = 2048

    @property
    def own_namespace(self) -> str:
        """Where the metrics server is."""
        return self.metrics_namespace or os.environ.get("NAMESPACE", "") or "kube-system"

    @property
    def version(self) -> Compat:
        """The release whose rules hold."""
        return parse_compat(self.compat)


IGNORED_FLAGS = (
    "tsdb-path",
    "tsdb-retention-duration",
    "tsdb-max-bytes",
    "tsdb-enable-prometheus-metric",
    "tsdb-min-block-duration",
    "tsdb-max-block-duration",
    "tsdb-wal-segment-size",
    "tsdb-max-block-chunk-segment-size",
    "tsdb-head-chunks-write-buffer-size",
    "tsdb-stripe-size",
    "enable-pprof",
    "pprof-addr",
    "report-interval",
    "metric-gc-interval-seconds",
    "metric-expire-seconds",
    "configmap-name",
    "configmap-namespace",
    "cgroup-kube-dir",
    "runtime-hooks-nri-backoff-steps",
    "hami-core-library-directory-path",
    "pod-resources-proxy-path",
    "xpu-device-infos-dir",
    "xpu-enforce-collect-from-device-infos",
    "enable-pod-taskids",
)
"""Upstream flags that mean nothing here: accepted, and named in one warning."""
