"""Gauges of the strategies: names and labels that dashboards of upstream know, and only what is in force."""

import errno

from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import CPUBurstStrategy, NodeSLOSpec
from kubetide.node.core.qos.burst_limiter import Limiters
from kubetide.node.core.qos.cpu_burst import CpuBurst
from kubetide.node.telemetry import Gauges
from kubetide.telemetry import Telemetry
from nodeworld import World, processors_of


def test_burst_is_shown_by_container_and_forgotten_with_it() -> None:
    world = World()
    world.processors = processors_of([{"cpu": 0}])
    world.slo = NodeSLOSpec(cpu_burst_strategy=CPUBurstStrategy(policy="auto", cpu_burst_percent=100))
    pod = world.add_pod(
        {
            "metadata": {"name": "web", "namespace": "shop", "uid": "web", "labels": {qos.LABEL_QOS: "LS"}},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]},
            "status": {
                "phase": "Running",
                "qosClass": "Burstable",
                "containerStatuses": [{"name": "main", "containerID": "containerd://main"}],
            },
        }
    )
    for directory in (pod.directory, pod.containers[0].directory):
        world.cgroup("cpu", directory, {"cpu.cfs_quota_us": "100000", "cpu.cfs_burst_us": "0"})
    telemetry = Telemetry()
    gauges = Gauges(telemetry, "n")
    strategy = CpuBurst(Limiters(lambda: 0.0))
    labels = {
        "node": "n",
        "pod_namespace": "shop",
        "pod_name": "web",
        "container_id": "containerd://main",
        "container_name": "main",
    }

    def shown() -> float | None:
        plan = world.decide(strategy)
        gauges.show(strategy.name, plan, world.apply(plan, strategy))
        return telemetry.registry.get_sample_value("koordlet_container_scaled_cfs_burst_us", labels)

    burst = f"{world.layout.cgroup_dir('cpu', pod.containers[0].directory)}/cpu.cfs_burst_us"
    world.host.refused[burst] = errno.EBUSY
    assert shown() is None
    del world.host.refused[burst]
    assert shown() == 100_000
    world.pods.clear()
    assert shown() is None
