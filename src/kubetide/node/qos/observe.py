"""Shows what the strategies decided, and what of it is in force, as gauges under upstream's names."""

from kubetide.node.executor.outcomes import Outcomes
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

    def show(self, strategy: str, plan: Plan, outcomes: Outcomes) -> None:
        """Show the decision of one sync; of values of containers those that the kernel took."""
        if strategy == "cpu-suppress" and "leftMilli" in plan.trace:
            self._suppress.labels(self._node, str(plan.trace["policy"])).set(plan.trace["leftMilli"] / 1000)
            self._used.labels(self._node).set(plan.trace["podsUsedCores"])
        elif strategy == "cpu-burst":
            self._show_containers(outcomes)

    def _show_containers(self, outcomes: Outcomes) -> None:
        self._burst.clear()
        self._quota.clear()
        for outcome in outcomes:
            write = outcome.write
            if not (write.subject.container and outcome.in_force):
                continue
            gauge = {files.CPU_BURST.name: self._burst, files.CPU_QUOTA.name: self._quota}.get(write.file.name)
            if gauge is not None:
                gauge.labels(*self._labels(write)).set(float(write.value))

    def _labels(self, write: Write) -> tuple[str, ...]:
        about = write.subject
        return self._node, about.namespace, about.name, about.container_id, about.container
