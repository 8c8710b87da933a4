"""Workloads of one cluster with their usage, from the first source that has it: Prometheus, VPA checkpoints, metrics.

A container that one source does not know is looked for in the next; what none knows gets a row that gives the reason.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kubetide.clock import Clock
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.client.client import Client
from kubetide.recommend.checkpoint_usage import load_checkpoints
from kubetide.recommend.cluster import ClusterState, Selection, read_workloads
from kubetide.recommend.core.money import Price
from kubetide.recommend.core.workloads import ContainerKey, Estimate, Usage, key_of
from kubetide.recommend.metrics_usage import Watch, watch_usage
from kubetide.recommend.opencost import node_prices
from kubetide.recommend.prometheus_usage import Cost, ListingPrometheus, PrometheusUsage, Question
from kubetide.recording.prometheus_proxy import find_prometheus
from kubetide.stats.prometheus_ranges import PrometheusAnswer

AUTO = "auto"
_UNAUTHORIZED = ("status 401", "status 403")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where usage is looked for."""

    prometheus: ListingPrometheus | None = None
    find_prometheus: bool = False
    """Look for one in the cluster where none is given; that there is none is no error then."""
    must_find: bool = False
    question: Question = field(default_factory=Question)
    watch: Watch | None = None
    opencost: bool = False
    """Look for prices in the OpenCost of the cluster."""


def _unusable(error: KubetideError, *, by_url: bool) -> KubetideError:
    """Return what is said of a Prometheus that was found or named and gave no usage."""
    text = " ".join(str(error).split())
    if not isinstance(error, PrometheusAnswer):
        return error
    hint = ""
    if text.startswith(_UNAUTHORIZED):
        hint = ": check --prometheus-token or --prometheus-user" if by_url else ": give its URL with --prometheus"
    return KubetideError(f"Prometheus cannot be used{hint}: {text}")


@dataclass(slots=True)
class Gathered:
    """One cluster, ready for rows."""

    state: ClusterState
    usage: dict[ContainerKey, Usage | Estimate] = field(default_factory=dict)
    missing: dict[ContainerKey, str] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    cluster: str = ""
    prices: Mapping[str, Price] = field(default_factory=dict)
    """What OpenCost says about nodes."""

    def problems(self, several: bool) -> list[str]:
        """Return what could not be read, with the cluster where there are several."""
        return [f"{self.cluster}: {each}" if several else each for each in self.state.problems]


async def gather(
    client: Client,
    clock: Clock,
    selection: Selection,
    sources: Sources,
    *,
    cluster: str = "",
    progress: Callable[[str, int, int], None] | None = None,
) -> Gathered:
    """Read one cluster."""
    tell = progress or (lambda what, done, of: None)
    state = await read_workloads(client, selection, cluster=cluster)
    found = Gathered(state, cluster=cluster)
    keys = {key_of(each, one.name) for each in state.workloads for one in each.containers}
    if not keys:
        return found
    if sources.opencost:
        try:
            found.prices = await node_prices(client) or {}
        except KubetideError as error:
            state.problems.append(f"no prices from OpenCost: {' '.join(str(error).split())}")
    tried: list[str] = []
    prometheus = sources.prometheus
    if prometheus is None and sources.find_prometheus:
        try:
            prometheus = await find_prometheus(client)
        except InvalidInput:
            if sources.must_find:
                raise
            state.problems.append("no Prometheus found in the cluster: give --prometheus URL for history")
        except KubetideError as error:
            if sources.must_find:
                raise
            state.problems.append(f"Prometheus cannot be looked for: {' '.join(str(error).split())}")
    if prometheus is not None:
        source = PrometheusUsage(
            prometheus, clock, client.rng, progress=lambda done, of: tell("queries to Prometheus", done, of)
        )
        try:
            found.usage.update(await source.load(state.workloads, sources.question))
            tried.append("Prometheus")
        except InvalidInput:
            raise
        except KubetideError as error:
            if sources.prometheus is not None or sources.must_find:
                raise _unusable(error, by_url=sources.prometheus is not None) from error
            # Nobody named it: there are other sources.
            state.problems.append(" ".join(str(_unusable(error, by_url=False)).split()))
        found.cost = source.cost
    if keys - found.usage.keys():
        stored = await load_checkpoints(client, state.workloads, namespace=selection.namespace, problems=state.problems)
        found.usage.update({key: each for key, each in stored.items() if key not in found.usage})
        tried.append("VPA checkpoints")
    if sources.watch is not None and keys - found.usage.keys():
        live = await watch_usage(
            client,
            clock,
            state.workloads,
            sources.watch,
            namespace=selection.namespace,
            progress=lambda done, of: tell("seconds of the metrics API", done, of),
        )
        found.usage.update({key: each for key, each in live.items() if key not in found.usage})
        tried.append("the metrics API")
    reason = f"no usage in {', '.join(tried)}"
    if sources.watch is None:
        reason += "; --watch-for 10m collects from the metrics API"
    found.missing = dict.fromkeys(sorted(keys - found.usage.keys()), reason)
    return found
