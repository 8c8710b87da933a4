"""One namespace whose autoscalers are shared one by one, by their uids."""

from kubetide.embedded.apiserver.rest.requests import Request
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.control.core.ranges import ShardMode, range_of
from kubetide.kube.control.range_fence import namespace_of, range_of_write
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.replicas import QUEUE, QUICK, Replicas

NAMESPACE = "huge"
SPLIT = HpaSettings(shards=ShardMode.AUTO, shards_split=(NAMESPACE,))
HPAS = ResourceKey("autoscaling", "horizontalpodautoscalers")


async def huge(replicas: Replicas, count: int) -> list[str]:
    """Make workloads with autoscalers of the same names in one namespace, and judge writes by the uids of these."""
    cluster = replicas.cluster

    def range_of_request(request: Request) -> int:
        if namespace_of(request.path) != NAMESPACE:
            return range_of_write(request.path, request.body)
        # …/namespaces/huge/deployments/web-1/scale, …/horizontalpodautoscalers/web-1/status
        found = cluster.world.get(HPAS, StoreKey(NAMESPACE, request.path.split("/")[-2]))
        assert found is not None, request.path
        return range_of(found["metadata"]["uid"])

    replicas.checker.range_of = range_of_request
    cluster.metrics.set_external_metric("", "queue", 20.0)
    await cluster.ensure_namespace(NAMESPACE)
    names = [f"web-{number}" for number in range(count)]
    for name in names:
        await cluster.apply(make_deployment(name, NAMESPACE, replicas=1, cpu="1m", memory="1Mi"))
        await cluster.apply(make_hpa(name, NAMESPACE, target=name, maximum=4, metrics=[QUEUE], behavior=QUICK))
    return names


def sizes_of(replicas: Replicas, names: list[str]) -> set[int]:
    """Return the sizes that the workloads have."""
    return {replicas.all[0].running.replicas(NAMESPACE, name) for name in names}
