"""Which release of Koordinator's agent kubetide follows, and the one table of what changed in which release.

A rule holds from its version on. Feature gates carry their version too (`features`): a group such as AllAlpha reaches
only the gates of the version in force, while a gate that is named itself always counts.
"""

from dataclasses import dataclass

from kubetide.errors import SettingsError

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rule:
    """One change of behaviour."""

    id: str
    since: Version
    meaning: str


CORE_SCHED_POLICY = Rule(
    "core-sched-policy",
    (1, 5),
    "Core scheduling: the policy label decides, and pods without a group id share one group instead of one each.",
)
COST_PERCENTILES = Rule(
    "cost-percentiles", (1, 5), "Latency targets of the root cgroup carry percentiles, and a cost model is written."
)
NETWORK_DEFAULTS = Rule(
    "network-defaults", (1, 5), "The completed NodeSLO has network QoS blocks and the network policy tc."
)
BLKIO_DEFAULTS = Rule("blkio-defaults", (1, 6), "The completed NodeSLO has a disabled blkioQOS in every class.")
POD_CPU_QOS = Rule("pod-cpu-qos", (1, 6), "The annotation koordinator.sh/cpuQOS sets the group identity of an LS pod.")
RECLAIMABLE_CAPPED = Rule(
    "reclaimable-capped", (1, 6), "Reclaimable prod resources are limited by what the node can still hold."
)
AVERAGES_REPORTED = Rule(
    "averages-reported", (1, 7), "Aggregated usages of the NodeMetric carry avg beside p50 to p99."
)
SCHED_SETTINGS = Rule(
    "sched-settings", (1, 7), "The system strategy sets sched_features, sched_idle_saver_wmark and group identity."
)
SUPPRESS_MINIMUM = Rule(
    "suppress-minimum", (1, 7), "cpuSuppressMinPercent is the least share of the node that best-effort work keeps."
)
SYSTEM_UNSET = Rule(
    "system-unset", (1, 7), "Kernel settings that the NodeSLO leaves out are left alone instead of set to defaults."
)
PROD_PEAK = Rule("prod-peak", (1, 8), "The NodeMetric carries the predicted peak of prod pods (unreleased upstream).")

RULES = (
    CORE_SCHED_POLICY,
    COST_PERCENTILES,
    NETWORK_DEFAULTS,
    BLKIO_DEFAULTS,
    POD_CPU_QOS,
    RECLAIMABLE_CAPPED,
    AVERAGES_REPORTED,
    SCHED_SETTINGS,
    SUPPRESS_MINIMUM,
    SYSTEM_UNSET,
    PROD_PEAK,
)


@dataclass(frozen=True, slots=True)
class Compat:
    """The version in force."""

    version: Version = (1, 8)

    def has(self, rule: Rule) -> bool:
        """Tell whether a rule holds."""
        return self.version >= rule.since

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


NEWEST = Compat()
_SUPPORTED = {str(each): each for each in (Compat((1, minor)) for minor in range(4, 9))}


def parse_compat(text: str) -> Compat:
    """Read the setting; raise SettingsError."""
    if (found := _SUPPORTED.get(text)) is None:
        raise SettingsError(f"{text!r} is not a supported version (one of {', '.join(_SUPPORTED)})", field="compat")
    return found
