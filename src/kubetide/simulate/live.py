"""A scenario from a live cluster: one autoscaler with its target, its VPA and the nodes, under a load that one names.

Nothing is written to the cluster. What a request costs cannot be read from it, so that is an argument.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import DEPLOYMENTS, HPAS, NODES, STATEFUL_SETS, VPAS, Resource
from kubetide.api.values.quantity import quantity_float
from kubetide.embedded.sim.load.scenario import (
    Amount,
    LoadSpec,
    MemorySpec,
    Raw,
    Scenario,
    ScenarioNodes,
    ScenarioWorkload,
    make_curve,
)
from kubetide.embedded.sim.load.scenario_file import with_valid_values
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.client.client import Client
from kubetide.log import get_logger
from kubetide.simulate.recorded import autoscaler
from kubetide.stats.prometheus_ranges import read_any
from kubetide.vpa.recommender.prometheus import Prometheus

log = get_logger(__name__)

_TARGETS: Mapping[str, Resource[Any]] = {"Deployment": DEPLOYMENTS, "StatefulSet": STATEFUL_SETS}
_SHORT = {"at": "begin", "for": "duration"}


def parse_load(text: str) -> LoadSpec:
    """Read a load such as `spike:base=60,peak=600,at=5m,for=8m`; fields are those of a scenario's `load`."""
    curve, _, rest = text.partition(":")
    fields: dict[str, Any] = {"curve": curve}
    for part in filter(None, rest.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise InvalidInput(f"{part!r} is not NAME=VALUE", subject=text, field="--load")
        fields[_SHORT.get(name, name)] = value
    try:
        spec = msgspec.convert(fields, LoadSpec, strict=False)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        place = where.rstrip("`")
        right = with_valid_values(message, f"workloads[0].load{place}")
        raise InvalidInput(right, subject=text, field=f"--load {place.lstrip('.')}".rstrip()) from error
    make_curve(spec, where="--load", subject=text)
    return spec


async def load_from(prometheus: Prometheus, query: str, *, end: int, seconds: int, step: int) -> LoadSpec:
    """Return the load that a query had in the last so many seconds; several series are added up."""
    start = end - seconds
    form = {"query": query, "start": str(start), "end": str(end), "step": str(step)}
    total: dict[int, float] = {}
    for one in read_any(await prometheus.post("/api/v1/query_range", form)):
        for at, value in zip((one.times // 1_000_000).tolist(), one.values.tolist(), strict=True):
            total[at - start] = total.get(at - start, 0.0) + value
    if not total:
        raise InvalidInput("Prometheus has no samples for it in this time", subject=query, field="--load-from")
    if min(total.values()) < 0.0:
        raise InvalidInput("is negative at times; load cannot be", subject=query, field="--load-from")
    return LoadSpec(curve="trace", file="".join(f"{at},{total[at]:.6g}\n" for at in sorted(total)))


async def scenario_of_hpa(
    client: Client, key: ObjectKey, load: LoadSpec, *, cpu_per_request: Amount, duration: str
) -> Scenario:
    """Return an HPA of a cluster as a scenario."""
    hpa = await client.get_raw(HPAS, key.name, namespace=key.namespace)
    target = hpa["spec"]["scaleTargetRef"]
    kind, name = str(target.get("kind")), str(target.get("name"))
    if kind not in _TARGETS:
        raise InvalidInput(
            f"its target is a {kind}; only {' and '.join(_TARGETS)} can be simulated", subject=f"hpa {key}"
        )
    workload = await client.get_raw(_TARGETS[kind], name, namespace=key.namespace)
    objects = [autoscaler("HorizontalPodAutoscaler", key.namespace, key.name, hpa)]
    vpa = await _vpa_of(client, key.namespace, kind, name)
    if vpa is not None:
        objects.append(vpa)
    spec = workload["spec"]
    containers = spec["template"]["spec"]["containers"]
    requests, limits = _total(containers, "requests"), _total(containers, "limits")
    return Scenario(
        name=f"{key.namespace}/{key.name}",
        duration=duration,
        nodes=await _nodes(client),
        workloads=[
            ScenarioWorkload(
                name=name,
                namespace=key.namespace,
                kind="StatefulSet" if kind == "StatefulSet" else "Deployment",
                replicas=int(spec.get("replicas", 1)),
                requests=requests,
                limits=limits,
                load=load,
                cpu_per_request=cpu_per_request,
                # Without samples of memory the request is the best guess of what a pod holds, with room below it.
                memory=MemorySpec(base=int(0.8 * quantity_float(requests.get("memory", 64 * 2**20)))),
            )
        ],
        objects=objects,
    )


async def _vpa_of(client: Client, namespace: str, kind: str, name: str) -> Raw | None:
    """Return the VPA of a workload; a cluster need not have any."""
    try:
        listed = await client.list(VPAS, namespace=namespace)
    except KubetideError as error:
        log.warning("VPAs cannot be listed", namespace=namespace, error=str(error))
        return None
    for each in listed.items:
        target = each.spec.target_ref
        if target is not None and (target.kind, target.name) == (kind, name):
            raw = await client.get_raw(VPAS, each.metadata.name, namespace=namespace)
            return autoscaler("VerticalPodAutoscaler", namespace, each.metadata.name, raw)
    return None


async def _nodes(client: Client) -> list[ScenarioNodes]:
    """Return machines like those of the cluster; a few large ones where nodes cannot be read."""
    try:
        listed = await client.list(NODES)
    except KubetideError as error:
        log.warning("nodes cannot be listed, three of 16 cores are assumed", error=str(error))
        return [ScenarioNodes(name="node", count=3, cpu="16", memory="64Gi")]
    found = []
    for node in listed.items:
        size = (node.status.allocatable if node.status is not None else None) or {}
        if "cpu" in size and "memory" in size:
            found.append(ScenarioNodes(name=node.metadata.name, cpu=str(size["cpu"]), memory=str(size["memory"])))
    return found or [ScenarioNodes(name="node", count=3, cpu="16", memory="64Gi")]


def _total(containers: Any, field: str) -> dict[str, Amount]:
    """Return CPU and memory of a pod: a limit counts only where every container has it."""
    found: dict[str, Amount] = {}
    for resource in ("cpu", "memory"):
        amounts = [((each.get("resources") or {}).get(field) or {}).get(resource) for each in containers]
        known = [quantity_float(amount) for amount in amounts if amount is not None]
        if known and (field == "requests" or len(known) == len(amounts)):
            total = float(np.sum(known))
            found[resource] = f"{round(total * 1000)}m" if resource == "cpu" else round(total)
    return found
