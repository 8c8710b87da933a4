"""Several controllers, each for the namespaces of its shard."""

from datetime import timedelta

import pytest

from kubetide.api.values.shard_selector import NAMESPACE, shard_of
from kubetide.config import load
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import SettingsError
from kubetide.hpa.settings import HpaSettings
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import autoscaler
from simulated.cluster import run

QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


def test_a_controller_looks_after_the_namespaces_of_its_shard() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.metrics.set_external_metric("", "queue", 40.0)
        for namespace in ("shop", "b"):
            await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            await cluster.apply(make_deployment("web", namespace, replicas=2, cpu="10m", memory="16Mi"))
            await cluster.apply(make_hpa("web", namespace, maximum=8, metrics=[QUEUE]))
        assert shard_of(0, 2, NAMESPACE).matches("", "shop")
        assert shard_of(1, 2, NAMESPACE).matches("", "b")
        async with autoscaler(cluster, HpaSettings(shard="0/2")) as running:
            await cluster.run_for(timedelta(minutes=1))
            assert (running.replicas("shop", "web"), running.replicas("b", "web")) == (4, 2)
            async with autoscaler(cluster, HpaSettings(shard="1/2")) as other:
                await cluster.run_for(timedelta(minutes=1))
                assert (other.replicas("shop", "web"), other.replicas("b", "web")) == (4, 4)

    run(main, nodes=1)


@pytest.mark.parametrize("text", ["3/3", "1", "a/b", "0/0", "-1/2"])
def test_a_shard_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="hpa-shard"):
        load(HpaSettings, flags={"hpa-shard": text})
