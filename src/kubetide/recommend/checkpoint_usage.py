"""Estimates from the checkpoints of VPAs: a recommender that runs already has looked at the history.

A checkpoint holds histograms, not samples: the target of the recommender's own model follows from them, a backtest
does not.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from kubetide.api.objects.scheme import VPA_CHECKPOINTS, VPAS
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.recommend.core.workloads import ContainerKey, Estimate, Workload, key_of
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.core.aggregate import Aggregates, Tuning
from kubetide.vpa.recommender.core.checkpoint import Checkpoint, UnreadableCheckpoint, read_checkpoint
from kubetide.vpa.recommender.core.estimator import Estimation, estimate

_DAY = 86_400_000_000


async def load_checkpoints(
    client: Client, workloads: Sequence[Workload], *, namespace: str = "", problems: list[str]
) -> dict[ContainerKey, Estimate]:
    """Return the targets that the checkpoints of a cluster give, by container."""
    try:
        vpas = (await client.list(VPAS, namespace=namespace or None)).items
        stored = (await client.list(VPA_CHECKPOINTS, namespace=namespace or None)).items
    except NotFound:
        return {}
    except KubetideError as error:
        problems.append(f"VPA checkpoints cannot be read: {' '.join(str(error).split())}")
        return {}
    by_target: dict[tuple[str, str, str], Workload] = {
        (each.namespace, each.kind, each.name): each for each in workloads
    }
    for each in workloads:
        if each.maker is not None:
            by_target.setdefault((each.namespace, each.maker.kind, each.maker.name), each)
    targets: dict[tuple[str, str], Workload] = {}
    for vpa in vpas:
        reference = vpa.spec.target_ref
        if reference is not None:
            found = by_target.get((vpa.metadata.namespace, reference.kind, reference.name))
            if found is not None:
                targets[vpa.metadata.namespace, vpa.metadata.name] = found
    result: dict[ContainerKey, Estimate] = {}
    for one in stored:
        workload = targets.get((one.metadata.namespace, one.spec.vpa_object_name))
        if workload is None:
            continue
        try:
            checkpoint = read_checkpoint(one)
        except UnreadableCheckpoint as error:
            problems.append(str(error))
            continue
        if checkpoint.count:
            result[key_of(workload, checkpoint.container)] = _target(checkpoint)
    return result


def _target(checkpoint: Checkpoint) -> Estimate:
    aggregates = Aggregates(Tuning())
    slot = aggregates.allocate(0)
    aggregates.cpu.load(slot, checkpoint.cpu)
    aggregates.memory.load(slot, checkpoint.memory)
    at = np.array([slot])
    estimation = Estimation(min_cpu_millis=0.0, min_memory_bytes=0.0)  # `sized` raises to the least size of a pod
    amounts: Mapping[str, int] = {
        resource: int(
            estimate(
                resource,
                columns.select(at).percentiles(estimation.percentiles(resource)),
                first=np.array([checkpoint.first]),
                last=np.array([checkpoint.last]),
                count=np.array([checkpoint.count]),
                margin=np.array([estimation.margin]),
                containers=np.array([1]),
                estimation=estimation,
            )["target"][0]
        )
        for resource, columns in ((CPU, aggregates.cpu), (MEMORY, aggregates.memory))
    }
    return Estimate(
        cpu_millis=amounts[CPU],
        memory_bytes=amounts[MEMORY],
        days=round((checkpoint.last - checkpoint.first) / _DAY, 2),
        samples=checkpoint.count,
        source="VPA checkpoint",
    )
