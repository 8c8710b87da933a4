"""Gauges that alerts are about: autoscalers at their maximum, and those that cannot read a metric."""

from datetime import timedelta

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import autoscaler
from simulated.cluster import run


def test_autoscalers_at_their_maximum_and_without_metrics_are_counted() -> None:
    async def main(cluster: SimCluster) -> None:
        for name, metric in (("busy", "queue"), ("calm", "queue"), ("blind", "absent")):
            await cluster.apply(make_deployment(name, replicas=2, cpu="10m", memory="16Mi"))
            external = {"metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": "1"}}
            asked = {"type": "External", "external": external}
            await cluster.apply(make_hpa(name, target=name, maximum=3 if name == "busy" else 9, metrics=[asked]))
        cluster.metrics.set_external_metric("default", "queue", 5.0)
        async with autoscaler(cluster) as running:
            await cluster.run_for(timedelta(minutes=3))
            assert running.counted("kubetide_hpa_at_maximum") == 1
            assert running.counted("kubetide_hpa_without_metrics") == 1
            cluster.metrics.set_external_metric("default", "absent", 2.0)
            await cluster.run_for(timedelta(minutes=2))
            assert running.counted("kubetide_hpa_without_metrics") == 0

    run(main, nodes=1)
