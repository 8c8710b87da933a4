"""The SLO controller: one ConfigMap in; a NodeSLO, a NodeMetric policy and lent resources per node out.

Three small reconcilers over one set of informers, each with a queue of node names:

    nodeslo       renders the NodeSLO and puts it back when somebody else changed it (`slo.reconciler`)
    nodemetric    keeps the NodeMetric object and its collect policy (`slo.reconciler`)
    noderesource  calculates what the node lends and writes it (`slo.decide`, `slo.writer`)

Nothing is decided before all informers are complete and a state of the ConfigMap has been taken in. A node whose
report falls silent is looked at again when the report becomes too old: no event would tell.
"""

import asyncio
import random
from functools import partial
from typing import Any

from kubetide.api.objects.core import ConfigMap, Node, Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.slo import NodeMetric
from kubetide.clock import Clock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.control.instruments import Reconciles
from kubetide.kube.control.leader_election import Leadership
from kubetide.kube.control.reconcile import Result, Workers
from kubetide.kube.control.workqueue import WorkQueue
from kubetide.log import get_logger
from kubetide.slo.cluster_view import SloView
from kubetide.slo.config_source import Configuration, Recorder
from kubetide.slo.core.decide import decide_node
from kubetide.slo.core.departures import Departures
from kubetide.slo.core.observation import NodeDecision, NodeObservation
from kubetide.slo.node_objects import ObjectReconciler
from kubetide.slo.node_writer import NodeWriter
from kubetide.slo.settings import SloSettings
from kubetide.slo.telemetry import NODE_METRIC, NODE_RESOURCE, NODE_SLO, PLUGINS, Audit
from kubetide.telemetry import Telemetry

log = get_logger("slo")

_EXPIRE_SECONDS = 60


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
        self._audit = Audit(telemetry, plugins=tuple(plugin for plugin in PLUGINS if settings.calculates(plugin)))
        self._reconciles = Reconciles(telemetry)
        self._leadership = Leadership(
            client,
            clock=clock,
            enabled=settings.leader_elect,
            lease_name=settings.leader_elect_resource_name,
            namespace=settings.leader_elect_resource_namespace,
            rng=rng,
            lease_duration=settings.leader_elect_lease_duration,
            renew_deadline=settings.leader_elect_renew_deadline,
            retry_period=settings.leader_elect_retry_period,
        )
        self._client = self._leadership.writer
        self._writer = NodeWriter(self._client, clock=clock, audit=self._audit)
        self._view = SloView(client, clock=clock, settings=settings, rng=rng)
        self._queues: dict[str, WorkQueue[str]] = {
            name: WorkQueue(clock=clock, name=name)
            for name in (NODE_SLO, NODE_METRIC, NODE_RESOURCE)
            if settings.runs(name)
        }
        for queue in self._queues.values():
            client.announce(queue)
        self._configuration = Configuration(recorder, self._audit)
        self._objects = ObjectReconciler(
            self._client, view=self._view, configuration=self._configuration, audit=self._audit
        )
        self._departures = Departures()
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
            self._departures.begin(self._clock.now())
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
            colocation=self._configuration.colocation.config,
            normalization=self._configuration.normalization.config,
            written=self._writer.written(name),
            departures=self._departures,
        )

    async def _lead(self) -> None:
        reconcilers = {
            NODE_SLO: self._objects.reconcile_slo,
            NODE_METRIC: self._objects.reconcile_metric,
            NODE_RESOURCE: self._reconcile_resource,
        }
        self._enqueue_all()
        async with asyncio.TaskGroup() as group:
            for name, queue in self._queues.items():
                workers = Workers(
                    queue,
                    reconcilers[name],
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
        """Remember what a high-priority pod counted for when it leaves its node, where that is asked for."""
        if self._settings.gradual_release and old is not None:
            self._departures.pod_changed(old, new, self._view.metric(old.spec.node_name), self._clock.now())

    def _config_changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        # A deleted ConfigMap changes nothing: the last configuration stays in force.
        if new is not None and (old is None or old.data != new.data):
            self._take_in(new)

    def _take_in(self, config: ConfigMap | None) -> None:
        """Take in a state of the ConfigMap and wake all nodes on a change."""
        if self._configuration.take_in(config):
            self._enqueue_all()

    def _forget(self, name: str) -> None:
        self._departures.forget(name)
        self._decisions.pop(name, None)
        self._writer.forget(name)
        self._audit.forget(name)

    def _tell_problems(self, name: str, decision: NodeDecision) -> None:
        """Log what a plugin could not do, once per change."""
        before = self._decisions.get(name)
        if before is None or before.problems != decision.problems:
            for problem in decision.problems:
                log.warning("cannot calculate", node=name, plugin=problem.plugin, error=problem.message)

    async def _reconcile_resource(self, name: str) -> Result:
        node = self._view.node(name)
        if not self._configuration.colocation.available:
            return Result()
        if node is None:
            rejected = ObjectKey("", name) in self._view.nodes.rejected
            reason = "reconcileNodeGetError" if rejected else "reconcileNodeNotFound"
            self._audit.reconciled(NODE_RESOURCE, reason, failed=True)
            return Result()
        decision = decide_node(self._observe(node), self._settings, self._clock.now())
        self._tell_problems(name, decision)
        self._decisions[name] = decision
        self._departures.decided(name, decision.held)
        self._audit.decided(name, decision, self._clock.now())
        await self._writer.write(name, decision)
        return Result(requeue_after=decision.look_again_after)


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
