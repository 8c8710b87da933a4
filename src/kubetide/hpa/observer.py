"""The observation of one reconcile: the scale of the target, its pods from the cache, and readings of its metrics."""

import operator
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, MetricSpec
from kubetide.api.objects.meta import CrossVersionObjectReference, ObjectKey, key_of
from kubetide.api.values.selectors import Selector
from kubetide.clock import Clock
from kubetide.errors import KubetideError, SelectorError
from kubetide.hpa.announced_counts import AnnouncedCounts
from kubetide.hpa.core.annotations import Overrides, SelectionStrategy
from kubetide.hpa.core.claims import Claims, anchors, selector_of
from kubetide.hpa.core.decide import metrics_of, needs_metrics
from kubetide.hpa.core.describe import MetricsRequest, Query, query_of
from kubetide.hpa.core.observation import HpaProblem, Observation, ProblemKind, ScaleView
from kubetide.hpa.core.pods import PodList
from kubetide.hpa.core.quick.rest import Rest, is_unchanged
from kubetide.hpa.core.replicas import rollout_pods
from kubetide.hpa.core.samples import MetricFailure, Reading, only_pods
from kubetide.hpa.pod_owners import PodOwners
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.cache.store import Store
from kubetide.kube.scale import InvalidApiVersion, NoMapping, ScaleClient, ScaleTarget

LABEL_INDEX = "label"
ROUNDS_KEPT = 8
"""After about so many lookups of each, lists of pods are kept only if they are asked for again."""


class Metrics(Protocol):
    """Where readings come from."""

    async def read(self, query: Query, selector: Selector, pods: Sequence[Pod], request: MetricsRequest) -> Reading:
        """Return the answer to a query, or how it failed."""
        ...


class Pods(Protocol):
    """Where the pods of a target are found."""

    def matching(self, namespace: str, selector: Selector) -> Sequence[Pod]:
        """Return the pods of the namespace that the selector matches."""
        ...


class PodCache:
    """Pods from an informer's store that is indexed by label.

    Most reconciles find the same pods as the last: while none of them changes, the same list is given.
    """

    def __init__(self, store: Store[Pod]) -> None:
        self._store = store
        self._found: dict[tuple[str, Selector], tuple[int, PodList]] = {}
        self._before: dict[tuple[str, Selector], tuple[int, PodList]] = {}
        self._asked = 0

    def matching(self, namespace: str, selector: Selector) -> Sequence[Pod]:
        """Return the pods of the namespace that the selector matches."""
        question, changes = (namespace, selector), self._store.changes
        self._asked += 1
        known = self._found.get(question)
        if known is not None and known[0] == changes:
            return known[1]
        if known is None:
            known = self._before.pop(question, None)
        selected = self._select(namespace, selector)
        if known is not None and len(known[1]) == len(selected) and all(map(operator.is_, known[1], selected)):
            # A pod of somebody else changed: these are the pods they were, and what was worked out about them holds.
            found = known[1]
        else:
            found = PodList(selected)
        if self._asked > ROUNDS_KEPT * len(self._found):
            # What nobody asked for lately belongs to autoscalers that are gone.
            self._before, self._found, self._asked = self._found, {}, 0
        self._found[question] = changes, found
        return found

    def _select(self, namespace: str, selector: Selector) -> Sequence[Pod]:
        pairs = anchors(selector)
        if not pairs:
            candidates: Iterable[Pod] = self._store.in_namespace(namespace)
        else:
            candidates = [
                pod
                for name, value in pairs
                for pod in self._store.by_index(LABEL_INDEX, label_key(namespace, name, value))
            ]
        return [pod for pod in candidates if selector.matches(pod.metadata.labels)]


def label_key(namespace: str, name: str, value: str) -> str:
    """Return the index value of a label in a namespace."""
    return f"{namespace}/{name}={value}"


def pod_labels(pod: Pod) -> Iterable[str]:
    """Return the index values of a pod."""
    meta = pod.metadata
    return [label_key(meta.namespace, name, value) for name, value in (meta.labels or {}).items()]


class Observed(msgspec.Struct):
    """An observation, and the scale that a write would change."""

    observation: Observation
    target: ScaleTarget | None = None
    fresh: bool = True
    """The scale was read from the server just now; only then may it be written."""


class FoundScale(msgspec.Struct, frozen=True):
    """The scale of a target, or why there is none."""

    target: ScaleTarget | None
    problem: HpaProblem | None = None
    fresh: bool = True
    """It was read from the server just now."""


class KnownScales(Protocol):
    """Scales that are known without asking."""

    def get(self, namespace: str, reference: CrossVersionObjectReference) -> ScaleTarget | None:
        """Return the scale as last seen; None if the server has to be asked."""
        ...


