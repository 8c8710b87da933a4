"""Shows what the strategies decided as gauges, under the names that dashboards of the original know."""

from kubetide.node.executor.plan import Plan, Write
from kubetide.node.host import files
from kubetide.telemetry import Telemetry

CONTAINER_LABELS = ("node", "pod_namespace", "pod_name", "container_id", "container_name")


class Gauges:
    """Gauges of the QoS strategies of one node."""

    def __init__(self, telemetry: Telemetry, node_name: str) -> None:
        self._node = node_name
        self._suppress = telemetry.gauge(
            "koordlet_be_suppress_cpu_cores", "CPU left for best-effort work.", ("node", "type")
        )
        self._used = telemetry.gauge(
            "koordlet_be_suppress_ls_used_cpu_cores", "CPU used by pods that are not best effort.", ("node",)
        )
        self._burst = telemetry.gauge(
            "koordlet_container_scaled_cfs_burst_us", "cfs burst of containers.", CONTAINER_LABELS
        )
        self._quota = telemetry.gauge(
            "koordlet_container_scaled_cfs_quota_us", "CFS quota that burst gave containers.", CONTAINER_LABELS
        )

    def show(self, strategy: str, plan: Plan) -> None:
        """Show the decision of one round."""
        if strategy == "cpu-suppress" and "leftMilli" in plan.trace:
            self._suppress.labels(self._node, str(plan.trace["policy"])).set(plan.trace["leftMilli"] / 1000)
            self._used.labels(self._node).set(plan.trace["podsUsedCores"])
        elif strategy == "cpu-burst":
            self._show_containers(plan)

    def _show_containers(self, plan: Plan) -> None:
        self._burst.clear()
        self._quota.clear()
        for write in (write for batch in plan.batches for level in batch.levels for write in level):
            if not write.subject.container:
                continue
            gauge = {files.CPU_BURST.name: self._burst, files.CPU_QUOTA.name: self._quota}.get(write.file.name)
            if gauge is not None:
                gauge.labels(*self._labels(write)).set(float(write.value))

    def _labels(self, write: Write) -> tuple[str, ...]:
        about = write.subject
        return self._node, about.namespace, about.name, about.container_id, about.container
