"""What the best-effort tier may use at most.

    real limit = CPUs * 1000 milli-cores, or quota * 1000 / period if the tier has a quota and that is less

The CPUs are those of the first container below the tier, because suppression narrows containers and not always the
tier; without containers those of the tier.
"""

from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.node.host.protocol import is_gone
from kubetide.node.host.readers import CgroupReader


def container_directories(reader: CgroupReader, tier: str) -> list[str]:
    """Return the container directories below a tier, in path order."""
    layout = reader.layout
    found: list[str] = []
    for pod in sorted(reader.host.list_dirs(layout.cgroup_dir("cpuset", tier))):
        try:
            children = sorted(reader.host.list_dirs(layout.cgroup_dir("cpuset", f"{tier}/{pod}")))
        except OSError as error:
            if is_gone(error):
                continue  # the pod ended in this moment
            raise
        found.extend(f"{tier}/{pod}/{child}" for child in children)
    return found


def real_limit_millis(reader: CgroupReader) -> int:
    """Return the real CPU limit of the tier in milli-cores."""
    tier = reader.layout.paths.tier(BEST_EFFORT)
    containers = container_directories(reader, tier)
    limit = len(reader.cpuset(containers[0] if containers else tier)) * 1000
    quota = reader.cpu_quota(tier)
    if quota < 0:
        return limit
    period = reader.cpu_period(tier)
    return min(limit, quota * 1000 // period) if period > 0 else limit
