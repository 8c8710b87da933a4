"""Which release of Koordinator's manager kubetide follows, and the one table of what changed in which release.

A rule holds from its version on; a field of the ConfigMap is read from its version on and passed over before, so that
going back to an older version leaves nothing in a NodeSLO that an older agent would misread.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from kubetide.api.values.compat import Compat, Rule, Version, parse_version
from kubetide.errors import InvalidInput, SettingsError

VERSIONS = tuple(Version(1, minor) for minor in range(4, 9))
_V4, _V5, _V6, _V7, _V8 = VERSIONS


BANDWIDTH_ANNOTATION = Rule(
    id="bandwidth-annotation",
    since=_V5,
    meaning="The network-bandwidth annotation sets totalNetworkBandwidth of the NodeSLO.",
)
DEVICE_PLUGINS = Rule(
    id="device-plugins",
    since=_V5,
    meaning="GPU resources are a plugin; labels that the Device lacks stay on the node.",
)
NETWORK_QOS_CHECKS = Rule(
    id="network-qos-checks",
    since=_V5,
    meaning="The webhook checks the shares and sums of network QoS.",
)
AMPLIFICATION_CONFIG = Rule(
    id="amplification-config",
    since=_V6,
    meaning="resource-amplification-config sets ratios beside the CPU normalization ratio.",
)
DEVICES_RESET = Rule(
    id="devices-reset",
    since=_V6,
    meaning="A Device without healthy GPUs takes the GPU resources off the node.",
)
RDMA_DEVICES = Rule(
    id="rdma-devices",
    since=_V6,
    meaning="Healthy RDMA devices become koordinator.sh/rdma.",
)
GPU_SHORTHANDS = Rule(
    id="gpu-shorthands",
    since=_V6,
    meaning="The pod webhook expands koordinator.sh/gpu and counts shared GPUs.",
)
HOST_APPLICATION_PRIORITY = Rule(
    id="host-application-priority",
    since=_V6,
    meaning="A host application without priority no longer counts against batch resources.",
)
MID_DEFAULTS = Rule(
    id="mid-defaults",
    since=_V6,
    meaning="The mid thresholds have defaults (100, 100, 0) and must lie in 0 to 100.",
)
MID_UNALLOCATED = Rule(
    id="mid-unallocated",
    since=_V6,
    meaning="Mid resources count from capacity, with a share of what no prod pod has requested.",
)
PREEMPTION_POLICY = Rule(
    id="preemption-policy",
    since=_V6,
    meaning="A profile also sets the preemption policy of its PriorityClass.",
)
BATCH_CEILING = Rule(
    id="batch-ceiling",
    since=_V7,
    meaning="Batch resources stay below a share of the node, where one is set.",
)
GPU_VENDOR = Rule(
    id="gpu-vendor",
    since=_V7,
    meaning="koordinator.sh/gpu is set for NVIDIA only, and the vendor label is copied.",
)
LABEL_SUFFIXES = Rule(
    id="label-suffixes",
    since=_V7,
    meaning="A profile may append suffixes to labels.",
)
PROFILES_BY_NAME = Rule(
    id="profiles-by-name",
    since=_V7,
    meaning="Colocation profiles apply in the order of their names.",
)
RECLAIM_ABOVE_100 = Rule(
    id="reclaim-above-100",
    since=_V7,
    meaning="The webhook accepts reclaim thresholds above 100.",
)
REFUSED_AS_INVALID = Rule(
    id="refused-as-invalid",
    since=_V7,
    meaning="The pod webhook refuses with HTTP 400 instead of 403.",
)
SYSTEM_UNSET = Rule(
    id="system-unset",
    since=_V7,
    meaning="Kernel settings that are not configured are left alone instead of set to defaults.",
)
MID_CEILING = Rule(
    id="mid-ceiling",
    since=_V8,
    meaning="The mid threshold limits the sum, the unallocated part included.",
)
MID_STATIC = Rule(
    id="mid-static",
    since=_V8,
    meaning="midReclaimMode static: a fixed share of the node is mid.",
)
RECLAIM_ZERO = Rule(
    id="reclaim-zero",
    since=_V8,
    meaning="A reclaim threshold of 0 is accepted.",
)
SKIP_ENHANCED_VALIDATION = Rule(
    id="skip-enhanced-validation",
    since=_V8,
    meaning="A label lets a pod pass the required-label rules.",
)

RULES = (
    BANDWIDTH_ANNOTATION,
    DEVICE_PLUGINS,
    NETWORK_QOS_CHECKS,
    AMPLIFICATION_CONFIG,
    DEVICES_RESET,
    RDMA_DEVICES,
    GPU_SHORTHANDS,
    HOST_APPLICATION_PRIORITY,
    MID_DEFAULTS,
    MID_UNALLOCATED,
    PREEMPTION_POLICY,
    BATCH_CEILING,
    GPU_VENDOR,
    LABEL_SUFFIXES,
    PROFILES_BY_NAME,
    RECLAIM_ABOVE_100,
    REFUSED_AS_INVALID,
    SYSTEM_UNSET,
    MID_CEILING,
    MID_STATIC,
    RECLAIM_ZERO,
    SKIP_ENHANCED_VALIDATION,
)

FIELDS: Mapping[Version, tuple[str, ...]] = {
    _V5: (
        "netQOSPolicy",
        "readLatencyPercent",
        "writeLatencyPercent",
        "modelReadBPS",
        "modelWriteBPS",
        "modelReadSeqIOPS",
        "modelWriteSeqIOPS",
        "modelReadRandIOPS",
        "modelWriteRandIOPS",
    ),
    _V6: ("defaultRatio", "midUnallocatedPercent"),
    _V7: (
        "batchCPUThresholdPercent",
        "batchMemoryThresholdPercent",
        "cpuEvictLowerPercent",
        "cpuEvictThresholdPercent",
        "cpuSuppressMinPercent",
        "evictEnabledPriorityThreshold",
        "schedFeatures",
        "schedGroupIdentityEnabled",
        "schedIdleSaverWmark",
    ),
    _V8: (
        "allocatableEvictPriorityThreshold",
        "cpuAllocatableEvictLowerPercent",
        "cpuAllocatableEvictThresholdPercent",
        "memoryAllocatableEvictLowerPercent",
        "memoryAllocatableEvictThresholdPercent",
        "midReclaimMode",
        "midStaticCPUReservedPercent",
        "midStaticMemoryReservedPercent",
    ),
}
"""Fields of the ConfigMap by the version that brought them."""

# What is below these names are the user's own keys.
_MAPS = frozenset({"extensions", "nodeSelector", "ratioModel", "resourceAmplificationRatio", "schedFeatures"})


def known_fields(raw: Any, compat: Compat) -> Any:
    """Return a configuration without the fields of later versions."""
    later = {name for since, names in FIELDS.items() if since > compat.version for name in names}
    return _without(raw, later) if later else raw


NEWEST = Compat(_V8)
_BY_VERSION = {version: Compat(version) for version in VERSIONS}


@cache
def parse_compat(text: str) -> Compat:
    """Read the setting; raise SettingsError."""
    try:
        return _BY_VERSION[parse_version(text, VERSIONS)]
    except InvalidInput as error:
        raise SettingsError(str(error), field="compat") from error


def _without(raw: Any, names: set[str]) -> Any:
    if isinstance(raw, dict):
        kept = {name: value for name, value in raw.items() if name not in names}
        return {name: value if name in _MAPS else _without(value, names) for name, value in kept.items()}
    return [_without(value, names) for value in raw] if isinstance(raw, list) else raw
