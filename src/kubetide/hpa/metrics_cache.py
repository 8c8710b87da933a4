"""Asks the metrics APIs, once for all who want to know the same.

All autoscalers of a namespace (or of the cluster) share one list of pod usage per sync period, and equal questions to
the custom and external metrics APIs are asked once. No autoscaler is given the same answer twice: it would act again
on what it has already acted on. What fails is shared like what works, so that an outage is not made worse.

A sample that cannot be read concerns the autoscaler of its pod and no other. A list that cannot be read at all is asked
for in parts, one selector at a time, but only so many per sync period: a bad answer must not turn into a call for every
autoscaler.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Self, TypeVar

from kubetide.api.objects.capacity import UNKNOWN, Capacity
from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.metrics import PodMetrics, UsageColumns, UsagePages
from kubetide.api.values.selectors import Selector
from kubetide.clock import Clock
from kubetide.errors import DecodeError, KubetideError
from kubetide.hpa.core.claims import narrowed
from kubetide.hpa.core.describe import ExternalQuery, MetricsRequest, ObjectQuery, PodsQuery, Query, ResourceQuery
from kubetide.hpa.core.quick.filing import Filing, NamespaceSamples, by_namespace
from kubetide.hpa.core.samples import (
    ErrorKind,
    MetricFailure,
    PodReading,
    Reading,
    external_reading,
    object_reading,
    pods_reading,
    resource_reading,
    without_impossible,
)
from kubetide.hpa.settings import HpaSettings, MetricsScope
from kubetide.hpa.shared_answers import SharedAnswers, Tally
from kubetide.kube.cache.store import NAMESPACE, Store
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import Rejected
from kubetide.kube.client.errors import ApiError, ResponseTooLarge, ServerTimeout, ServiceUnavailable
from kubetide.kube.metrics import CustomMetrics, ExternalMetrics, ResourceMetrics
from kubetide.log import get_logger

T = TypeVar("T")

log = get_logger("hpa")

CLUSTER_FROM = 4
"""With autoscalers in more namespaces than this, and in most of the cluster, one list of usage serves all."""
PARTS = 32
"""So many selectors are asked for one by one per sync period, where lists cannot be read."""


class UsageList:
    """One list of pod usage, split and filed by namespace when first needed."""

    def __init__(
        self,
        items: Sequence[PodMetrics] | UsagePages,
        rejected: Sequence[Rejected],
        namespace: str,
        filings: dict[str, Filing],
    ) -> None:
        """`filings` are those of the lists before this one, and after it."""
        self.namespace = namespace
        self._split: dict[str, Sequence[PodMetrics] | UsageColumns]
        if isinstance(items, UsagePages):
            self._split = {**items}
        else:
            # What a namespace answers is of that namespace, also where the samples do not say so.
            self._split = {namespace: items} if namespace else {**by_namespace(items)}
        self._samples: dict[str, NamespaceSamples] = {}
        self._filings = filings
        self._unreadable = {(namespace or bad.key.namespace, bad.key.name): bad.error for bad in rejected}

    @property
    def is_readable(self) -> bool:
        """Whether every sample could be read."""
        return not self._unreadable

    def select(self, namespace: str, selector: Selector, pods: Sequence[Pod]) -> list[PodMetrics]:
        """Return the samples of the pods that the selector matches; raise if one of them cannot be read."""
        if self._unreadable:
            for pod in pods:
                if (error := self._unreadable.get((namespace, pod.metadata.name))) is not None:
                    raise error
        return self.samples(namespace).select(selector, (pod.metadata.name for pod in pods))

    def samples(self, namespace: str) -> NamespaceSamples:
        """Return the samples of a namespace that could be read."""
        found = self._samples.get(namespace)
        if found is None:
            found = NamespaceSamples(self._split.pop(namespace, ()), self._filings.get(namespace))
            self._samples[namespace], self._filings[namespace] = found, found.filing
        return found


class _Parts:
    """Which selectors may be asked for one by one in this sync period."""

    def __init__(self, clock: Clock, period: timedelta) -> None:
        self._clock = clock
        self._period = period.total_seconds()
        self._ends = float("-inf")
        self._asked: set[Hashable] = set()

    def may_ask(self, question: Hashable) -> bool:
        """Return whether a question may be asked, and count it."""
        now = self._clock.monotonic()
        if now >= self._ends:
            self._ends = now + self._period
            self._asked.clear()
        if len(self._asked) < PARTS:
            self._asked.add(question)
        return question in self._asked


class WholeCluster:
    """Whether one list of the whole cluster reads less than one list per namespace with autoscalers."""

    def __init__(
        self, clock: Clock, settings: HpaSettings, hpas: Store[HorizontalPodAutoscaler], pods: Store[Pod]
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._hpas = hpas
        self._pods = pods
        self._answer = False
        self._valid_until = 0.0

    def __call__(self) -> bool:
        """Return the answer, found anew once per sync period."""
        now = self._clock.monotonic()
        if now >= self._valid_until:
            self._valid_until = now + self._settings.sync_period.total_seconds()
            self._answer = self._most_namespaces_have_autoscalers()
        return self._answer

    def _most_namespaces_have_autoscalers(self) -> bool:
        namespaces = self._hpas.index_values(NAMESPACE)
        if self._settings.namespace or len(namespaces) <= CLUSTER_FROM:
            return False
        return 2 * len(namespaces) > len(self._pods.index_values(NAMESPACE))


class MetricsReader:
    """Reads what metrics need from the three APIs, while it is entered."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: HpaSettings,
        *,
        tally: Tally | None = None,
        cluster_wide: Callable[[], bool] = lambda: False,
        capacity: Callable[[], Capacity] = lambda: UNKNOWN,
    ) -> None:
        self._settings = settings
        self._tally = tally
        self._capacity = capacity
        scope = settings.metrics_scope
        self._all_at_once = cluster_wide if scope is MetricsScope.AUTO else lambda: scope is MetricsScope.CLUSTER
        self._resource = ResourceMetrics(client)
        self._custom = CustomMetrics(client, rediscover=settings.sync_period)
        self._external = ExternalMetrics(client)
        self._answers = SharedAnswers(clock, settings.metrics_timeout, tally)
        self._parts = _Parts(clock, settings.sync_period)
        self._filings: dict[str, Filing] = {}

    async def __aenter__(self) -> Self:
        """Own the requests to the metrics APIs from now on."""
        await self._answers.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        """End the requests that are still in flight."""
        await self._answers.__aexit__(*raised)

    async def read(self, query: Query, selector: Selector, pods: Sequence[Pod], request: MetricsRequest) -> Reading:
        """Return the answer to a query, or how it failed."""
        try:
            if isinstance(query, ResourceQuery):
                items = await self._usage(query, selector, pods, request)
                reading = resource_reading(items, query.resource, query.container)
                return self._counted(without_impossible(reading, query.resource, pods, self._capacity()))
            return await self._values(query, request)
        except MetricFailure as failure:
            return failure
        except TimeoutError:
            seconds = self._settings.metrics_timeout.total_seconds()
            return MetricFailure(ErrorKind.FETCH_FAILED, f"the metrics API did not answer within {seconds:g} s")
        except KubetideError as error:
            return MetricFailure(ErrorKind.FETCH_FAILED, f"the metrics API could not be read: {error}")

    def _counted(self, reading: PodReading) -> PodReading:
        """Count what was refused."""
        if self._tally is not None:
            for refused in reading.refused.values():
                self._tally.refused(refused.reason)
        return reading

    async def refresh_usage(self, wanted: Iterable[tuple[str, Selector]]) -> None:
        """Read the usage of pods, by namespace and selector, for the next reconciles: newer samples are there.

        Of few pods alone, so that neither side has to handle all of them for the sake of some.
        """
        scopes: dict[str, set[tuple[str, Selector]]] = defaultdict(set)
        for namespace, selector in wanted:
            scopes[self._scope(namespace)].add((namespace, selector))
        async with asyncio.TaskGroup() as group:
            for scope, pairs in sorted(scopes.items()):
                narrow = narrowed({selector for _, selector in pairs})
                for text, selectors in ({"": set[Selector]()} if narrow is None else narrow).items():
                    parts = [pair for pair in pairs if pair[1] in selectors]
                    ask = partial(self._list, scope, text)
                    group.create_task(self._answers.refresh("resource", ("usage", scope), ask, parts))

    def ready_usage(self, namespace: str, request: MetricsRequest) -> UsageList | None:
        """Return the list of usage that all share, if there is one that is good for this request."""
        found: UsageList | None = self._answers.ready("resource", ("usage", self._scope(namespace)), request)
        return found

    async def usage(self, namespace: str, selector: Selector, request: MetricsRequest) -> UsageList | None:
        """Return the list of usage that a reconcile is given, asked for if need be; None if it cannot be read whole."""
        scope = self._scope(namespace)
        try:
            return await self._listed(scope, (namespace, selector), request)
        except (KubetideError, TimeoutError):
            return None

    async def _listed(self, scope: str, pods: tuple[str, Selector], request: MetricsRequest) -> UsageList:
        """Return a list with the usage of these pods: the one that all share, or a newer one of few."""
        question = ("usage", scope)
        found: UsageList | None = self._answers.part(question, pods, request)
        if found is None:
            found = self._answers.ready("resource", question, request)
        if found is None:
            found = await self._answers.get("resource", question, partial(self._list, scope), request)
        return found

    async def _values(self, query: PodsQuery | ObjectQuery | ExternalQuery, request: MetricsRequest) -> Reading:
        """Return the values of a custom or external metric."""
        match query:
            case PodsQuery():
                values = await self._answers.get(
                    "custom",
                    query,
                    lambda: self._custom.for_pods(
                        query.namespace,
                        query.metric,
                        pod_selector=query.selector,
                        metric_selector=query.metric_selector,
                    ),
                    request,
                )
                return pods_reading(values)
            case ObjectQuery():
                value = await self._answers.get(
                    "custom",
                    query,
                    lambda: self._custom.for_object(
                        query.namespace, query.described, query.metric, metric_selector=query.metric_selector
                    ),
                    request,
                )
                return object_reading((value,))
            case ExternalQuery():
                found = await self._answers.get(
                    "external",
                    query,
                    lambda: self._external.values(query.namespace, query.metric, selector=query.metric_selector),
                    request,
                )
                return external_reading(found)

    async def _usage(
        self, query: ResourceQuery, selector: Selector, pods: Sequence[Pod], request: MetricsRequest
    ) -> Sequence[PodMetrics]:
        """Return the selected samples of pod usage, from a list that many share if there can be one."""
        namespace = query.namespace
        failure: KubetideError | None = None
        for scope in self._scopes(namespace):
            try:
                usage = await self._listed(scope, (namespace, selector), request)
            except (ServiceUnavailable, ServerTimeout):
                # Nobody is there: asking for less would not help.
                raise
            except (ApiError, DecodeError, ResponseTooLarge) as error:
                log.debug("cannot list pod usage", scope=scope or "cluster", error=str(error))
                failure = error
            else:
                return usage.select(namespace, selector, pods)
        question = ("selected", namespace, query.selector)
        if failure is not None and not self._parts.may_ask(question):
            raise failure
        return await self._answers.get(
            "resource", question, lambda: self._resource.pods(namespace, query.selector), request
        )

    def _scope(self, namespace: str) -> str:
        """Return the namespace whose list is asked for; empty for that of the whole cluster."""
        return "" if self._all_at_once() else namespace

    def _scopes(self, namespace: str) -> tuple[str, ...]:
        """Return the same, and what is asked for where that list cannot be read."""
        return ("", namespace) if self._all_at_once() else (namespace,)

    async def _list(self, namespace: str, selector: str = "") -> UsageList:
        items, rejected = await self._resource.readable_pods(namespace or None, selector)
        for bad in rejected:
            if not bad.key.name:
                # Nobody can say whose sample it is, so it may be anybody's.
                raise bad.error
        if selector:
            return UsageList(items, rejected, namespace, {})
        if not namespace:
            # Namespaces that are gone are forgotten with the filings that this list does not take over.
            listed = set(items) if isinstance(items, UsagePages) else {item.metadata.namespace for item in items}
            self._filings = {name: filing for name, filing in self._filings.items() if name in listed}
        return UsageList(items, rejected, namespace, self._filings)
