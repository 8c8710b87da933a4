"""The SLO controller: one ConfigMap in; a NodeSLO, a NodeMetric policy and batch and mid resources per node out.

Three keyed loops over one set of caches, each with a queue of node names:

    nodeslo       renders the NodeSLO and puts it back when somebody else changed it (`slo.node_objects`)
    nodemetric    keeps the NodeMetric object and its collect policy (`slo.node_objects`)
    noderesource  calculates batch and mid resources and writes them (`slo.core.decide`, `slo.node_writer`)

Nothing is decided before all caches are synced and a state of the ConfigMap has been taken in. A node whose reports
stop is reconciled again when the last one becomes too old: no event would report it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from kubetide import tracing
from kubetide.api.objects.core import ConfigMap, Node, Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.slo import NodeMetric
from kubetide.api.values.shard_selector import NAME
from kubetide.clock import Clock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.control.controller import Controller, KeyedLoop
from kubetide.kube.control.core.ranges import range_of
from kubetide.kube.control.reconcile import STOP_GRACE, Result
from kubetide.kube.control.recorder import Recorder
from kubetide.kube.control.sharing import leadership_of
from kubetide.kube.handover import compare_deployed
from kubetide.log import get_logger
from kubetide.slo.at_rest import AtRest
from kubetide.slo.cluster_view import SloView
from kubetide.slo.config_source import Configuration
from kubetide.slo.core.decide import decide_node
from kubetide.slo.core.departures import Departures
from kubetide.slo.core.observation import NodeDecision, NodeObservation
from kubetide.slo.node_objects import ObjectReconciler
from kubetide.slo.node_writer import NodeWriter
from kubetide.slo.settings import SloSettings
from kubetide.slo.telemetry import NODE_METRIC, NODE_RESOURCE, NODE_SLO, PLUGINS, SloInstruments
from kubetide.telemetry import Telemetry

log = get_logger("slo")

_EXPIRE_SECONDS = 60
_A_MOMENT = timedelta(seconds=1)


class SloController(Controller):
    """Keeps NodeSLO, NodeMetric and batch and mid resources of all nodes in step with the ConfigMap."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: SloSettings,
        telemetry: Telemetry,
        recorder: Recorder,
        rng: random.Random,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._instruments = SloInstruments(
            telemetry, plugins=tuple(plugin for plugin in PLUGINS if settings.calculates(plugin))
        )
        self._client = client
        leadership = leadership_of(client, settings, clock=clock, rng=rng)
        writer = leadership.writer
        self._writer = NodeWriter(writer, clock=clock, instruments=self._instruments)
        self._view = SloView(client, clock=clock, settings=settings, rng=rng)
        self._configuration = Configuration(recorder, self._instruments, settings.version)
        self._at_rest = AtRest()
        objects = ObjectReconciler(
            writer,
            view=self._view,
            configuration=self._configuration,
            instruments=self._instruments,
            recorder=recorder,
            at_rest=self._at_rest,
            clock=clock,
        )
        reconcilers = {
            NODE_SLO: objects.reconcile_slo,
            NODE_METRIC: objects.reconcile_metric,
            NODE_RESOURCE: self._reconcile_resource,
        }
        self._keyed: dict[str, KeyedLoop[str]] = {
            name: KeyedLoop(name, self._of_ours(reconcile), clock=clock, workers=settings.workers, telemetry=telemetry)
            for name, reconcile in reconcilers.items()
            if settings.runs(name)
        }
        for loop in self._keyed.values():
            client.announce(loop.queue)
        self._departures = Departures()
        self._decisions: dict[str, NodeDecision] = {}
        self._connect()
        super().__init__(
            "slo",
            clock=clock,
            caches=(self._view,),
            loops=tuple(self._keyed.values()),
            leadership=leadership,
            sharded=self._view.by_node,
            shard_by=NAME,
            background=(self._expire,),
        )

    async def wait_synced(self) -> None:
        """Wait until all caches are synced, and take in that there is no ConfigMap, which no event reports."""
        await super().wait_synced()
        self._departures.begin(self._clock.now())
        if self._view.configs.store.get(self._view.config_key) is None:
            self._take_in(None)

    async def started_leading(self) -> None:
        """Begin with every node there is."""
        settings = self._settings
        log.info("following Koordinator", version=settings.compat)
        await compare_deployed(
            self._client,
            self.name,
            program="koord-manager",
            namespace=settings.leader_elect_resource_namespace,
            follows=str(settings.version),
        )
        for warning in self._settings.gate_warnings():
            log.warning("feature gate", problem=warning)
        self._enqueue_all()

    def _of_ours(self, reconcile: Callable[[str], Awaitable[Result]]) -> Callable[[str], Awaitable[Result]]:
        """Return what reconciles a node only while it is this replica's: of others the caches show nothing, or half."""

        async def guarded(name: str) -> Result:
            return await reconcile(name) if self.owns(name) else Result()

        return guarded

    async def started_owning(self, ranges: frozenset[int]) -> None:
        """Begin with the nodes of ranges."""
        for name in self._known():
            if range_of(name) in ranges:
                self._departures.taken(name, self._clock.now())
                self._enqueue(name, *self._keyed)

    async def stops_owning(self, ranges: frozenset[int]) -> None:
        """Let the reconciles of ranges end; what is known of their nodes goes with them from the caches."""
        with suppress(TimeoutError):  # what takes longer is held back by the fence
            async with asyncio.timeout(STOP_GRACE.total_seconds()):
                for loop in self._keyed.values():
                    await loop.queue.until_done(lambda name: range_of(name) in ranges)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE_SECONDS)
            self._instruments.expire(self._clock.now())

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

    def _observe(self, node: Node) -> NodeObservation:
        name = node.metadata.name
        return self._view.observation(
            node,
            colocation=self._configuration.colocation.config,
            normalization=self._configuration.normalization.config,
            amplification=self._configuration.amplification.config,
            written=self._writer.written(name),
            departures=self._departures,
        )

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
            if queue in self._keyed:
                self._keyed[queue].add(name)

    def _enqueue_all(self) -> None:
        for name in self._known():
            self._enqueue(name, *self._keyed)

    def _known(self) -> list[str]:
        view = self._view
        known = (*view.nodes.store.values(), *view.slos.store.values(), *view.metrics.store.values())
        return sorted({each.metadata.name for each in known})

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
        self._at_rest.forget(name)
        self._decisions.pop(name, None)
        self._writer.forget(name)
        self._instruments.forget(name)

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
            self._instruments.reconciled(NODE_RESOURCE, reason, failed=True)
            return Result()
        now, config = self._clock.now(), self._configuration
        basis = (*self._view.basis(node), config.colocation, config.normalization, config.amplification)
        known = self._decisions.get(name)
        if known is not None and self._at_rest.holds(NODE_RESOURCE, name, basis, now):
            self._instruments.confirmed(name, now)
            tracing.annotate(action="none", reason="at rest")
            steady = self._at_rest.steady(NODE_RESOURCE, name, now)
            return Result(requeue_after=None if steady is None else steady + _A_MOMENT)
        decision = decide_node(self._observe(node), self._settings, now)
        self._tell_problems(name, decision)
        self._decisions[name] = decision
        self._departures.decided(name, decision.held)
        self._instruments.decided(name, decision, now)
        tracing.annotate(
            action="none",
            reason="; ".join(f"{item.name}: {item.message}" for item in decision.items) if tracing.is_on() else None,
            problems=len(decision.problems),
            disabled=decision.disabled,
        )
        if decision.status_patch or decision.metadata_patch or decision.zones is not None:
            self._at_rest.wake(NODE_RESOURCE, name)
            tracing.annotate(action="write")
            await self._writer.write(name, decision)
        else:
            self._at_rest.settle(NODE_RESOURCE, name, basis, now, decision.steady_for)
        return Result(requeue_after=decision.look_again_after)


def _name(old: Any, new: Any) -> str:
    found: str = (new if new is not None else old).metadata.name
    return found


def _chooses_otherwise(old: Node, new: Node) -> bool:
    """Return whether another strategy may apply: labels choose it, an annotation may change it."""
    return (
        old.metadata.labels != new.metadata.labels
        or old.metadata.annotations != new.metadata.annotations
        or old.status.allocatable != new.status.allocatable
    )
