"""Which release of Koordinator's manager kubetide follows, and the one table of what changed in which release.

A rule holds from its version on; a field of the ConfigMap is read from its version on and passed over before, so that
going back to an older version leaves nothing in a NodeSLO that an older agent would misread.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubetide.errors import SettingsError

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rule:
    """One change of behaviour."""

    id: str
    since: Version
    meaning: str


BANDWIDTH_ANNOTATION = Rule(
    "bandwidth-annotation",
    (1, 5),
    "The network-bandwidth annotation sets totalNetworkBandwidth of the NodeSLO.",
)
DEVICE_PLUGINS = Rule(
    "device-plugins", (1, 5), "GPU resources are a plugin; labels that the Device lacks stay on the node."
)
NETWORK_QOS_CHECKS = Rule("network-qos-checks", (1, 5), "The webhook checks the shares and sums of network QoS.")
AMPLIFICATION_CONFIG = Rule(
    "amplification-config", (1, 6), "resource-amplification-config sets ratios beside the CPU normalization ratio."
)
DEVICES_RESET = Rule("devices-reset", (1, 6), "A Device without healthy GPUs takes the GPU resources off the node.")
RDMA_DEVICES = Rule("rdma-devices", (1, 6), "Healthy RDMA devices become koordinator.sh/rdma.")
GPU_SHORTHANDS = Rule("gpu-shorthands", (1, 6), "The pod webhook expands koordinator.sh/gpu and counts shared GPUs.")
HOST_APPLICATION_PRIORITY = Rule(
    "host-application-priority", (1, 6), "A host application without priority no longer counts against batch resources."
)
MID_DEFAULTS = Rule("mid-defaults", (1, 6), "The mid thresholds have defaults (100, 100, 0) and must lie in 0 to 100.")
MID_UNALLOCATED = Rule(
    "mid-unallocated", (1, 6), "Mid resources count from capacity, with a share of what no prod pod has requested."
)
PREEMPTION_POLICY = Rule("preemption-policy", (1, 6), "A profile also sets the preemption policy of its PriorityClass.")
BATCH_CEILING = Rule("batch-ceiling", (1, 7), "Batch resources stay below a share of the node, where one is set.")
GPU_VENDOR = Rule("gpu-vendor", (1, 7), "koordinator.sh/gpu is set for NVIDIA only, and the vendor label is copied.")
LABEL_SUFFIXES = Rule("label-suffixes", (1, 7), "A profile may append suffixes to labels.")
PROFILES_BY_NAME = Rule("profiles-by-name", (1, 7), "Colocation profiles apply in the order of their names.")
RECLAIM_ABOVE_100 = Rule("reclaim-above-100", (1, 7), "The webhook accepts reclaim thresholds above 100.")
REFUSED_AS_INVALID = Rule("refused-as-invalid", (1, 7), "The pod webhook refuses with HTTP 400 instead of 403.")
SYSTEM_UNSET = Rule(
    "system-unset", (1, 7), "Kernel settings that are not configured are left alone instead of set to defaults."
)
MID_CEILING = Rule("mid-ceiling", (1, 8), "The mid threshold limits the sum, the unallocated part included.")
MID_STATIC = Rule("mid-static", (1, 8), "midReclaimMode static: a fixed share of the node is mid.")
RECLAIM_ZERO = Rule("reclaim-zero", (1, 8), "A reclaim threshold of 0 is accepted.")
SKIP_ENHANCED_VALIDATION = Rule("skip-enhanced-validation", (1, 8), "A label lets a pod pass the required-label rules.")

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
    (1, 5): (
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
    (1, 6): ("defaultRatio", "midUnallocatedPercent"),
    (1, 7): (
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
    (1, 8): (
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


@dataclass(frozen=True, slots=True)
class Compat:
    """The version in force."""

    version: Version = (1, 8)

    def has(self, rule: Rule) -> bool:
        """Tell whether a rule holds."""
        return self.version >= rule.since

    def known_fields(self, raw: Any) -> Any:
        """Return a configuration without the fields of later versions."""
        later = {name for since, names in FIELDS.items() if since > self.version for name in names}
        return _without(raw, later) if later else raw

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


NEWEST = Compat()
_SUPPORTED = {str(each): each for each in (Compat((1, minor)) for minor in range(4, 9))}


def parse_compat(text: str) -> Compat:
    """Read the setting; raise SettingsError."""
    if (found := _SUPPORTED.get(text)) is None:
        raise SettingsError(f"{text!r} is not a supported version (one of {', '.join(_SUPPORTED)})", field="compat")
    return found


def _without(raw: Any, names: set[str]) -> Any:
    if isinstance(raw, dict):
        kept = {name: value for name, value in raw.items() if name not in names}
        return {name: value if name in _MAPS else _without(value, names) for name, value in kept.items()}
    return [_without(value, names) for value in raw] if isinstance(raw, list) else raw
