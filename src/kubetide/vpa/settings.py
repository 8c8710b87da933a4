"""Settings that the components of the VPA declare alike: which objects, which features, which release, which lease."""

from datetime import timedelta
from typing import Annotated

from kubetide.config import Doc
from kubetide.kube.control.core.ranges import ShardMode

VpaNamespace = Annotated[str, Doc("Look at the VPAs of this namespace only; empty: all.")]
IgnoredNamespaces = Annotated[
    tuple[str, ...], Doc("Namespaces whose VPAs are left alone. Not together with --vpa-object-namespace.")
]
FeatureGates = Annotated[
    tuple[str, ...],
    Doc(
        "Features as Name=true: InPlace, PerVPAConfig, CPUStartupBoost, NativeSidecar, RequestToLimitRatio; "
        "AllAlpha for all of them."
    ),
]
CompatRelease = Annotated[
    str,
    Doc(
        "Release of VPA whose rules decide: 1.7, or 1.8 (upstream's main branch). docs/reference/compat.md lists "
        "what differs.",
        flag="compat",
        aliases=("compat-vpa",),
    ),
]
Profiling = Annotated[bool, Doc("Accepted for compatibility; has no effect.")]

LeaderElect = Annotated[
    bool, Doc("Act only while holding the lease. Off upstream; on here, so that two never act at once.")
]
LeaseName = Annotated[str, Doc("Name of the leader lease.")]
LeaseNamespace = Annotated[str, Doc("Namespace of the leader lease.")]
LeaseDuration = Annotated[timedelta, Doc("How long others wait for a silent leader.")]
RenewDeadline = Annotated[timedelta, Doc("How long a leader tries to renew.")]
RetryPeriod = Annotated[timedelta, Doc("How often the lease is tried.")]

Shards = Annotated[
    ShardMode,
    Doc(
        "auto: all replicas work, each on its share of the namespaces; a replica that joins takes ranges of them, "
        "those of one that goes are taken over when its lease has run out. off: one replica leads, the others stand by."
    ),
]

MemoryHeadroom = Annotated[
    float, Doc("Memory is never shrunk below current usage plus this share; below 0: no such limit.", minimum=None)
]
FitNodes = Annotated[bool, Doc("Never make a pod larger than every node.")]
