"""Profiles for pods that are already there and wait for a node (gate ColocationProfileController).

Every interval all pending pods are compared with what their profiles say, and those that differ are patched, at most
so many a second. A pod that was looked at is left alone for a few minutes, however often it changes: two controllers
that disagree about a label would otherwise fight at full speed.
"""

import asyncio
import random

from kubetide.api.objects.admission import json_patch
from kubetide.api.objects.core import Pod
from kubetide.api.objects.events import reference_to, warning
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.scheme import COLOCATION_PROFILES, PODS
from kubetide.api.objects.slo import ClusterColocationProfile
from kubetide.api.values.patch import JsonPatch
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.kube.control.controller import Controller, PeriodicLoop
from kubetide.kube.control.leader_election import Leadership
from kubetide.kube.control.recorder import Recorder
from kubetide.kube.pacing import TokenBucket
from kubetide.log import get_logger
from kubetide.slo.colocation.cluster_view import ColocationView
from kubetide.slo.colocation.core.match import ProfileProblem, matching
from kubetide.slo.colocation.core.mutate import Mutation, recorded
from kubetide.slo.colocation.core.pending import caught_up, managed, waits_for_a_node
from kubetide.slo.colocation.core.profile import ProfileError
from kubetide.slo.colocation.settings import ColocationSettings
from kubetide.telemetry import Telemetry

log = get_logger("colocation")

LEASE = "kubetide-colocation-profiles"


class PendingPods(Controller):
    """Keeps pending pods as their profiles want them."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: ColocationSettings,
        telemetry: Telemetry,
        recorder: Recorder,
        rng: random.Random,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._compat = settings.version
        self._recorder = recorder
        leadership = Leadership(
            client,
            clock=clock,
            enabled=settings.leader_elect,
            lease_name=LEASE,
            namespace=settings.own_namespace,
            rng=rng,
        )
        self._client = leadership.writer
        self._view = ColocationView(client, clock=clock, settings=settings, rng=rng)
        # Pods on a node are not looked at, so they are not cached either.
        self._pods: Informer[Pod] = Informer(
            client, PODS, clock=clock, rng=rng, field_selector="status.phase=Pending,spec.nodeName="
        )
        self._bucket = TokenBucket(
            settings.colocation_profile_update_pod_qps, settings.colocation_profile_update_pod_qps_burst
        )
        self._looked_at: dict[ObjectKey, tuple[str, float]] = {}
        self._told: set[ProfileProblem] = set()
        self._updated = telemetry.counter(
            "kubetide_colocation_pending_updated_total", "Pending pods that a profile was applied to.", ("profile",)
        )
        super().__init__(
            "colocation-profiles",
            clock=clock,
            caches=(self._view, self._pods),
            loops=(
                PeriodicLoop(
                    "pending",
                    self.run_once,
                    clock=clock,
                    interval=settings.colocation_profile_reconcile_interval,
                    telemetry=telemetry,
                ),
            ),
            leadership=leadership,
        )

    async def run_once(self) -> None:
        """Bring every pending pod up to date that was not looked at lately."""
        by_default = self._settings.colocation_profile_reconcile_by_default
        profiles = managed(self._view.profiles.store.values(), by_default=by_default)
        now = self._clock.monotonic()
        again = self._settings.colocation_profile_force_update_pod_duration.total_seconds()
        forget = self._settings.colocation_profile_expire_pod_cache_duration.total_seconds()
        self._looked_at = {key: seen for key, seen in self._looked_at.items() if now - seen[1] < forget}
        if not profiles:
            return
        for pod in sorted(self._pods.store.values(), key=key_of):
            key, uid = key_of(pod), pod.metadata.uid
            known = self._looked_at.get(key)
            if not waits_for_a_node(pod) or (known is not None and known[0] == uid and now - known[1] < again):
                continue
            try:
                if await self._update(pod, profiles):
                    self._looked_at[key] = (uid, self._clock.monotonic())
            except NotFound:
                continue
            except KubetideError as error:
                self._looked_at[key] = (uid, self._clock.monotonic())
                log.warning("pending pod not updated", pod=str(key), error=str(error))

    async def _update(self, pod: Pod, profiles: list[ClusterColocationProfile]) -> bool:
        """Patch a pod that differs from what its profiles say; tell whether any of them is for it."""
        namespace = await self._view.namespace_labels(pod.metadata.namespace)
        found = matching(profiles, pod.metadata.labels or {}, namespace, self._compat)
        for problem in found.problems:
            self._report(problem)
        if not found.profiles:
            return False
        raw = await self._client.get_raw(PODS, pod.metadata.name, namespace=pod.metadata.namespace)
        try:
            wanted, applied = caught_up(raw, found, self._compat)
        except ProfileError as error:
            self._report(ProfileProblem(found.profiles[-1].metadata.name, str(error)))
            return True
        if self._settings.record_profiles:
            wanted = recorded(Mutation(wanted, applied))
        operations = json_patch(raw, wanted)
        if not operations:
            return True
        await asyncio.sleep(self._bucket.reserve(self._clock.monotonic()))
        # The patch is made from what was read: whoever changed the pod meanwhile is not overwritten.
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": raw["metadata"]["resourceVersion"]}
        await self._client.patch(
            PODS, pod.metadata.name, JsonPatch([test, *operations]), namespace=pod.metadata.namespace
        )
        log.info("pending pod updated", pod=str(key_of(pod)), profiles=list(applied))
        for name in applied:
            self._updated.labels(name).inc()
        return True

    def _report(self, problem: ProfileProblem) -> None:
        """Publish each problem of a profile once, as an event on the profile."""
        if problem in self._told:
            return
        self._told.add(problem)
        log.warning("profile not applied", profile=problem.profile, error=problem.message)
        profile = self._view.profiles.store.get(ObjectKey("", problem.profile))
        if profile is not None:
            resource = COLOCATION_PROFILES
            about = reference_to(profile, kind=resource.kind, api_version=resource.api_version)
            self._recorder.publish(warning(about, "ProfileNotApplied", problem.message))
