"""Recommender, updater and webhook with gates, and a DaemonSet on nodes of different size."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from kubetide.api.values.quantity import parse_quantity
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.testing.builders import make_daemon_set, make_vpa
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.vpa.updater.settings import UpdaterSettings
from simulated.cluster import pods
from simulated.recommending import recommender
from simulated.updating import install_crds, vpa_parts

MINUTE = timedelta(minutes=1)
POOL = "pool"
Raw = dict[str, Any]


async def run_all(cluster: SimCluster, gates: Sequence[str], span: timedelta) -> None:
    """Run recommender, updater and webhook with these gates for a while."""
    named = tuple(f"{gate}=true" for gate in gates)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(recommender(cluster, RecommenderSettings(feature_gates=named)))
        await stack.enter_async_context(
            vpa_parts(
                cluster,
                UpdaterSettings(feature_gates=named),
                AdmissionSettings(local_name="vpa", feature_gates=named),
            )
        )
        await cluster.run_for(span)


def requests(pod: Raw, container: int = 0) -> Raw:
    found: Raw = pod["spec"]["containers"][container]["resources"]["requests"]
    return found


async def two_pools(cluster: SimCluster, *, field: bool = True) -> None:
    await install_crds(cluster)
    cluster.add_node("large-1", cpu="8", labels={POOL: "large"})
    cluster.add_node("small-1", cpu="2", labels={POOL: "small"})
    cluster.add_node("other-1", cpu="1")
    await cluster.apply(make_daemon_set("agent", cpu="200m", memory="128Mi"))
    vpa = make_vpa("agent", target="agent", kind="DaemonSet", mode="Recreate", min_replicas=1)
    if field:
        vpa["spec"]["scope"] = POOL
    else:
        vpa["metadata"]["annotations"] = {"kubetide.io/vpa-scope": POOL}
    await cluster.apply(vpa)
    # What a node can give differs, and so does what its pod uses.
    cluster.set_usage("default", "agent", cpu="3", memory="100Mi")
    await cluster.run_for(MINUTE)


def by_node(cluster: SimCluster) -> dict[str, int]:
    return {pod["spec"]["nodeName"]: parse_quantity(requests(pod)["cpu"]).milli for pod in pods(cluster)}
