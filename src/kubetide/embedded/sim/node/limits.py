"""What a kubelet writes into cgroups: shares from requests, quotas and memory limits from limits, at every level."""

from collections.abc import Iterable

from kubetide.embedded.sim.node.containers import SimContainer, cpu_quota_us, cpu_shares, memory_limit, shares_of
from kubetide.embedded.sim.node.hosts import SimHost
from kubetide.embedded.sim.node.kernel import Kernel
from kubetide.embedded.sim.node.podruns import PodRun
from kubetide.embedded.sim.node.resizes import held_by
from kubetide.embedded.sim.placement import amounts_of


class GroupLimits:
    """Brings resources of containers, pods and tiers into force."""

    def __init__(self, kernel: Kernel, hosts: dict[str, SimHost]) -> None:
        self._kernel = kernel
        self._hosts = hosts

    def apply_to_container(self, run: PodRun, container: SimContainer) -> None:
        """Write a container's resources into its cgroup."""
        if container.row is None:
            return
        self._kernel.catch_up()
        group = self._kernel.group_of(container.row)
        group.shares = cpu_shares(container.actual.get("requests"))
        group.quota_us = cpu_quota_us(container.actual.get("limits"))
        group.memory_limit = memory_limit(container.actual.get("limits"))
        self._kernel.changed(self._hosts[run.node].machine)

    def apply_to_pod(self, run: PodRun) -> None:
        """Write the pod's own cgroup: sums, limited only where every container is."""
        self._kernel.catch_up()
        host = self._hosts[run.node]
        group = host.machine.tree.make(run.group)
        run.cpu_millis = held_by(run.containers).get("cpu", 0)
        resources = [container.actual for container in run.containers]
        group.shares = shares_of(sum(amounts_of(part.get("requests")).get("cpu", 0) for part in resources))
        quotas = [cpu_quota_us(part.get("limits")) for part in resources]
        limits = [memory_limit(part.get("limits")) for part in resources]
        group.quota_us = None if None in quotas else sum(quota or 0 for quota in quotas)
        group.memory_limit = None if None in limits else sum(limit or 0 for limit in limits)
        self._kernel.changed(host.machine)

    def apply_to_tiers(self, host: SimHost, runs: Iterable[PodRun]) -> None:
        """Give the Burstable tier the shares of all its pods together."""
        self._kernel.catch_up()
        millis = sum(run.cpu_millis for run in runs if run.qos == "Burstable")
        host.machine.tree.make(host.paths.tier("Burstable")).shares = shares_of(millis)
