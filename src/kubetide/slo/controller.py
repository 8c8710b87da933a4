"""The SLO controller: one ConfigMap in; a NodeSLO, a NodeMetric policy and lent resources per node out.

Three small reconcilers over one set of informers, each with a queue of node names:

    nodeslo       renders the NodeSLO and puts it back when somebody else changed it
    nodemetric    keeps the NodeMetric object and its collect policy
    noderesource  calculates what the node lends and writes it (`slo.decide`)

Nothing is decided before all informers are complete and a state of the ConfigMap has been taken in. A node whose
report falls silent is looked at again when the report becomes too old: no event would tell.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from kubetide.api.codec import convert, to_builtins, without_nulls
from kubetide.api.core import ConfigMap, Node, Pod
from kubetide.api.events import Event, reference_to, warning
from kubetide.api.meta import ObjectKey
from kubetide.api.patch import MergePatch
from kubetide.api.resources import parse_list
from kubetide.api.scheme import CONFIG_MAPS, DEVICES, NODE_METRICS, NODES, PODS, Resource
from kubetide.api.slo import NodeMetric, NodeResourceTopology
from kubetide.clock import Clock
from kubetide.kube.client import Client
from kubetide.kube.errors import NotFound
from kubetide.kube.informer import Informer
from kubetide.kube.instruments import Reconciles
from kubetide.kube.leadership import Leadership
from kubetide.kube.reconcile import Result, Workers
from kubetide.kube.workqueue import WorkQueue
from kubetide.log import get_logger
from kubetide.slo.audit import NODE_METRIC, NODE_RESOURCE, NODE_SLO, PLUGINS, Audit
from kubetide.slo.config import ColocationState, NodeSLOConfig, NormalizationState, Problem
from kubetide.slo.continuity import Departure
from kubetide.slo.decide import NodeDecision, NodeObservation, decide_node
from kubetide.slo.nodeslo import render, same_spec
from kubetide.slo.observe import RAW_NODE_SLOS, RAW_TOPOLOGIES, SloView
from kubetide.slo.overcommit.claims import claim_of
from kubetide.slo.settings import SloSettings
from kubetide.slo.strategy import metric_spec
from kubetide.slo.writer import NodeWriter
from kubetide.telemetry import Telemetry

log = get_logger("slo")

T = TypeVar("T")

_EXPIRE_SECONDS = 60
_GET_ERRORS = {NODE_SLO: "reconcileNodeSLOGetError", NODE_METRIC: "reconcileNodeMetricGetError"}
_REMEMBERED_DEPARTURES = 64


class Recorder(Protocol):
    """Takes events."""

    def publish(self, event: Event) -> None:
        """Write the event soon."""
        ...


class _Reconciler:
    """Adapts a method to the reconcile loop."""

    def __init__(self, reconcile: Callable[[str], Awaitable[Result]]) -> None:
        self._reconcile = reconcile

    async def reconcile(self, key: str, /) -> Result:
        return await self._reconcile(key)


class SloController:
    """The component. `run` leads, waits for its informers and works off its queues."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: SloSettings,
        telemetry: Telemetry,
        recorder: Recorder,
        rng: random.Random,
    ) -> None:
        self.name = "slo"
        self._clock = clock
        self._settings = settings
        self._recorder = recorder
        self._audit = Audit(telemetry, plugins=tuple(plugin for plugin in PLUGINS if settings.calculates(plugin)))
        self._reconciles = Reconciles(telemetry)
        self._leadership = Leadership(
            client,
            clock=clock,
            enabled=settings.leader_elect,
            lease_name=settings.leader_elect_resource_name,
            namespace=settings.leader_elect_resource_namespace,
            chance=rng,
            lease_duration=settings.leader_elect_lease_duration,
            renew_deadline=settings.leader_elect_renew_deadline,
            retry_period=settings.leader_elect_retry_period,
        )
        self._client = self._leadership.writer
        self._writer = NodeWriter(self._client, clock=clock, audit=self._audit)
        self._view = SloView(client, clock=clock, settings=settings, chance=rng)
        self._queues: dict[str, WorkQueue[str]] = {
            name: WorkQueue(clock=clock, name=name)
            for name in (NODE_SLO, NODE_METRIC, NODE_RESOURCE)
            if settings.runs(name)
        }
        for queue in self._queues.values():
            client.announce(queue)
        self._slo_config = NodeSLOConfig()
        self._colocation = ColocationState()
        self._normalization = NormalizationState()
        self._said: set[Problem] = set()
        self._departures: dict[str, list[Departure]] = {}
        self._decisions: dict[str, NodeDecision] = {}
        self._connect()

    def ready(self) -> bool:
        """Whether all copies are complete."""
        return self._view.synced

    def healthy(self) -> bool:
        """Work that fails is tried again; killing the process would not help."""
        return True

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._view.run(), name="slo informers")
            group.create_task(self._expire(), name="slo telemetry")
            await self._view.wait_synced()
            if self._view.configs.store.get(self._view.config_key) is None:
                # That there is none is a state too, of which no event tells.
                self._take_in(None)
            await self._leadership.run(self._lead)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE_SECONDS)
            self._audit.expire(self._clock.now())

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return how the resources of a node came about."""
        decision = self._decisions.get(key) if kind == "node" else None
        return None if decision is None else {"kind": "node", "overcommit": decision.trace | {"ages": self._ages()}}

    def _ages(self) -> dict[str, float]:
        """Return for each input how many seconds ago the API server last confirmed it."""
        view = self._view
        inputs: dict[str, Informer[Any]] = {"node": view.nodes, "pods": view.pods, "report": view.metrics}
        inputs |= {"configuration": view.configs, "topology": view.topologies}
        found = {name: informer.staleness() for name, informer in inputs.items()}
        return {name: round(age.total_seconds(), 1) for name, age in found.items() if age is not None}

    def wake_all(self) -> None:
        """Look at every node again."""
        self._enqueue_all()

    def _observe(self, node: Node) -> NodeObservation:
        name = node.metadata.name
        return self._view.observation(
            node,
            colocation=self._colocation.config,
            normalization=self._normalization.config,
            written=self._writer.written(name),
            departures=tuple(self._departures.get(name, ())),
        )

    async def _lead(self) -> None:
        reconcilers = {
            NODE_SLO: self._reconcile_slo,
            NODE_METRIC: self._reconcile_metric,
            NODE_RESOURCE: self._reconcile_resource,
        }
        self._enqueue_all()
        async with asyncio.TaskGroup() as group:
            for name, queue in self._queues.items():
                workers = Workers(
                    queue,
                    _Reconciler(reconcilers[name]),
                    workers=self._settings.workers,
                    observe=partial(self._reconciles.outcome, name),
                )
                group.create_task(workers.run(), name=name)

    # What wakes which reconciler. All of them are level-based: an event only says where to look.

    def _connect(self) -> None:
        view = self._view
        view.nodes.add_handler(self._node_changed)
        view.metrics.add_handler(self._metric_changed)
        view.slos.add_handler(lambda old, new: self._enqueue(_name(old, new), NODE_SLO))
        view.topologies.add_handler(lambda old, new: self._enqueue(_name(old, new), NODE_RESOURCE))
        view.devices.add_handler(lambda old, new: self._enqueue(_name(old, new), NODE_RESOURCE))
        view.pods.add_handler(self._pod_changed)
        view.configs.add_handler(self._config_changed)

    def _enqueue(self, name: str, *queues: str) -> None:
        for queue in queues:
            if queue in self._queues:
                self._queues[queue].add(name)

    def _enqueue_all(self) -> None:
        view = self._view
        known = (*view.nodes.store.values(), *view.slos.store.values(), *view.metrics.store.values())
        for name in sorted({each.metadata.name for each in known}):
            self._enqueue(name, *self._queues)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        self._enqueue(_name(old, new), NODE_RESOURCE)
        if old is None or new is None or _chooses_otherwise(old, new):
            self._enqueue(_name(old, new), NODE_SLO, NODE_METRIC)
        if new is None:
            self._forget(_name(old, new))

    def _metric_changed(self, old: NodeMetric | None, new: NodeMetric | None) -> None:
        name = _name(old, new)
        if new is None:
            self._writer.forget(name)
        if old is None or new is None or old.status != new.status:
            self._enqueue(name, NODE_RESOURCE)
        if old is None or new is None or old.spec != new.spec:
            self._enqueue(name, NODE_METRIC)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Remember what a high-priority pod used when it leaves its node, where that is asked for."""
        if not self._settings.gradual_release or old is None or not old.spec.node_name:
            return
        active = ("Running", "Pending")
        if old.status.phase not in active or (new is not None and new.status.phase in active):
            return
        metric = self._view.metric(old.spec.node_name)
        if metric is None or claim_of(old).low_priority:
            return
        for reported in metric.status.pods_metric or ():
            if (reported.namespace, reported.name) == (old.metadata.namespace, old.metadata.name):
                usage = parse_list(reported.pod_usage.resources)
                found = self._departures.setdefault(old.spec.node_name, [])
                found.append(Departure(self._clock.now(), usage))
                del found[:-_REMEMBERED_DEPARTURES]

    def _config_changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        # A deleted ConfigMap changes nothing: the last configuration stays in force.
        if new is not None and (old is None or old.data != new.data):
            self._take_in(new)

    def _take_in(self, config: ConfigMap | None) -> None:
        """Take in a state of the ConfigMap; say what cannot be used, once per text; wake all nodes on a change."""
        data = None if config is None else (config.data or {})
        before = (self._slo_config, self._colocation, self._normalization)
        self._slo_config, slo_problems = self._slo_config.updated(data)
        self._colocation, colocation_problems = self._colocation.updated(data)
        self._normalization, normalization_problems = self._normalization.updated(data)
        problems = (*slo_problems, *colocation_problems, *normalization_problems)
        for problem in problems:
            self._audit.config_problem(problem)
            if config is not None and problem not in self._said:
                log.warning(
                    "configuration cannot be used", key=problem.key, reason=problem.reason, error=problem.message
                )
                about = reference_to(config, kind="ConfigMap", api_version="v1")
                self._recorder.publish(warning(about, problem.reason, problem.message))
        self._said = set(problems)
        if before != (self._slo_config, self._colocation, self._normalization):
            log.info("configuration changed", colocation=self._colocation.config.get("enable"))
            self._enqueue_all()

    def _forget(self, name: str) -> None:
        self._departures.pop(name, None)
        self._decisions.pop(name, None)
        self._writer.forget(name)
        self._audit.forget(name)

    # The three reconcilers.

    async def _reconcile_slo(self, name: str) -> Result:
        if not self._slo_config.available or self._unreadable(NODE_SLO, name):
            return Result()
        node, stored = self._view.node(name), self._view.slos.store.get(ObjectKey("", name))
        counted = partial(self._audit.counted, NODE_SLO)
        if node is None:
            if stored is not None:
                await counted("deleteNodeSLO", self._client.delete(RAW_NODE_SLOS, name))
            return Result()
        spec = render(self._slo_config, node.metadata.labels, stored.spec if stored else None)
        self._audit.rendered_slo({problem.key for problem in self._said})
        if stored is None:
            await counted("createNodeSLO", self._client.create(RAW_NODE_SLOS, _object("NodeSLO", name, spec)))
        elif not same_spec(stored.spec or {}, spec):
            body = _object("NodeSLO", name, spec)
            body["metadata"] |= {"resourceVersion": stored.metadata.resource_version, "labels": stored.metadata.labels}
            body["metadata"]["annotations"] = stored.metadata.annotations
            await counted("updateNodeSLO", self._client.update(RAW_NODE_SLOS, name, body))
        return Result()

    async def _reconcile_metric(self, name: str) -> Result:
        if not self._colocation.available or self._unreadable(NODE_METRIC, name):
            return Result()
        node, stored = self._view.node(name), self._view.metric(name)
        counted = partial(self._audit.counted, NODE_METRIC)
        if node is None:
            if stored is not None:
                await counted("deleteNodeMetric", self._client.delete(NODE_METRICS, name))
            return Result()
        old = without_nulls(to_builtins(stored.spec)) if stored is not None else None
        spec = metric_spec(self._colocation.config, error=self._colocation.error, node=node, old=old)
        self._audit.rendered_metric(failed=self._colocation.error)
        if stored is None:
            await counted("createNodeMetric", self._client.create(NODE_METRICS, _object("NodeMetric", name, spec)))
        elif not same_spec(old, spec):
            patch = MergePatch({"spec": spec})
            await counted("updateNodeMetric", self._client.patch(NODE_METRICS, name, patch))
        return Result()

    def _unreadable(self, controller: str, name: str) -> bool:
        """Tell whether the node or its object is there but cannot be read: that is neither absent nor anything else."""
        key = ObjectKey("", name)
        own: Informer[Any] = self._view.slos if controller == NODE_SLO else self._view.metrics
        copies: dict[str, Informer[Any]] = {"reconcileNodeGetError": self._view.nodes, _GET_ERRORS[controller]: own}
        for reason, informer in copies.items():
            if key in informer.rejected and informer.store.get(key) is None:
                self._audit.reconciled(controller, reason, failed=True)
                return True
        return False

    async def _reconcile_resource(self, name: str) -> Result:
        node = self._view.node(name)
        if not self._colocation.available:
            return Result()
        if node is None:
            rejected = ObjectKey("", name) in self._view.nodes.rejected
            reason = "reconcileNodeGetError" if rejected else "reconcileNodeNotFound"
            self._audit.reconciled(NODE_RESOURCE, reason, failed=True)
            return Result()
        decision = decide_node(self._observe(node), self._settings, self._clock.now())
        self._decisions[name] = decision
        self._audit.decided(name, decision, self._clock.now())
        await self._writer.write(name, decision)
        return Result(requeue_after=decision.look_again_after)


