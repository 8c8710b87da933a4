"""A workload whose usage differs from hour to hour, for tests of learned sizes."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_deployment, make_vpa
from kubetide.vpa.core.learned import Estimator
from kubetide.vpa.recommender.settings import RecommenderSettings
from simulated.recommending import VPAS, recommended

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
MIB = 2**20
SETTINGS = RecommenderSettings(interval=timedelta(minutes=5), checkpoint_interval=timedelta(0))
ADAPTIVE = msgspec.structs.replace(SETTINGS, estimator=Estimator.ADAPTIVE)


async def web(cluster: SimCluster, name: str = "web", **annotations: str) -> None:
    made = make_vpa(name, target="web", mode="Off")
    made["metadata"]["annotations"] = {f"kubetide.io/{name}": value for name, value in annotations.items()}
    await cluster.apply(made)


def annotations(cluster: SimCluster) -> Mapping[str, str]:
    found = cluster.world.get(VPAS, StoreKey("default", "web"))
    assert found is not None
    return found["metadata"].get("annotations") or {}


def wave(cluster: SimCluster, hour: int) -> None:
    """Usage that differs from hour to hour."""
    cluster.set_usage("default", "web", cpu=f"{300 + 100 * (hour % 4)}m", memory=f"{300 + 20 * (hour % 3)}Mi")


async def prepared(cluster: SimCluster) -> None:
    await cluster.apply(make_deployment("web", replicas=2, cpu="500m", memory="512Mi", limits={"memory": "1Gi"}))


async def hours(cluster: SimCluster, start: int, count: int) -> list[dict[str, int]]:
    """Let hours pass and return the targets at the end of each."""
    found = []
    for hour in range(start, start + count):
        wave(cluster, hour)
        await cluster.run_for(HOUR)
        found.append(recommended(cluster, "default", "web"))
    return found
