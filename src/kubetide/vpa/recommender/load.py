"""First step of a loop: VPAs into records of the model, with selector, tuning and history.

Checkpoints are read per namespace for the VPAs that are new to this process. Until that has succeeded a VPA has a
record but is neither recommended for nor saved.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from kubetide.api.objects.coordination import COORDINATION_ANNOTATION
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.scheme import HPAS
from kubetide.api.objects.vpa import CONFIG_UNSUPPORTED, VerticalPodAutoscaler, update_mode
from kubetide.api.values.conditions import find_condition
from kubetide.api.values.selectors import NOTHING
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.view import CacheView
from kubetide.kube.client.client import Client
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.owners import OwnerChain
from kubetide.kube.scale import ScaleClient
from kubetide.log import get_logger
from kubetide.vpa.core.learned import Choice, adaptive_condition, choose
from kubetide.vpa.core.scope import checkpoint_name, groups_of, is_group, scope_of, scope_problem, vpa_name
from kubetide.vpa.recommender.checkpoint_store import CheckpointStore, Loaded, each
from kubetide.vpa.recommender.core.adaptive.learned import LearnedSizes
from kubetide.vpa.recommender.core.conflicts import conflicts, index_by_target, rivals
from kubetide.vpa.recommender.core.coordination.coordinated import Moved
from kubetide.vpa.recommender.core.coordination.goals import coordination_of
from kubetide.vpa.recommender.core.decisions import (
    options_of,
    policy_problem,
    serves,
    stored_recommendation,
    tuning_of,
)
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.groups import group_keys, group_selector, group_values
from kubetide.vpa.recommender.core.history.healing import Present, healed
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.ratchet import scale_up_only
from kubetide.vpa.recommender.core.status import (
    coordinated_size,
    estimator_changed,
    healed_checkpoint,
    invalid_tuning,
    unreadable_checkpoint,
)
from kubetide.vpa.recommender.core.tuning import tuned
from kubetide.vpa.recommender.observer import ResolvedTarget, resolve
from kubetide.vpa.recommender.settings import PROMETHEUS, HpaConflicts, RecommenderSettings
from kubetide.vpa.targets import Targets

log = get_logger("vpa.recommender")

# VPAs handled before other tasks get the event loop, so that leases are renewed and watches read meanwhile.
VPAS_PER_TURN = 500


class VpaLoader(CacheView):
    """Keeps a record in the model of every VPA that this recommender serves."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        settings: RecommenderSettings,
        recorder: EventRecorder,
        rng: random.Random,
        owns: Callable[[str], bool],
    ) -> None:
        """`owns` says which namespaces are this replica's."""
        self._owns = owns
        self._clock = clock
        self._settings = settings
        self._recorder = recorder
        self._scoped = settings.gate("DaemonSetScope")
        self._tuning, self._estimation = tuning_of(settings), options_of(settings).estimation
        namespace = settings.vpa_object_namespace
        self._targets = Targets(client, clock=clock, namespace=namespace, limit_ranges=False, rng=rng)
        self._owners = OwnerChain(
            client,
            ScaleClient(client),
            clock=clock,
            stores={kind: informer.store for kind, informer in self._targets.controllers.items()},
            rng=rng,
        )
        self._announced: dict[ObjectKey, Choice] = {}
        self._hpas: Informer[HorizontalPodAutoscaler] | None = None
        if settings.hpa_conflicts is not HpaConflicts.IGNORE:
            self._hpas = Informer(client, HPAS, clock=clock, namespace=namespace or None)
        self.caches = [cache for cache in (self._targets, self._hpas) if cache is not None]
        self.sharded = [*self._targets.informers, *(() if self._hpas is None else (self._hpas,))]

    def begin(self, model: Model, store: CheckpointStore, learned: LearnedSizes) -> None:
        """Fill this model from now on."""
        self._model, self._store, self._learned = model, store, learned

    def forget(self, keys: Collection[ObjectKey]) -> None:
        """Forget VPAs that are gone, or another replica's from now on."""
        for key in keys:
            self._announced.pop(key, None)
        if keys:
            self._learned.forget(keys)

    def get(self, key: ObjectKey) -> VerticalPodAutoscaler | None:
        """Return a VPA as it is now."""
        return self._targets.vpas.store.get(key)

    def exists(self, key: ObjectKey) -> bool:
        """Return whether a VPA exists, whoever serves it; a group exists while its VPA is scoped."""
        if not is_group(key.name):
            return key in self._targets.vpas.store
        vpa = self._targets.vpas.store.get(ObjectKey(key.namespace, vpa_name(key.name)))
        return vpa is not None and self._scoped and bool(scope_of(vpa))

    def replicas(self, state: VpaState) -> int | None:
        """Return how many pods the target of a VPA wants; None when it does not report it, and for a group."""
        target = state.target
        if target is None or state.group is not None:
            return None
        return self._targets.stated_replicas(state.key.namespace, target.kind, target.name)

    async def load(self) -> None:
        """Bring the model's VPAs up to date and read the history of new ones."""
        served = [vpa for vpa in self._targets.all_vpas() if serves(self._settings, vpa)]
        mine = {key_of(vpa): vpa for vpa in served if self._owns(vpa.metadata.namespace)}
        targets = await self._resolve(mine.values())
        contested = index_by_target(self._hpas.store.values()) if self._hpas is not None else {}
        for count, (key, vpa) in enumerate(mine.items()):
            if count % VPAS_PER_TURN == VPAS_PER_TURN - 1:
                await asyncio.sleep(0)
            state = self._take(key, vpa, targets[key])
            if self._hpas is not None:
                state.contested = conflicts(key.namespace, vpa.spec.target_ref, contested)
                self._coordinate(vpa, state, rivals(key.namespace, vpa.spec.target_ref, contested))
            self._take_groups(vpa, state)
        kept = mine.keys() | {key for vpa in self._model.vpas.values() for key in vpa.group_keys}
        gone = {key for key in self._model.vpas if key not in kept}
        for key in gone:
            self._model.delete_vpa(key)
        self.forget(gone)
        if self._settings.storage != PROMETHEUS:
            await self._load_checkpoints(mine)

    async def _resolve(self, vpas: Iterable[VerticalPodAutoscaler]) -> dict[ObjectKey, ResolvedTarget]:
        found: dict[ObjectKey, ResolvedTarget] = {}

        async def one(vpa: VerticalPodAutoscaler) -> None:
            found[key_of(vpa)] = await resolve(vpa, self._targets, self._owners)

        remote = []
        for count, vpa in enumerate(vpas):
            if count % VPAS_PER_TURN == VPAS_PER_TURN - 1:
                await asyncio.sleep(0)
            target = vpa.spec.target_ref
            if target is not None and target.kind not in self._targets.controllers:
                remote.append(vpa)
            else:
                await one(vpa)
        deadline = self._clock.monotonic() + self._settings.step_timeout.total_seconds() / 2
        left = await each(remote, self._settings.update_worker_count, one, deadline=deadline, clock=self._clock)
        for vpa in left:
            found[key_of(vpa)] = ResolvedTarget(NOTHING, None, transient=True)
        return found

    def _take(self, key: ObjectKey, vpa: VerticalPodAutoscaler, target: ResolvedTarget) -> VpaState:
        """Bring the record of one VPA up to date with its object and its target."""
        known, settings, meta = self._model.vpas.get(key), self._settings, vpa.metadata
        conditions = (vpa.status.conditions if vpa.status is not None else None) or ()
        # Writing the status leaves the generation alone, so what the spec says need not be looked at again.
        source = None
        if meta.generation and not target.transient:
            source = (meta.uid, meta.generation, meta.creation_timestamp, meta.annotations, target)
        if known is not None and source is not None and known.source == source:
            known.conditions = conditions
            return known
        selector, policy, problem = target.selector, vpa.spec.resource_policy, target.problem
        if target.transient and known is not None:
            # Nothing is known of the target just now, so what was known stays.
            selector = known.selector
            said = find_condition(conditions, CONFIG_UNSUPPORTED)
            problem = said.message if said is not None and selector.nothing else None
        if (unusable := policy_problem(vpa)) is not None:
            problem, policy = unusable, None
        annotations = meta.annotations or {}
        tuning = tuned(
            policy,
            annotations,
            tuning=self._tuning,
            estimation=self._estimation,
            policies=settings.gate("PerVPAConfig"),
            by_annotation=settings.per_vpa_tuning,
        )
        state = self._model.set_vpa(
            VpaState(
                key,
                selector,
                created=meta.creation_timestamp,
                target=vpa.spec.target_ref,
                policy=policy,
                mode=update_mode(vpa),
                annotations=annotations,
                generation=meta.generation,
                conditions=conditions,
                recommendation=stored_recommendation(vpa) if known is None else None,
                tunings=tuning.tunings,
                loaded=settings.storage == PROMETHEUS,
            ),
            keep_history=True,
        )
        state.source, state.problem, state.estimations = source, problem, tuning.estimations
        state.resolves = target.transient or not selector.nothing
        problems = tuning.problems
        self._choose(vpa, state)
        state.only_up, misspelt = scale_up_only(annotations)
        unscoped = scope_problem(vpa) if self._scoped else ""
        problems = (*problems, *filter(None, (state.choice.problem, misspelt, unscoped)))
        if problems != state.tuning_problems:
            state.tuning_problems = problems
            for text in problems:
                self._recorder.publish(invalid_tuning(vpa, text))
        return state

    def _choose(self, vpa: VerticalPodAutoscaler, state: VpaState) -> None:
        """Note which rule sizes the pods of a VPA, and announce a change of that."""
        settings = self._settings
        choice = state.choice = choose(state.annotations, settings.estimator, allowed=settings.learned)
        told = adaptive_condition(vpa)
        wanted = (choice.by.value, choice.message)
        changed = choice.learned if told is None else (told.reason, told.message) != wanted
        if changed and self._announced.get(state.key) != choice:
            self._announced[state.key] = choice
            self._recorder.publish(estimator_changed(vpa, choice.message))

    def _coordinate(self, vpa: VerticalPodAutoscaler, state: VpaState, hpas: Sequence[HorizontalPodAutoscaler]) -> None:
        """Note what is done about HPAs on the same workload."""
        mode, before = self._settings.hpa_conflicts, state.coordination
        scoped = self._scoped and bool(scope_of(vpa))
        state.coordination = coordination_of(state.annotations, mode, hpas, scoped=scoped)
        state.coordination_text = state.annotations.get(COORDINATION_ANNOTATION, "")
        if (problem := state.coordination.problem) and problem != before.problem:
            self._recorder.publish(invalid_tuning(vpa, problem))

    def announce(self, moved: Iterable[Moved]) -> None:
        """Publish what became of sizes that are chosen for an HPA."""
        for one in moved:
            log.info("coordinated size", vpa=str(one.vpa), message=one.message)
            if (vpa := self.get(one.vpa)) is not None:
                self._recorder.publish(coordinated_size(vpa, one.message))

    def _take_groups(self, vpa: VerticalPodAutoscaler, state: VpaState) -> None:
        """Keep a record for each group of a scoped VPA."""
        state.scope = scope_of(vpa) if self._scoped else ""
        if not state.is_scoped:
            state.group_keys = ()
            return
        values = group_values(self._model, state, groups_of(vpa))
        state.group_keys = group_keys(state.key, values)
        for key, value in zip(state.group_keys, values, strict=True):
            known = self._model.vpas.get(key)
            if known is None or known.source is None or known.source != state.source:
                group = self._model.set_vpa(
                    VpaState(
                        key,
                        group_selector(state.selector, state.scope, value),
                        created=state.created,
                        target=state.target,
                        policy=state.policy,
                        mode=state.mode,
                        annotations=state.annotations,
                        generation=state.generation,
                        tunings=state.tunings,
                        loaded=self._settings.storage == PROMETHEUS,
                    ),
                    keep_history=True,
                )
                group.scope, group.group, group.source = state.scope, value, state.source
                group.problem, group.estimations, group.resolves = state.problem, state.estimations, state.resolves
                group.choice, group.only_up = state.choice, state.only_up
            self._model.vpas[key].contested = state.contested
            self._model.vpas[key].conditions = state.conditions

    async def _load_checkpoints(self, mine: Mapping[ObjectKey, VerticalPodAutoscaler]) -> None:
        waiting: dict[str, dict[str, VpaState]] = {}
        for key, state in self._model.vpas.items():
            if not state.loaded:
                waiting.setdefault(key.namespace, {})[key.name] = state
        for namespace, states in waiting.items():
            try:
                found = await self._store.read(namespace, states)
            except KubetideError as error:
                log.warning("checkpoints cannot be read yet", namespace=namespace, error=str(error))
                continue
            for name, one in found.items():
                state, vpa = states[name], mine[ObjectKey(namespace, vpa_name(name))]
                state.loaded, state.checkpoint_written = True, one.oldest
                for loaded in one.loaded:
                    self._restore(vpa, state, loaded)
                for checkpoint, problem in one.problems.items():
                    self._report(vpa, checkpoint, problem)
            await asyncio.sleep(0)

    def _restore(self, vpa: VerticalPodAutoscaler, state: VpaState, loaded: Loaded) -> None:
        content, floor = loaded.content, loaded.floor
        if loaded.learned_problem:
            self._recorder.publish(invalid_tuning(vpa, loaded.learned_problem))
        key, now, settings = state.key, self._clock.now(), self._settings
        name = checkpoint_name(key.name, content.container)
        tuning = state.tuning(content.container, self._tuning)
        present = Present(now=now, skew=settings.max_sample_skew, loop=settings.interval)
        content, problem = healed(content, tuning, present)
        if problem:
            log.warning("checkpoint lies in the future, brought back", vpa=str(key), checkpoint=name, found=problem)
            self._recorder.publish(healed_checkpoint(vpa, name, problem))
        try:
            self._model.restore(
                state,
                content.container,
                cpu=content.cpu,
                memory=content.memory,
                first=content.first,
                last=content.last,
                count=content.count,
                now=now,
            )
        except ValueError as error:
            self._store.block(ObjectKey(key.namespace, name), str(error))
            self._report(vpa, name, str(error))
            return
        if content.windows:
            state.windows[content.container] = content.windows
        if floor is not None:
            state.floors[content.container] = floor
        if loaded.learned is not None:
            self._learned.restore(key, content.container, loaded.learned)

    def _report(self, vpa: VerticalPodAutoscaler, checkpoint: str, problem: str) -> None:
        log.warning("checkpoint cannot be read, keeping it", vpa=str(key_of(vpa)), checkpoint=checkpoint, error=problem)
        self._recorder.publish(unreadable_checkpoint(vpa, checkpoint, problem))
