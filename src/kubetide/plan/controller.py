"""Carries out WorkloadPlans: an HPA and a VPA for each, kept as the plan says, and what became of it in its status."""

import random
from typing import Any

from kubetide.api.objects.events import normal, reference_to, warning
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, TypedObject, key_of
from kubetide.api.objects.scheme import HPAS, VPAS, Resource
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.patch import MergePatch
from kubetide.clock import Clock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, NotFound
from kubetide.kube.control.controller import Controller, KeyedLoop
from kubetide.kube.control.leader_election import Leadership
from kubetide.kube.control.reconcile import Result
from kubetide.kube.control.recorder import EventRecorder
from kubetide.log import get_logger
from kubetide.plan.core.derive import Derived, differs, without_absent
from kubetide.plan.core.judge import PLANNED, belongs_to, status_of
from kubetide.plan.core.objects import PLANS, WorkloadPlan
from kubetide.plan.explain import judged, trace
from kubetide.plan.settings import PlanSettings
from kubetide.telemetry import Telemetry

log = get_logger("plan")

KINDS = ("plan", "plans", "workloadplan", "workloadplans", "wplan")
"""What `explain` answers to."""


class PlanController(Controller):
    """Makes and changes the HPA and the VPA of every plan; they are deleted with it by the garbage collector."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: PlanSettings,
        telemetry: Telemetry,
        recorder: EventRecorder,
        rng: random.Random,
    ) -> None:
        self._clock = clock
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
        self._ignored = frozenset(settings.ignored_namespaces)
        namespace = settings.namespace or None
        self._plans: Informer[WorkloadPlan] = Informer(client, PLANS, clock=clock, namespace=namespace, rng=rng)
        self._hpas: Informer[HorizontalPodAutoscaler] = Informer(
            client, HPAS, clock=clock, namespace=namespace, rng=rng
        )
        self._vpas: Informer[VerticalPodAutoscaler] = Informer(client, VPAS, clock=clock, namespace=namespace, rng=rng)
        self._loop: KeyedLoop[ObjectKey] = KeyedLoop(
            "plans", self.reconcile, clock=clock, workers=settings.workers, telemetry=telemetry
        )
        self._told: dict[ObjectKey, str] = {}
        self._writes = telemetry.counter(
            "kubetide_plan_writes_total", "Autoscalers of plans that were made or changed.", ("action", "kind")
        )
        super().__init__(
            "plan",
            clock=clock,
            caches=(self._plans, self._hpas, self._vpas),
            loops=(self._loop,),
            leadership=leadership,
        )
        for informer in (self._plans, self._hpas, self._vpas):
            informer.add_handler(lambda old, new: self._enqueue(new or old))

    def _enqueue(self, changed: TypedObject | None) -> None:
        """Look at every plan of the namespace: whose autoscaler it is, or whose rival, is found out there."""
        if changed is not None and changed.metadata.namespace not in self._ignored:
            for plan in self._plans.store.in_namespace(changed.metadata.namespace):
                self._loop.add(key_of(plan))

    async def started_leading(self) -> None:
        """Look at every plan."""
        self._told = {}
        for plan in self._plans.store.values():
            self._enqueue(plan)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring the autoscalers and the status of one plan up to date."""
        plan = self._plans.store.get(key)
        if plan is None or plan.metadata.deletion_timestamp is not None:
            self._told.pop(key, None)
            return Result()
        derived, reason, message = judged(plan, *self._beside(plan))
        if derived is not None and reason == PLANNED:
            await self._write(plan, HPAS, self._hpas, derived.hpa)
            await self._write(plan, VPAS, self._vpas, derived.vpa)
        await self._report(plan, derived, reason, message)
        return Result()

    def _beside(
        self, plan: WorkloadPlan
    ) -> tuple[list[HorizontalPodAutoscaler], list[VerticalPodAutoscaler], list[WorkloadPlan]]:
        """Return what there is in the plan's namespace."""
        namespace = plan.metadata.namespace
        stores = self._hpas.store, self._vpas.store, self._plans.store
        return (
            list(stores[0].in_namespace(namespace)),
            list(stores[1].in_namespace(namespace)),
            list(stores[2].in_namespace(namespace)),
        )

    def _own(self, plan: WorkloadPlan, informer: Informer[Any]) -> Any:
        found = informer.store.get(key_of(plan))
        return found if found is not None and belongs_to(plan, found) else None

    async def _write(
        self, plan: WorkloadPlan, resource: Resource[Any], informer: Informer[Any], wanted: dict[str, Any]
    ) -> None:
        namespace, name = plan.metadata.namespace, plan.metadata.name
        action = "create"
        if informer.store.get(key_of(plan)) is None:
            try:
                await self._client.create(resource, without_absent(wanted), namespace=namespace)
            except AlreadyExists:
                # Its event comes, and then it is known whose it is.
                return
        else:
            try:
                found = await self._client.get_raw(resource, name, namespace=namespace)
            except NotFound:
                return
            body = {field: wanted[field] for field in ("metadata", "spec")}
            if not differs(body, {field: found.get(field) for field in body}):
                return
            action = "change"
            # Between the look and the write it may have become somebody else's.
            body["metadata"] = {**body["metadata"], "uid": found["metadata"]["uid"]}
            await self._client.patch(resource, name, MergePatch(body), namespace=namespace)
        self._writes.labels(action, resource.kind).inc()
        log.info("autoscaler written", action=action, plan=str(key_of(plan)), kind=resource.kind)

    async def _report(self, plan: WorkloadPlan, derived: Derived | None, reason: str, message: str) -> None:
        """Write the status where it changed, and publish what a plan came to once."""
        key = key_of(plan)
        status = status_of(
            plan,
            self._own(plan, self._hpas),
            self._own(plan, self._vpas),
            derived=derived,
            reason=reason,
            message=message,
            now=self._clock.now(),
        )
        if self._told.get(key) != message:
            self._told[key] = message
            about = reference_to(plan, kind=PLANS.kind, api_version=PLANS.api_version)
            made = normal if reason == PLANNED else warning
            self._recorder.publish(made(about, reason, message))
        try:
            found = await self._client.get_raw(PLANS, key.name, namespace=key.namespace)
            if differs(status, found.get("status") or {}):
                await self._client.patch(
                    PLANS, key.name, MergePatch({"status": status}), namespace=key.namespace, subresource="status"
                )
        except NotFound:
            return

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return what a plan means now."""
        plan = self._plans.store.get(ObjectKey.parse(key)) if kind.lower() in KINDS else None
        if plan is None:
            return None
        return trace(plan, *self._beside(plan))
