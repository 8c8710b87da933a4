"""The best-effort tier: what it may use, what its pods asked for, what it uses; all in milli-cores.

    real limit = CPUs * 1000 milli-cores, or quota * 1000 / period if the tier has a quota and that is less

The CPUs are those of the first container below the tier, because suppression narrows containers and not always the
tier; without containers those of the tier.
"""

from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.node.collectors.base import BaseCollector, Context, Previous
from kubetide.node.core.series import kinds
from kubetide.node.core.series.store import key_of
from kubetide.node.host.protocol import is_gone
from kubetide.node.host.readers import CgroupReader

USAGE, REAL_LIMIT, REQUEST = "usage", "real-limit", "request"


def be_properties(allocation: str) -> dict[str, str]:
    """Return the properties of a best-effort CPU series."""
    return {"be_resource": "cpu", "be_allocation": allocation}


class BestEffortCollector(BaseCollector):
    """Samples the three `node_be` values together; usage is 0 on the first sync."""

    name = "BEResourceCollector"

    def __init__(self, context: Context, interval: float) -> None:
        super().__init__(context, interval)
        self._reader = context.reader
        self._nanos: Previous[int] = Previous(context.clock, interval)

    def collect(self) -> bool:
        """Read the tier."""
        tier = self.context.layout.paths.tier(BEST_EFFORT)
        limit = real_limit_millis(self._reader)
        request = sum(
            qos.extended_request(pod.pod, qos.BATCH_CPU) for pod in self.context.pods() if pod.raw_qos == qos.BE
        )
        nanos = self._reader.cpu_usage_nanos(tier)
        before = self._nanos.swap("tier", nanos)
        usage = 0
        if before is not None and nanos >= before[1]:
            usage = int((nanos - before[1]) // 1_000_000 / (before[0] * 1000) * 1000)
        values = {USAGE: usage, REAL_LIMIT: limit, REQUEST: request}
        self.store(
            (key_of(kinds.NODE_BE, *sorted(be_properties(name).items())), float(value))
            for name, value in values.items()
        )
        return True


def first_container(reader: CgroupReader, tier: str) -> str | None:
    """Return the first container directory below a tier, in path order."""
    layout = reader.layout
    for pod in sorted(reader.host.list_dirs(layout.cgroup_dir("cpuset", tier))):
        try:
            children = reader.host.list_dirs(layout.cgroup_dir("cpuset", f"{tier}/{pod}"))
        except OSError as error:
            if is_gone(error):
                continue  # the pod ended in this moment
            raise
        if children:
            return f"{tier}/{pod}/{min(children)}"
    return None


def real_limit_millis(reader: CgroupReader) -> int:
    """Return the real CPU limit of the tier in milli-cores."""
    tier = reader.layout.paths.tier(BEST_EFFORT)
    limit = len(reader.cpuset(first_container(reader, tier) or tier)) * 1000
    quota = reader.cpu_quota(tier)
    if quota < 0:
        return limit
    period = reader.cpu_period(tier)
    return min(limit, quota * 1000 // period) if period > 0 else limit
