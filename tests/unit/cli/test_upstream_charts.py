"""Command lines as upstream's chart of 1.8 writes them start agent and controllers unchanged: every flag, every gate.

The tables are those of the specification: name and default of every flag of the releases up to 1.8 and of main.
"""

import pytest

from kubetide.cli.node.command import complete, drop_ignored, known_flags, refuse_unknown_names
from kubetide.cli.run import read_flags
from kubetide.config import load
from kubetide.flags import parse_flags
from kubetide.node.core.compat import VERSIONS
from kubetide.node.core.evictions.features import CPU_FEATURES, MEMORY_FEATURES
from kubetide.node.core.features import GATES, HOOK_GATES, UNSUPPORTED, parse_gates, unsupported
from kubetide.node.settings import IGNORED_FLAGS, NodeSettings
from kubetide.slo.colocation.settings import ColocationSettings
from kubetide.slo.core.gates import gate_warnings
from kubetide.slo.settings import SloSettings

AGENT_FLAGS = [
    "addr=:9316",
    "kube-api-qps=20",
    "kube-api-burst=30",
    "enable-pprof=false",
    "pprof-addr=:9317",
    "feature-gates=AllAlpha=true,AllBeta=true",
    "configmap-name=koordlet-config",
    "configmap-namespace=koordinator-system",
    "kubelet-preferred-address-type=InternalIP",
    "cgroup-root-dir=/host-cgroup/",
    "kubelet-sync-interval=10s",
    "sys-root-dir=/host-sys/",
    "kubelet-sync-timeout=3s",
    "sys-fs-root-dir=/host-sys-fs/",
    "kubelet-insecure-tls=false",
    "proc-root-dir=/proc/",
    "kubelet-read-only-port=10255",
    "var-run-root-dir=/host-var-run/",
    "run-root-dir=/host-run/",
    "node-topology-sync-interval=3s",
    "cgroup-kube-dir=kubepods/",
    "disable-query-kubelet-config=false",
    "collect-res-used-interval=1s",
    "enable-node-metric-report=true",
    "collect-sys-metric-outdated-interval=10s",
    "report-interval=60s",
    "collect-node-cpu-info-interval=60s",
    "metric-gc-interval-seconds=300",
    "metric-expire-seconds=1800",
    "collect-node-storage-info-interval=1s",
    "tsdb-path=/metric-data/",
    "cpi-collector-interval=60s",
    "tsdb-retention-duration=12h",
    "collect-cpi-timewindow=10s",
    "tsdb-max-bytes=104857600",
    "psi-collector-interval=10s",
    "tsdb-enable-prometheus-metric=true",
    "coldpage-collector-interval=5s",
    "tsdb-min-block-duration=10m",
    "tsdb-max-block-duration=10m",
    "enable-pagecache-collector=false",
    "tsdb-wal-segment-size=1048576",
    "tsdb-max-block-chunk-segment-size=5242880",
    "tsdb-head-chunks-write-buffer-size=1048576",
    "tsdb-stripe-size=16384",
    "prediction-checkpoint-filepath=/prediction-checkpoints",
    "prediction-training-interval=1m",
    "prediction-cold-start-duration=24h",
    "prediction-model-expiration-duration=30m",
    "prediction-safety-margin-percent=10",
    "prediction-model-checkpoint-interval=10m",
    "prediction-memory-histogram-decay-halflife=24h",
    "prediction-model-checkpoint-max-per-step=12",
    "prediction-cpu-histogram-decay-halflife=12h",
    "audit-log-dir=/var/log/koordlet",
    "audit-verbose=3",
    "audit-max-disk-space-mb=16",
    "audit-max-concurrent-readers=4",
    "audit-max-events-limit=2048",
    "resource-force-update-seconds=60",
    "reconcile-interval-seconds=1",
    "cpu-evict-interval-seconds=1",
    "cpu-evict-cool-time-seconds=20",
    "cpu-suppress-interval-seconds=1",
    "memory-evict-interval-seconds=1",
    "memory-evict-cool-time-seconds=4",
    "runtime-hooks-network=unix",
    "runtime-hooks-addr=/host-var-run-koordlet/koordlet.sock",
    "runtime-hooks-host-endpoint=/var/run/koordlet/koordlet.sock",
    "runtime-hooks-config-path=/etc/runtime/hookserver.d",
    "runtime-hooks-failure-policy=Ignore",
    "runtime-hooks-plugin-failure-policy=Ignore",
    "runtime-hooks-disable-stages=",
    "enable-nri-runtime-hook=true",
    "runtime-hooks-reconcile-interval=10s",
    "runtime-hooks=AllAlpha=true,AllBeta=true",
    "only-evict-by-api=false",
    "var-lib-kubelet-dir=/var/lib/kubelet/",
    "runtime-hooks-nri-connect-timeout=6s",
    "runtime-hooks-nri-backoff-duration=1s",
    "runtime-hooks-nri-backoff-cap=1048576h",
    "runtime-hooks-nri-backoff-steps=2147483647",
    "runtime-hooks-nri-backoff-factor=2",
    "runtime-hooks-nri-socket-path=nri/nri.sock",
    "runtime-hooks-nri-plugin-name=koordlet_nri",
    "runtime-hooks-nri-plugin-index=00",
    "enable-pod-taskids=false",
    "hami-core-library-directory-path=/usr/local/vgpu/libvgpu.so",
    "pod-resources-proxy-path=/var/run/koordlet/pod-resources",
    "enable-resctrl-collector=false",
    "resctrl-collector-interval=10s",
    "xpu-device-infos-dir=/var/run/koordlet/xpu-device-infos/",
    "xpu-enforce-collect-from-device-infos=false",
    "disable-unset-cpu-quota=false",
]

