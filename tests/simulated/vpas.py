"""Namespaces with a VPA each, and settings of recommenders that share them, whose minutes are short."""

from datetime import timedelta

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.control.core.ranges import ShardMode
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.recommender.settings import RecommenderSettings
from simulated.updating import install_crds

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
RECOMMENDERS = RecommenderSettings(
    shards=ShardMode.AUTO,
    confidence_interval_cpu=HOUR,
    confidence_interval_memory=HOUR,
    interval=MINUTE / 4,
    checkpoint_interval=5 * MINUTE,
    checkpoints_gc_interval=2 * MINUTE,
)


async def make_vpas(cluster: SimCluster, count: int) -> list[str]:
    """Make namespaces with a workload that uses 400m, and its VPA."""
    await install_crds(cluster)
    names = [f"{number}-shop" for number in range(count)]
    for name in names:
        await cluster.ensure_namespace(name)
        await cluster.apply(make_deployment("web", name, replicas=1, cpu="1m", memory="1Mi"))
        await cluster.apply(make_vpa("web", name))
        cluster.set_usage(name, "web", cpu="400m", memory="300Mi")
    return names
