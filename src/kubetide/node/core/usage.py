"""Who uses the node: pods that count, host applications that count, and the rest, which is the system.

system = max(node - all pods - all host applications, 0, reserved)
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kubetide.api.objects.core import Pod
from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import HostApplication


@dataclass(frozen=True, slots=True)
class UsageSplit:
    """Cores (or bytes) by who uses them."""

    pods: float
    host_applications: float
    system: float


def split_usage(
    node_used: float,
    node_reserved: float,
    pods: Iterable[Pod],
    pod_used: Mapping[str, float],
    applications: Iterable[HostApplication],
    application_used: Mapping[str, float],
    *,
    counts_pod: Callable[[Pod], bool],
    counts_application: Callable[[HostApplication], bool],
) -> UsageSplit:
    """Split what a node uses. A metric of an unknown pod counts, because nobody vouches for its being harmless."""
    known = {pod.metadata.uid: pod for pod in pods}
    all_pods = counted_pods = all_applications = counted_applications = 0.0
    for uid, used in pod_used.items():
        all_pods += used
        if uid not in known or counts_pod(known[uid]):
            counted_pods += used
    for application in applications:
        if application.name not in application_used:
            continue
        used = application_used[application.name]
        all_applications += used
        if counts_application(application):
            counted_applications += used
    system = max(node_used - all_pods - all_applications, 0.0, node_reserved)
    return UsageSplit(counted_pods, counted_applications, system)


def is_not_best_effort(pod: Pod) -> bool:
    """A pod that best-effort work must make room for."""
    return qos.raw_qos(pod.metadata.labels) != qos.BE and qos.kube_qos(pod) != "BestEffort"


def is_not_best_effort_application(application: HostApplication) -> bool:
    """A host application outside the best-effort tier."""
    base = application.cgroup_path.base if application.cgroup_path else ""
    return not (application.qos == qos.BE and base == "KubepodsBesteffort")
