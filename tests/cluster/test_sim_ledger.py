"""The accounts of a simulated cluster follow its pods, although what they hold is added up only when one changed."""

from collections import Counter
from datetime import timedelta

import pytest

from kubetide.api.objects.scheme import DEPLOYMENTS, PODS
from kubetide.api.values.patch import MergePatch, StrategicMergePatch
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.ledger import Ledger
from kubetide.embedded.sim.load.profile import WorkloadKey
from kubetide.embedded.sim.node.resizes import held_by
from simulated.cluster import run

SCENARIO = """
name: accounts
nodes: [{name: node, count: 2, cpu: "8", memory: 16Gi}]
workloads:
- name: web
  replicas: 3
  requests: {cpu: 200m, memory: 128Mi}
  limits: {cpu: 400m}
  load: {curve: constant, level: 60}
- name: leaky
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 80Mi}
  load: {curve: constant, level: 1}
  memory: {base: 40Mi, leak-per-hour: 2Gi}
"""
WEB = ("default", "web")


class Checked:
    """Adds up pod by pod, after every look of a ledger, and compares."""

    def __init__(self, cluster: SimCluster, ledger: Ledger) -> None:
        self.cluster = cluster
        self.ledger = ledger
        self.seen: list[tuple[int, int, float, int]] = []
        """Pods, ready ones, cores asked for and restarts of `web`."""
        self._before: object = None

    def killed(self, workload: WorkloadKey, requests: float) -> None:
        """Nothing to do: the ledger counts it."""

    def stepped(self, now: float) -> None:
        """Compare."""
        pods, ready, restarts = Counter[WorkloadKey](), Counter[WorkloadKey](), Counter[WorkloadKey]()
        cores: dict[WorkloadKey, float] = {}
        asked: dict[WorkloadKey, float] = {}
        for each in self.cluster.kubelets.runs():
            key = each.workload
            pods[key] += 1
            ready[key] += all(container.ready for container in each.containers)
            restarts[key] += sum(container.restarts for container in each.containers)
            rows = [container.row for container in each.containers if container.row is not None]
            cores[key] = cores.get(key, 0.0) + float(self.cluster.kernel.granted[rows].sum())
            asked[key] = asked.get(key, 0.0) + held_by(each.containers).get("cpu", 0) / 1000
        if self.ledger.latest is self._before:
            return
        self._before = self.ledger.latest
        for key, row in self.ledger.latest.items():
            assert (row.pods, row.ready, row.restarts) == (pods[key], ready[key], restarts[key]), (now, key)
            assert (row.used_cores, row.asked_cores) == (cores.get(key, 0.0), asked.get(key, 0.0)), (now, key)
        if (web := self.ledger.latest.get(WEB)) is not None:
            self.seen.append((web.pods, web.ready, web.asked_cores, web.restarts))


def test_every_change_of_a_pod_reaches_the_accounts() -> None:
    async def main(cluster: SimCluster) -> Checked:
        ledger = Ledger(cluster)
        checked = Checked(cluster, ledger)
        ledger.attach()
        cluster.observers.append(checked)
        client, minute = cluster.client(), timedelta(minutes=1)
        await cluster.run_for(minute)
        await client.patch(DEPLOYMENTS, "web", MergePatch({"spec": {"replicas": 5}}), namespace="default")
        await cluster.run_for(minute)
        oldest = next(each for each in cluster.kubelets.runs() if each.workload == WEB)
        cluster.kubelets.crash(oldest.key)
        await cluster.run_for(minute)
        more = {"name": oldest.containers[0].name, "resources": {"requests": {"cpu": "300m"}}}
        patch = StrategicMergePatch({"spec": {"containers": [more]}})
        await client.patch(PODS, oldest.key.name, patch, namespace="default", subresource="resize")
        await cluster.run_for(minute)
        await client.delete(PODS, oldest.key.name, namespace="default")
        await cluster.run_for(minute)
        await client.patch(DEPLOYMENTS, "web", MergePatch({"spec": {"replicas": 1}}), namespace="default")
        await cluster.run_for(2 * minute)
        return checked

    checked = run(main, scenario=SCENARIO)
    pods, ready, asked, restarts = (set(column) for column in zip(*checked.seen, strict=True))
    assert {3, 5, 1} <= pods
    assert {3, 5, 1} <= ready
    assert any(each == pytest.approx(1.1) for each in asked), "a pod was resized in place"
    assert restarts >= {0, 1}
    assert checked.ledger.accounts["default", "leaky"].oom_kills > 0
