"""Which release of Koordinator's agent kubetide follows, and the one table of what changed in which release.

A rule holds from its version on. Feature gates carry their version too (`features`): a group such as AllAlpha reaches
only the gates of the version in force, while a gate that is named itself always counts.
"""

from functools import cache

from kubetide.api.values.compat import Compat, Rule, Version, parse_version
from kubetide.errors import InvalidInput, SettingsError

VERSIONS = tuple(Version(1, minor) for minor in range(4, 9))
V4, V5, V6, V7, V8 = VERSIONS

CORE_SCHED_POLICY = Rule(
    id="core-sched-policy",
    since=V5,
    meaning="The policy label decides about core scheduling, and pods without a group id share one group.",
)
COST_PERCENTILES = Rule(
    id="cost-percentiles",
    since=V5,
    meaning="Latency targets of the root cgroup carry percentiles, and a cost model is written.",
)
NETWORK_DEFAULTS = Rule(
    id="network-defaults",
    since=V5,
    meaning="The completed NodeSLO has network QoS blocks and the network policy tc.",
)
IDENTITY_OR_CORE_SCHED = Rule(
    id="identity-or-core-sched",
    since=V5,
    meaning="Group identity and core scheduling switch each other off, and an unused group identity is set back.",
)
SMALLEST_CPUSET = Rule(
    id="smallest-cpuset",
    since=V5,
    meaning="The CPUs of best-effort work are the fewest of any container or of the tier, because sandboxes keep all.",
)
ALLOCATIONS_ALWAYS = Rule(
    id="allocations-always",
    since=V5,
    meaning="CPUs that the kubelet gave away are looked for only where its configuration may be asked for, and the "
    "annotation about them is written even when there are none.",
)
BLKIO_DEFAULTS = Rule(
    id="blkio-defaults",
    since=V6,
    meaning="The completed NodeSLO has a disabled blkioQOS in every class.",
)
POD_CPU_QOS = Rule(
    id="pod-cpu-qos",
    since=V6,
    meaning="The annotation koordinator.sh/cpuQOS sets the group identity of an LS pod.",
)
RECLAIMABLE_CAPPED = Rule(
    id="reclaimable-capped",
    since=V6,
    meaning="Reclaimable prod resources are limited by what the node can still hold.",
)
HOST_APPS_WITH_PAGE_CACHE = Rule(
    id="host-apps-with-page-cache",
    since=V6,
    meaning="Host applications count with their page cache for the system's usage where the NodeMetric asks for it.",
)
AVERAGES_REPORTED = Rule(
    id="averages-reported",
    since=V7,
    meaning="Aggregated usages of the NodeMetric carry avg beside p50 to p99.",
)
SCHED_SETTINGS = Rule(
    id="sched-settings",
    since=V7,
    meaning="The system strategy sets sched_features, sched_idle_saver_wmark and group identity.",
)
SUPPRESS_MINIMUM = Rule(
    id="suppress-minimum",
    since=V7,
    meaning="cpuSuppressMinPercent is the least share of the node that best-effort work keeps.",
)
SYSTEM_UNSET = Rule(
    id="system-unset",
    since=V7,
    meaning="Kernel settings that the NodeSLO leaves out are left alone instead of set to defaults.",
)
INIT_CONTAINERS = Rule(
    id="init-containers",
    since=V7,
    meaning="Init containers get CPUs and values like any container; containers of kata pods get none.",
)
NORMALIZED_AT_CREATION = Rule(
    id="normalized-at-creation",
    since=V8,
    meaning="A container is created with the quota that CPU normalization gives it.",
)
NUMA_RESERVATION = Rule(
    id="numa-reservation",
    since=V8,
    meaning="Zones lend less by what the node reserves, where its label enable-numa-reservation asks for it.",
)
RESERVATION_WHOLE = Rule(
    id="reservation-whole",
    since=V8,
    meaning="The reservation in the NodeResourceTopology keeps all fields of the node's annotation.",
)
NUMA_USAGE = Rule(
    id="numa-usage",
    since=V8,
    meaning="The NodeMetric carries usage by NUMA node (unreleased upstream).",
)
PAGE_CACHE_LIMIT = Rule(
    id="page-cache-limit",
    since=V8,
    meaning="Memory QoS limits the page cache of pods on kernels that can (unreleased upstream).",
)
PROD_PEAK = Rule(
    id="prod-peak",
    since=V8,
    meaning="The NodeMetric carries the predicted peak of prod pods (unreleased upstream).",
)

RULES = (
    CORE_SCHED_POLICY,
    COST_PERCENTILES,
    NETWORK_DEFAULTS,
    IDENTITY_OR_CORE_SCHED,
    SMALLEST_CPUSET,
    ALLOCATIONS_ALWAYS,
    BLKIO_DEFAULTS,
    POD_CPU_QOS,
    RECLAIMABLE_CAPPED,
    HOST_APPS_WITH_PAGE_CACHE,
    AVERAGES_REPORTED,
    SCHED_SETTINGS,
    SUPPRESS_MINIMUM,
    SYSTEM_UNSET,
    INIT_CONTAINERS,
    NORMALIZED_AT_CREATION,
    NUMA_RESERVATION,
    RESERVATION_WHOLE,
    NUMA_USAGE,
    PAGE_CACHE_LIMIT,
    PROD_PEAK,
)


NEWEST = Compat(V8)
_BY_VERSION = {version: Compat(version) for version in VERSIONS}


@cache
def parse_compat(text: str) -> Compat:
    """Read the setting; raise SettingsError."""
    try:
        return _BY_VERSION[parse_version(text, VERSIONS)]
    except InvalidInput as error:
        raise SettingsError(str(error), field="compat") from error
