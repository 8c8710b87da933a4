"""Samples as nodes know them: from the kernel of simulated nodes to the recommendation, and where nobody tells."""

from datetime import timedelta

import pytest

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.recommender.explain import render
from kubetide.vpa.recommender.settings import RecommenderSettings
from simulated.cluster import run
from simulated.recommending import recommended, recommender
from simulated.signals import signals
from simulated.updating import install_crds

MIB = 2**20


def sized(*, told: bool, switched_on: bool) -> tuple[int, str]:
    """Return the memory target of a pod with much page cache, in MiB, and how it is explained."""

    async def main(cluster: SimCluster) -> tuple[int, str]:
        await install_crds(cluster)
        notes = {"sim.kubetide.io/memory": "300Mi", "sim.kubetide.io/cache": "1Gi"}
        await cluster.apply(make_deployment("web", replicas=2, cpu="100m", memory="2Gi", annotations=notes))
        await cluster.apply(make_vpa("web", target="web", mode="Off"))
        await cluster.run_for(timedelta(seconds=30))
        settings = RecommenderSettings(memory_without_page_cache=switched_on, cpu_peaks=switched_on)
        async with signals(cluster, window=15.0, look=15.0) as heard:
            client = heard.client() if told else cluster.client()
            async with recommender(cluster, settings, client=client) as running:
                await cluster.run_for(timedelta(minutes=10))
                trace = running.recommender.explain("vpa", "default/web")
                assert trace is not None
                return recommended(cluster, "default", "web")["memory"] // MIB, render(trace)

    return run(main, nodes=1)


def test_page_cache_is_no_need_where_nodes_tell_it_apart() -> None:
    plain, _ = sized(told=True, switched_on=False)
    less, explained = sized(told=True, switched_on=True)
    assert less < 0.6 * plain
    assert less >= 300
    assert "signals of nodes for 2 of 2 samples of the last loop" in explained
    assert "without page cache instead of" in explained


@pytest.mark.parametrize("switched_on", [False, True])
def test_without_a_server_that_tells_samples_stay_as_they_are(switched_on: bool) -> None:
    plain, explained = sized(told=False, switched_on=switched_on)
    assert plain > 800
    assert ("signals of nodes for 0 of 2" in explained) == switched_on
