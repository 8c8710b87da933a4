"""Usage that no node can deliver: a pod that seems to use more than its node has counts as one without a sample.

A broken exporter says `1e308` bytes. Believed, it would scale the target to its maximum; as a missing sample it is
filled in against the direction of the others, as the formulas do with every pod that is not known. The bound is the
pod's own node, else the largest node of the cluster; where nothing is known of nodes there is none.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from kubetide.api.capacity import Capacity
from kubetide.api.core import Pod
from kubetide.api.quantity import milli_text
from kubetide.hpa.samples import PodReading, RefusalReason, RefusedSample


def without_impossible(reading: PodReading, resource: str, pods: Sequence[Pod], capacity: Capacity) -> PodReading:
    """Return a reading of resource usage without the samples that are above what the pod's node has."""
    least = capacity.smallest.get(resource)
    if least is None or max([sample.value for sample in reading.samples.values()], default=0) <= least:
        return reading
    nodes = {pod.metadata.name: pod.spec.node_name for pod in pods}
    refused: dict[str, RefusedSample] = {}
    for name, sample in reading.samples.items():
        bound = capacity.bound(nodes.get(name, ""), resource)
        if bound is not None and sample.value > bound:
            has = f"node {nodes[name]} has" if nodes.get(name) in capacity.nodes else "the largest node has"
            text = f"the {resource} usage of pod {name} is {milli_text(sample.value)}, {has} {milli_text(bound)}"
            refused[name] = RefusedSample(RefusalReason.ABOVE_NODE, text)
    if not refused:
        return reading
    kept = {name: sample for name, sample in reading.samples.items() if name not in refused}
    return replace(reading, samples=kept, refused={**reading.refused, **refused})
