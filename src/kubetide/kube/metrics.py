"""Clients of the three metrics APIs: resource usage, custom and external metrics. One function, one request.

    resource  GET /apis/metrics.k8s.io/v1beta1[/namespaces/{ns}]/pods     (v1 where nothing else is served)
    custom    GET /apis/custom.metrics.k8s.io/{v}/namespaces/{ns}/{resource}/{name}/{metric}
    external  GET /apis/external.metrics.k8s.io/v1beta1/namespaces/{ns}/{metric}

They answer what the API served; what an empty answer means is the caller's to say, except where exactly one value
was asked for. None of these lists has pages, so a long one is decoded in slices, and all that are read and decoded at
a time share a budget of bytes (`client.answers`).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar
from urllib.parse import quote

from kubetide.api.objects.metrics import ExternalMetricValue, MetricValue, PodMetrics, UsagePages
from kubetide.api.objects.scheme import POD_METRICS
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import Foreign, Rejected, decode_page
from kubetide.kube.client.errors import NotFound, ResponseTooLarge
from kubetide.kube.client.transport import DocumentResponse, Response, largest_answer
from kubetide.kube.scale import TargetReference, group_of_reference

T = TypeVar("T")
R = TypeVar("R")

RESOURCE_VERSIONS = ("v1beta1", "v1")
"""Versions of metrics.k8s.io that are known here, the one that the HPA of 1.37 asks for first."""
REDISCOVER = timedelta(seconds=15)
CUSTOM_GROUP = "custom.metrics.k8s.io"
CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
EXTERNAL_BASE = "/apis/external.metrics.k8s.io/v1beta1"


class MetricsNotRegistered(KubetideError):
    """Nobody serves the custom metrics API."""


class NoKnownMetricsVersion(KubetideError):
    """The custom metrics API is served only in versions unknown here."""


class UnknownMetricObject(KubetideError):
    """The kind of the described object is not served."""


class NotExactlyOne(KubetideError):
    """A request for one value returned none, or several."""


class ResourceMetrics:
    """metrics.k8s.io: the usage of pods and nodes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._version = POD_METRICS.version

    async def pods(
        self, namespace: str | None = None, selector: str = "", *, foreign: Foreign | None = None
    ) -> tuple[PodMetrics, ...]:
        """Return the usage of the pods of a namespace, or of all but those that are `foreign`."""
        return _whole(*await self._items(namespace, selector, foreign))

    async def readable_pods(
        self, namespace: str | None = None, selector: str = ""
    ) -> tuple[list[PodMetrics] | UsagePages, list[Rejected]]:
        """Return the usage of the pods of a namespace, or of all, and which samples cannot be read.

        A server in this process gives columns of all pods, of which there is nothing that cannot be read.
        """
        if selector:
            return await self._items(namespace, selector)
        return await self._served(lambda path: _pods(self._client, path), namespace)

    async def usage(self, namespace: str | None = None) -> Sequence[PodMetrics] | UsagePages:
        """Return the usage of the pods of a namespace, or of all; columns where the server is in this process."""
        found, rejected = await self.readable_pods(namespace)
        return found if isinstance(found, UsagePages) else _whole(found, rejected)

    async def _items(
        self, namespace: str | None, selector: str, foreign: Foreign | None = None
    ) -> tuple[list[PodMetrics], list[Rejected]]:
        query = {"labelSelector": selector}
        return await self._served(lambda path: _items(self._client, path, PodMetrics, query, foreign), namespace)

    async def _served(self, read: Callable[[str], Awaitable[R]], namespace: str | None) -> R:
        """Read the path of the version that is served."""
        try:
            return await read(replace(POD_METRICS, version=self._version).path(namespace=namespace))
        except NotFound:
            # v1 has the same shape; it is asked for only where v1beta1 is not served, and the other way round.
            served = await self._client.discovery.versions(POD_METRICS.group, max_age=REDISCOVER)
            other = next((version for version in RESOURCE_VERSIONS if version in served), self._version)
            if other == self._version:
                raise
            self._version = other
            return await read(replace(POD_METRICS, version=other).path(namespace=namespace))