MANAGER_FLAGS = [
    "slo-config-name=slo-controller-config",
    "config-namespace=koordinator-system",
    "node-strategy-name-need-check=false",
    "controllers=*",
    "metrics-addr=:8080",
    "health-probe-addr=:8000",
    "pprof-addr=:8090",
    "enable-leader-election=true",
    "noderesource-plugins=MidResource,BatchResource,CPUNormalization,ResourceAmplification,GPUDeviceResource,RDMADeviceResource",
    "leader-election-namespace=koordinator-system",
    "rest-config-qps=30",
    "rest-config-burst=50",
    "sync-period=10h",
    "pod-enhanced-validator-config-namespace=koordinator-system",
    "pod-enhanced-validator-reconcile-interval=5m",
    "pod-enhanced-validator-config-name=pod-enhanced-validator-config",
    "colocation-profile-reconcile-by-default=false",
    "colocation-profile-reconcile-interval=30s",
    "colocation-profile-force-update-pod-duration=5m",
    "colocation-profile-expire-pod-cache-duration=10m",
    "colocation-profile-update-pod-qps=10",
    "colocation-profile-update-pod-qps-burst=100",
]

AGENT_GATES = [
    "AuditEvents",
    "AuditEventsHTTPHandler",
    "BECPUSuppress",
    "CPUBurst",
    "RdtResctrl",
    "NodeTopologyReport",
    "BECPUManager",
    "BECPUEvict",
    "BEMemoryEvict",
    "SystemConfig",
    "CgroupReconcile",
    "Accelerators",
    "CPICollector",
    "Libpfm4",
    "PSICollector",
    "BlkIOReconcile",
    "ColdPageCollector",
    "HugePageReport",
    "RDMADevices",
    "PodResourcesProxy",
    "CPUEvict",
    "MemoryEvict",
    "ResctrlCollector",
    "HamiCoreVGPUMonitor",
    "CPUAllocatableEvict",
    "MemoryAllocatableEvict",
    "PerCPUMetric",
    "NodeMetricPromMetrics",
]
HOOKS = [
    "GroupIdentity",
    "CPUSetAllocator",
    "BatchResource",
    "GPUEnvInject",
    "CPUNormalization",
    "CoreSched",
    "TerwayQoS",
    "TCNetworkQoS",
    "Resctrl",
    "RDMADeviceInject",
    "OOMScoreAdj",
]
NEW_EVICTIONS = {"CPUEvict", "MemoryEvict", "CPUAllocatableEvict", "MemoryAllocatableEvict"}