async def recompute(client: Client, clock: Clock, settings: SloSettings, key: ObjectKey) -> dict[str, Any]:
    """Calculate a node from the cluster as it is now, without a running controller: nothing is written."""
    name = key.name
    node = await client.get(NODES, name)
    config = await _or_none(client, CONFIG_MAPS, settings.config_name, settings.config_namespace)
    data = None if config is None else (config.data or {})
    colocation, _ = ColocationState().updated(data)
    normalization, _ = NormalizationState().updated(data)
    pods = await client.list(PODS, field_selector=f"spec.nodeName={name}")
    topology = await _or_none(client, RAW_TOPOLOGIES, name)
    zones = (topology.zones if topology is not None else None) or []
    metric = await _or_none(client, NODE_METRICS, name)
    device = await _or_none(client, DEVICES, name)
    seen = NodeObservation(
        node=node,
        pods=[claim_of(pod) for pod in pods.items],
        metric=metric,
        topology=convert({"zones": zones}, NodeResourceTopology) if zones else None,
        zones=zones,
        topology_annotations=(topology.metadata.annotations if topology is not None else None) or {},
        device=device,
        colocation=colocation.config,
        normalization=normalization.config,
    )
    decision = decide_node(seen, settings, clock.now())
    return {"kind": "node", "recomputed": True, "overcommit": decision.trace}


def _name(old: Any, new: Any) -> str:
    found: str = (new if new is not None else old).metadata.name
    return found


def _chooses_otherwise(old: Node, new: Node) -> bool:
    """Tell whether another strategy may apply: labels choose it, an annotation may change it."""
    return (
        old.metadata.labels != new.metadata.labels
        or old.metadata.annotations != new.metadata.annotations
        or old.status.allocatable != new.status.allocatable
    )


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": NODE_METRICS.api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


async def _or_none(client: Client, resource: Resource[T], name: str, namespace: str | None = None) -> T | None:
    try:
        return await client.get(resource, name, namespace=namespace)
    except NotFound:
        return None
