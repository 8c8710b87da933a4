"""A whole cluster in virtual time, for tests.

def test_pods_start() -> None:
    async def main(cluster: SimCluster) -> None:
        await cluster.apply(make_deployment("web", replicas=3))
        await cluster.run_for(timedelta(seconds=30))
        assert len(ready_pods(cluster, "default")) == 3

    run(main, nodes=1)
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.embedded.sim.load.scenario_file import parse_scenario
from kubetide.embedded.sim.time.loop import DEFAULT_START, run_virtual
from kubetide.embedded.sim.world import DEPLOYMENTS, EVENTS, PODS, is_ready

T = TypeVar("T")
Raw = dict[str, Any]

LIMIT = timedelta(days=30)
"""A test that has not ended by then, in virtual time, never will."""


def run(
    main: Callable[[SimCluster], Awaitable[T]],
    *,
    scenario: Scenario | str | None = None,
    seed: int = 0,
    nodes: int = 0,
    start: datetime | None = None,
    limit: timedelta = LIMIT,
) -> T:
    """Run `main` with a cluster in virtual time and return its result. `nodes` adds that many of the usual size."""
    if isinstance(scenario, str):
        scenario = parse_scenario(scenario)

    async def body() -> T:
        async with SimCluster(scenario, seed=seed) as cluster:
            for number in range(nodes):
                cluster.add_node(f"node-{number + 1}")
            return await main(cluster)

    begin = start or (scenario.start if scenario is not None else DEFAULT_START)
    return run_virtual(body(), start=begin, limit=limit)


def pods(cluster: SimCluster, namespace: str | None = None, **labels: str) -> list[Raw]:
    """Return the pods of a namespace that carry all these labels."""
    found = cluster.world.all(PODS, namespace)
    return [pod for pod in found if labels.items() <= (pod["metadata"].get("labels") or {}).items()]


def ready_pods(cluster: SimCluster, namespace: str | None = None, **labels: str) -> list[Raw]:
    """Return the pods that are ready and not on their way out."""
    return [
        pod
        for pod in pods(cluster, namespace, **labels)
        if is_ready(pod) and not pod["metadata"].get("deletionTimestamp")
    ]


def deployment(cluster: SimCluster, namespace: str, name: str) -> Raw:
    """Return a deployment; it must be there."""
    return get(cluster, DEPLOYMENTS, namespace, name)


def get(cluster: SimCluster, resource: ResourceKey, namespace: str, name: str) -> Raw:
    """Return an object as it is stored; it must be there."""
    found = cluster.world.get(resource, StoreKey(namespace, name))
    assert found is not None, f"{resource.plural} {namespace}/{name} is not there"
    return found


def events(cluster: SimCluster, *, reason: str | None = None, name: str | None = None) -> list[Raw]:
    """Return the events of the cluster, filtered, oldest first."""
    found = [
        event
        for event in cluster.world.all(EVENTS)
        if (reason is None or event.get("reason") == reason)
        and (name is None or (event.get("involvedObject") or event.get("regarding") or {}).get("name") == name)
    ]
    return sorted(found, key=lambda event: (event.get("firstTimestamp") or "", event["metadata"]["name"]))