class Observer:
    """Gathers observations for many autoscalers."""

    def __init__(
        self,
        scales: ScaleClient,
        clock: Clock,
        settings: HpaSettings,
        pods: Pods,
        claims: Claims,
        metrics: Metrics,
        known: KnownScales | None = None,
        *,
        owners: PodOwners,
        announced: AnnouncedCounts | None = None,
    ) -> None:
        self._scales = scales
        self._clock = clock
        self._settings = settings
        self._pods = pods
        self._claims = claims
        self._metrics = metrics
        self._known = known
        self._owners = owners
        self._announced_counts = announced
        self._compat = settings.compat_rules

    async def scale_of(self, hpa: HorizontalPodAutoscaler, *, live: bool = False) -> FoundScale:
        """Return the scale of the target: with `live` from the server, else one that is followed will do."""
        namespace, reference = hpa.metadata.namespace, hpa.spec.scale_target_ref
        known = self._known.get(namespace, reference) if self._known is not None and not live else None
        if known is not None:
            return FoundScale(known, fresh=False)
        try:
            return FoundScale(await self._scales.get(namespace, reference))
        except InvalidApiVersion as error:
            return FoundScale(None, HpaProblem(ProblemKind.INVALID_API_VERSION, str(error)))
        except NoMapping as error:
            return FoundScale(None, HpaProblem(ProblemKind.NO_MAPPING, str(error)))
        except KubetideError as error:
            return FoundScale(None, HpaProblem(ProblemKind.GET_SCALE, str(error)))

    async def observe(self, hpa: HorizontalPodAutoscaler, request: MetricsRequest, found: FoundScale) -> Observed:
        """Look at everything that one reconcile needs; what cannot be read is part of the observation."""
        namespace, reference = hpa.metadata.namespace, hpa.spec.scale_target_ref
        target, fresh = found.target, found.fresh
        if target is None:
            return Observed(Observation(hpa=hpa, scale=None, scale_problem=found.problem))
        scale = ScaleView(target.spec_replicas, target.status_replicas, target.selector)
        overrides = request.overrides
        selector = _readable_selector(scale) if needs_metrics(hpa, scale, self._compat) else None
        if selector is None:
            return Observed(Observation(hpa=hpa, scale=scale, fallback=overrides.fallback), target, fresh)
        matched = pods = self._pods.matching(namespace, selector)
        if self.strategy(overrides) is SelectionStrategy.OWNER_REFERENCE:
            pods = await self._owners.owned(matched, namespace, reference)
        key = key_of(hpa)
        self._claims.claim(key, selector)
        claimed = self._claims.claimants_for(key, pods)
        readings: tuple[Reading, ...] = ()
        if len(claimed) < 2:
            asked, metrics = (namespace, scale.selector), metrics_of(hpa.spec)
            readings = tuple([await self._read(metric, asked, selector, matched, request) for metric in metrics])
        if pods is not matched:
            names = {pod.metadata.name for pod in pods}
            readings = tuple([only_pods(reading, names) for reading in readings])
        aware = self._settings.rollout_aware if overrides.rollout_aware is None else overrides.rollout_aware
        observation = Observation(
            hpa=hpa,
            scale=scale,
            pods=pods,
            claimed_by=claimed,
            readings=readings,
            passed_over=rollout_pods(pods, scale.replicas, now=self._clock.now()) if aware else frozenset(),
            fallback=overrides.fallback,
            announced=self._announced(namespace, reference),
        )
        return Observed(observation, target, fresh)

    def _announced(self, namespace: str, reference: CrossVersionObjectReference) -> int:
        return self._announced_counts.of(namespace, reference) if self._announced_counts is not None else 0

    def finds_unchanged(self, key: ObjectKey, rest: Rest) -> bool:
        """Return whether target and pods are what they were, by what is followed; no if the server has to be asked."""
        known = self._known
        target = known.get(key.namespace, rest.seen.hpa.spec.scale_target_ref) if known is not None else None
        return self.finds_same(key, rest, target)

    def finds_same(self, key: ObjectKey, rest: Rest, target: ScaleTarget | None) -> bool:
        """Return whether this target and its pods are what they were."""
        if self._announced(key.namespace, rest.seen.hpa.spec.scale_target_ref):
            return False
        if target is None or target.selector != (rest.seen.scale and rest.seen.scale.selector):
            return False
        scale = ScaleView(target.spec_replicas, target.status_replicas, target.selector)
        pods = self._pods.matching(key.namespace, selector_of(target.selector))
        return is_unchanged(rest, scale, pods, self._claims.claimants_for(key, pods))

    def strategy(self, overrides: Overrides) -> SelectionStrategy:
        """Return how the pods of an autoscaler are selected."""
        return overrides.selection or self._settings.selection_strategy

    async def _read(
        self,
        metric: MetricSpec,
        asked: tuple[str, str],
        selector: Selector,
        pods: Sequence[Pod],
        request: MetricsRequest,
    ) -> Reading:
        try:
            query = query_of(metric, *asked)
        except MetricFailure as failure:
            return failure
        return await self._metrics.read(query, selector, pods, request)


def _readable_selector(scale: ScaleView) -> Selector | None:
    try:
        return selector_of(scale.selector) if scale.selector else None
    except SelectorError:
        return None
