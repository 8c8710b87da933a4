"""The best-effort tier: what it may use, what its pods asked for, what it uses; all in milli-cores."""

from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.node.collectors.base import Context, Previous, Round
from kubetide.node.core.best_effort import real_limit_millis
from kubetide.node.core.series import kinds
from kubetide.node.core.series.store import key_of

USAGE, REAL_LIMIT, REQUEST = "usage", "real-limit", "request"


def be_properties(allocation: str) -> dict[str, str]:
    """Return the properties of a best-effort CPU series."""
    return {"be_resource": "cpu", "be_allocation": allocation}


class BestEffortCollector(Round):
    """Samples the three `node_be` values together; usage is 0 on the first round."""

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
