"""Half an hour in which a replica dies, stops or is cut off every thirty seconds: all is done, and nothing twice."""

from datetime import timedelta
from random import Random

import pytest

from kubetide.api.objects.scheme import VPA_CHECKPOINTS
from kubetide.kube.control.core.ranges import RANGES
from kubetide.vpa.recommender.loop import Recommender
from simulated.replicas import HPA, Replicas, bad_day, drill, sizes, workloads
from simulated.split_namespace import SPLIT, huge, sizes_of
from simulated.vpas import RECOMMENDERS, make_vpas


async def half_an_hour(replicas: Replicas, rng: Random) -> None:
    """Let replicas die, stop and lose the network, while the queue grows and shrinks."""

    def minute(number: int) -> None:
        replicas.cluster.metrics.set_external_metric("", "queue", 40.0 if number % 2 else 10.0)

    await bad_day(replicas, rng, each_minute=minute)


@pytest.mark.parametrize("split", [False, True])
def test_autoscalers_that_die_all_the_time_write_nothing_twice(split: bool) -> None:
    async def main(replicas: Replicas) -> None:
        names = await (huge if split else workloads)(replicas, 16)
        await half_an_hour(replicas, Random(11 if split else 7))
        replicas.cluster.metrics.set_external_metric("", "queue", 30.0)
        await replicas.cluster.run_for(timedelta(seconds=60))
        assert sum(one.ranges for one in replicas.all) == RANGES
        assert (sizes_of if split else sizes)(replicas, names) == {3}
        assert len(replicas.checker.writes) > 100

    drill(main, settings=SPLIT if split else HPA)


@pytest.mark.parametrize("seed", [3])
def test_recommenders_that_die_all_the_time_write_nothing_twice_and_lose_little(seed: int) -> None:
    async def main(replicas: Replicas) -> None:
        cluster = replicas.cluster
        names = await make_vpas(cluster, 16)
        await half_an_hour(replicas, Random(seed))
        await cluster.run_for(timedelta(minutes=6))
        assert sum(one.ranges for one in replicas.all) == RANGES
        stored = (await cluster.client().list(VPA_CHECKPOINTS)).items
        assert len(stored) == len(names)
        counts = [one.status.total_samples_count for one in stored if one.status is not None]
        # Four samples a minute for about 40 minutes; who dies takes at most five minutes of them along.
        assert all(20 < count <= 200 for count in counts)
        assert len(replicas.checker.writes) > 100

    drill(main, Recommender, RECOMMENDERS)
