"""Keeps the VPAs of namespaces in step with their workloads: one reconcile per namespace.

Of workloads only the metadata is read, so that an object of a newer version is never taken for one that is gone.
"""

import random
from datetime import timedelta

from kubetide import tracing
from kubetide.api.objects.core import Namespace
from kubetide.api.objects.events import reference_to, warning
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, TypedObject
from kubetide.api.objects.scheme import HPAS, NAMESPACES, VPAS
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.clock import Clock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.control.controller import Controller, KeyedLoop
from kubetide.kube.control.leader_election import Leadership
from kubetide.kube.control.reconcile import Result
from kubetide.kube.control.recorder import EventRecorder
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry
from kubetide.vpa.policies.core.plan import Observation, Plan, TargetWorkload, differ, plan
from kubetide.vpa.policies.namespace_writer import sized, write_plan
from kubetide.vpa.policies.settings import PolicySettings

log = get_logger("vpa.policies")


class PolicyController(Controller):
    """Makes, changes and removes VPAs as the labels of namespaces and workloads ask for."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: PolicySettings,
        telemetry: Telemetry,
        recorder: EventRecorder,
        rng: random.Random,
    ) -> None:
        self._clock = clock
        self._rules = settings.rules()
        self._delay = settings.removal_delay.total_seconds()
        self._recorder = recorder
        leadership = Leadership(
            client,
            clock=clock,
            enabled=settings.leader_elect,
            lease_name=settings.leader_elect_resource_name,
            namespace=settings.leader_elect_resource_namespace,
            rng=rng,
        )
        self._client = leadership.writer
        self._namespaces: Informer[Namespace] = Informer(client, NAMESPACES, clock=clock, rng=rng)
        self._vpas: Informer[VerticalPodAutoscaler] = Informer(client, VPAS, clock=clock, rng=rng)
        self._hpas: Informer[HorizontalPodAutoscaler] = Informer(client, HPAS, clock=clock, rng=rng)
        self._workloads: list[Informer[TypedObject]] = [
            Informer(client, resource, clock=clock, rng=rng) for resource in sized(settings.kinds)
        ]
        self._loop: KeyedLoop[str] = KeyedLoop(
            "namespaces", self.reconcile, clock=clock, workers=4, telemetry=telemetry
        )
        self._told: dict[str, str] = {}
        self._gone_since: dict[ObjectKey, float] = {}
        self._writes = telemetry.counter(
            "kubetide_policy_vpas_total", "VPAs that were made, changed or removed.", ("action",)
        )
        super().__init__(
            "policy",
            clock=clock,
            caches=(self._namespaces, self._vpas, self._hpas, *self._workloads),
            loops=(self._loop,),
            leadership=leadership,
        )
        self._namespaces.add_handler(lambda old, new: self._enqueue(new or old, own=True))
        self._vpas.add_handler(lambda old, new: self._enqueue(new or old))
        self._hpas.add_handler(self._enqueue_if_other)
        for informer in self._workloads:
            informer.add_handler(self._enqueue_if_other)

    def _enqueue(self, changed: TypedObject | None, *, own: bool = False) -> None:
        if changed is not None:
            self._loop.add(changed.metadata.name if own else changed.metadata.namespace)

    def _enqueue_if_other(self, old: TypedObject | None, new: TypedObject | None) -> None:
        """Pass over changes of status, which are most of them."""
        if old is None or new is None or differ(old, new):
            self._enqueue(new or old)

    async def started_leading(self) -> None:
        """Look at every namespace; how long something has been gone counts from here."""
        self._gone_since, self._told = {}, {}
        for namespace in self._namespaces.store.values():
            self._loop.add(namespace.metadata.name)

    async def reconcile(self, namespace: str) -> Result:
        """Bring one namespace up to date."""
        made = plan(self._observe(namespace), self._rules)
        self._tell(namespace, made.problem)
        tracing.annotate(reason=made.problem or "as its labels ask", changes=len(made.create) + len(made.change))
        await self._write(namespace, made)
        return await self._remove_orphans(namespace, made)

    def _observe(self, name: str) -> Observation:
        namespace = self._namespaces.store.get(ObjectKey("", name))
        gone = namespace is None or namespace.metadata.deletion_timestamp is not None
        return Observation(
            namespace=None if namespace is None or gone else namespace.metadata,
            targets=[
                TargetWorkload(informer.resource.api_version, informer.resource.kind, each.metadata)
                for informer in self._workloads
                for each in informer.store.in_namespace(name)
            ],
            vpas=sorted(self._vpas.store.in_namespace(name), key=lambda vpa: vpa.metadata.name),
            unreadable=frozenset(key.name for key in self._vpas.rejected if key.namespace == name),
            hpas=list(self._hpas.store.in_namespace(name)),
        )

    async def _write(self, namespace: str, made: Plan) -> None:
        for done in await write_plan(self._client, namespace, made):
            self._writes.labels(done.action).inc()
            log.info("vpa written", action=done.action, namespace=namespace, vpa=done.name)

    async def _remove_orphans(self, namespace: str, made: Plan) -> Result:
        """Delete what nobody has asked for long enough; come back for the rest."""
        now = self._clock.monotonic()
        keys = {ObjectKey(namespace, vpa.metadata.name): vpa for vpa in made.orphans}
        for key in [key for key in self._gone_since if key.namespace == namespace and key not in keys]:
            del self._gone_since[key]
        due = [vpa for key, vpa in keys.items() if now - self._gone_since.setdefault(key, now) >= self._delay]
        await self._write(namespace, Plan(delete=tuple(due)))
        if len(due) == len(keys):
            return Result()
        first = min(since for key, since in self._gone_since.items() if key in keys)
        return Result(requeue_after=timedelta(seconds=max(1.0, first + self._delay - now)))

    def _tell(self, name: str, problem: str) -> None:
        """Publish a mistake in a label or annotation once, as an event on the namespace."""
        if self._told.get(name, "") == problem:
            return
        self._told[name] = problem
        namespace = self._namespaces.store.get(ObjectKey("", name))
        if problem and namespace is not None:
            log.warning("namespace left alone", namespace=name, problem=problem)
            about = reference_to(namespace, kind=NAMESPACES.kind, api_version=NAMESPACES.api_version)
            self._recorder.publish(warning(about, "VPAPolicyNotApplied", problem))