class CustomMetrics:
    """custom.metrics.k8s.io: numbers that describe objects of the cluster."""

    def __init__(self, client: Client, *, rediscover: timedelta = timedelta(seconds=15)) -> None:
        self._client = client
        self._rediscover = rediscover

    async def version(self) -> str:
        """Return the version to ask in: the preferred one if it is known here, else the first known one listed."""
        versions = await self._client.discovery.versions(CUSTOM_GROUP, max_age=self._rediscover)
        if not versions:
            raise MetricsNotRegistered(f"no custom metrics API ({CUSTOM_GROUP}) registered")
        for version in versions:
            if version in CUSTOM_VERSIONS:
                return version
        raise NoKnownMetricsVersion("no known available metric versions found")

    async def for_pods(
        self, namespace: str, metric: str, *, pod_selector: str = "", metric_selector: str = ""
    ) -> tuple[MetricValue, ...]:
        """Return one metric of all pods that the selector matches."""
        path = f"{await self._base(namespace)}/pods/*/{_segment(metric)}"
        return await self._read(path, labelSelector=pod_selector, metricLabelSelector=metric_selector)

    async def for_object(
        self, namespace: str, described: TargetReference, metric: str, *, metric_selector: str = ""
    ) -> MetricValue:
        """Return one metric of one object; raises NotExactlyOne when another number of values came."""
        base = await self._base(namespace)
        group = group_of_reference(described.api_version)
        if not group and described.kind == "Namespace":
            # A namespace is described by the path itself; the name in the reference is not looked at.
            path = f"{base}/metrics/{_segment(metric)}"
        else:
            plural = await self._group_resource(group, described.kind)
            path = f"{base}/{plural}/{_segment(described.name)}/{_segment(metric)}"
        values = await self._read(path, metricLabelSelector=metric_selector)
        if len(values) != 1:
            raise NotExactlyOne(
                f"the custom metrics API server returned {len(values)} results when we asked for exactly one"
            )
        return values[0]

    async def _group_resource(self, group: str, kind: str) -> str:
        for resource in await self._client.discovery.resources_for(group, kind):
            return resource.group_resource
        name = f"{kind}.{group}" if group else kind
        raise UnknownMetricObject(
            f'unable to map kind {name} to resource: no matches for kind "{kind}" in group "{group}"'
        )

    async def _base(self, namespace: str) -> str:
        return f"/apis/{CUSTOM_GROUP}/{await self.version()}/namespaces/{_segment(namespace)}"

    async def _read(self, path: str, **query: str) -> tuple[MetricValue, ...]:
        return await _all_items(self._client, path, MetricValue, **query)


class ExternalMetrics:
    """external.metrics.k8s.io: numbers from outside the cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def values(self, namespace: str, metric: str, *, selector: str = "") -> tuple[ExternalMetricValue, ...]:
        """Return the values of one metric that the selector matches."""
        path = f"{EXTERNAL_BASE}/namespaces/{_segment(namespace)}/{_segment(metric)}"
        return await _all_items(self._client, path, ExternalMetricValue, labelSelector=selector)


async def _items(
    client: Client, path: str, kind: type[T], query: dict[str, str], foreign: Foreign | None = None
) -> tuple[list[T], list[Rejected]]:
    """Read a list whole, within the budget of all that are read at the same time; what is `foreign` is not decoded."""
    async with client.answers.answer():
        # In a function of its own, so that the bytes are gone when the block ends.
        return await _decoded(client, path, kind, query, foreign)


async def _pods(client: Client, path: str) -> tuple[list[PodMetrics] | UsagePages, list[Rejected]]:
    async with client.answers.answer():
        response = await client.request("GET", path)
        if isinstance(response, DocumentResponse) and isinstance(response.document, UsagePages):
            return response.document, []
        return await _page(response, path, PodMetrics, None)


async def _decoded(
    client: Client, path: str, kind: type[T], query: dict[str, str], foreign: Foreign | None
) -> tuple[list[T], list[Rejected]]:
    return await _page(await client.request("GET", path, query=_query(**query)), path, kind, foreign)


async def _page(
    response: Response, path: str, kind: type[T], foreign: Foreign | None
) -> tuple[list[T], list[Rejected]]:
    _, items, rejected = await decode_page(_bounded(response, path), kind, what=path, foreign=foreign)
    return items, rejected


async def _all_items(client: Client, path: str, kind: type[T], **query: str) -> tuple[T, ...]:
    return _whole(*await _items(client, path, kind, query))


def _whole(items: list[T], rejected: list[Rejected]) -> tuple[T, ...]:
    if rejected:
        # A missing sample and a broken one must not look alike: the sync goes without, and reports why.
        raise rejected[0].error
    return tuple(items)


def _bounded(response: Response, path: str) -> bytes:
    size, limit = len(response.body), largest_answer(path)
    if size > limit:
        raise ResponseTooLarge(f"{path}: the answer of {size} bytes is longer than the limit of {limit} bytes")
    return response.body


def _segment(text: str) -> str:
    """Return a name as one segment of a path; names are what users wrote, and must not lead to another path."""
    if text in (".", ".."):
        raise InvalidInput(f"{text!r} cannot be part of a path", field="name")
    return quote(text, safe="")


def _query(**parameters: str) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value}