def started(*words: str, compat: str = "1.8") -> NodeSettings:
    """Go through everything that the agent does with its command line before it asks anybody."""
    kept, _ = drop_ignored((*words, f"--compat={compat}", "--node-name=n"))
    parsed = parse_flags(kept, known_flags())
    assert parsed.words == []
    settings = complete(load(NodeSettings, flags=dict(parsed.by_section["node"]), env={}), {"agent_mode": "hostMode"})
    refuse_unknown_names(settings)
    return settings


@pytest.mark.parametrize("compat", [str(version) for version in VERSIONS])
@pytest.mark.parametrize("spelling", ["--{0}={1}", "-{0}={1}"])
def test_all_flags_of_the_agent_at_once_start_it_under_every_release(spelling: str, compat: str) -> None:
    words = [spelling.format(*flag.split("=", 1)) for flag in AGENT_FLAGS]
    settings = started(*words, compat=compat)
    assert settings.runtime_hooks_nri_plugin_name == "koordlet_nri"
    assert settings.kubelet_read_only_port == 10255


@pytest.mark.parametrize("flag", AGENT_FLAGS, ids=lambda flag: str(flag).partition("=")[0])
def test_each_flag_of_the_agent_is_known_or_ignored_by_name(flag: str) -> None:
    started(f"--{flag}")
    name, _, value = flag.partition("=")
    if value:  # upstream's flags may also be followed by their values
        _, ignored = drop_ignored((f"--{name}", value))
        assert bool(ignored) is (name in IGNORED_FLAGS)


@pytest.mark.parametrize("name", [*GATES, *HOOK_GATES])
@pytest.mark.parametrize("value", ["true", "false"])
@pytest.mark.parametrize("compat", ["1.4", "1.8"])
def test_each_gate_is_accepted_under_every_release(name: str, value: str, compat: str) -> None:
    flag = "feature-gates" if name in GATES else "runtime-hooks"
    started(f"--{flag}={name}={value}", compat=compat)


def test_the_gates_are_those_of_the_table() -> None:
    assert set(AGENT_GATES) == set(GATES)
    assert set(HOOKS) == set(HOOK_GATES)


def test_all_alpha_switches_on_only_evictions_that_are_complete() -> None:
    gates = parse_gates("AllAlpha=true,AllBeta=true")
    on = {name for name in NEW_EVICTIONS if gates[name]}
    assert on == NEW_EVICTIONS
    # Complete: there is a feature behind each gate, and none of them is one that does nothing here.
    assert on <= {*CPU_FEATURES, *MEMORY_FEATURES}
    assert not on & UNSUPPORTED.keys()


def test_what_does_nothing_here_is_told_in_one_line_however_it_was_switched_on() -> None:
    told = unsupported(parse_gates("AllAlpha=true"))
    assert [line.partition(":")[0] for line in told] == [
        "Libpfm4",
        "RDMADevices",
        "PodResourcesProxy",
        "HamiCoreVGPUMonitor",
    ]
    assert unsupported(parse_gates("AllAlpha=true", HOOK_GATES)) == [
        "RDMADeviceInject: " + UNSUPPORTED["RDMADeviceInject"]
    ]
    assert unsupported(parse_gates("RDMADevices=false,AllBeta=true")) == []


@pytest.mark.parametrize("compat", [str(version) for version in VERSIONS])
def test_all_flags_of_the_manager_start_the_slo_controller_and_the_webhooks(compat: str) -> None:
    gates = "AllAlpha=true,PodMutatingWebhook=true,ColocationProfileSkipValidatingPriority=true"
    words = [*(f"--{flag}" for flag in MANAGER_FLAGS), f"--feature-gates={gates}", f"--compat={compat}"]
    parsed = read_flags(("slo", "colocation"), tuple(words))
    slo = load(SloSettings, flags=parsed.by_section["slo"], env={})
    assert str(slo.version) == compat
    assert slo.calculates("RDMADeviceResource")
    colocation = load(ColocationSettings, flags=parsed.by_section["colocation"], env={})
    assert colocation.colocation_profile_update_pod_qps_burst == 100
    assert all("unknown" not in warning for warning in gate_warnings(slo.feature_gates, slo.version.version))
