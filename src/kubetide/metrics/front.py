"""The merging front: other servers of custom and external metrics, asked behind this one with its own identity.

The API has room for one server per group and version; with this one in front, KEDA's and an adapter live beside it. The
caller's permission was checked before (`http_api`), so that nobody reaches through the front what they may not read.
Every question carries the names of the fronts it came through: one that comes back is answered 508 and goes no further,
and where it asks for the names of metrics, with those that this server has by itself.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from kubetide.api.values.codec import decode_raw
from kubetide.clock import Clock
from kubetide.errors import KubetideError, Unavailable
from kubetide.kube.client.credentials import Credentials, WithHeaders
from kubetide.kube.client.errors import NotFound, error_from
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import Pem, ServerTrust
from kubetide.metrics.answer_cache import AnswerCache
from kubetide.metrics.core.backends import MOST_VALUES, Backend, Backends, bounded_labels
from kubetide.metrics.core.requests import EXTERNAL, VERSIONS, Question
from kubetide.metrics.core.statuses import Refused
from kubetide.metrics.http_api import VIA

Raw = dict[str, Any]

MOST_FRONTS = 4
RELIST = timedelta(seconds=30)
LARGEST_ANSWER = 16 * 1024 * 1024


class Front:
    """All backends, as one source of values."""

    name = "backends"

    def __init__(self, clock: Clock, backends: Callable[[], Backends], access: Access, *, identity: str) -> None:
        """`identity` distinguishes this server from other fronts; its replicas share it."""
        self._backends = backends
        self._access = access
        self._identity = identity
        self._transports: dict[Backend, HttpTransport] = {}
        self._listed: AnswerCache[Mapping[str, bool]] = AnswerCache(clock, lambda _: RELIST, most=256)

    async def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            await transport.close()
        self._transports.clear()

    async def names(self, group: str, via: str) -> Mapping[str, bool]:
        """Return the metrics of all backends that can be asked; raises if none of several can."""
        hops = self._hops(via)
        if not hops:
            return {}
        found: dict[str, bool] = {}
        failures = []
        asked = [backend for backend in self._backends().usable if group in backend.groups]
        for backend in reversed(asked):
            try:
                found.update(await self._names_of(backend, group, hops))
            except KubetideError as error:
                failures.append(f"{backend.name}: {error}")
        if failures and not found:
            raise Unavailable("; ".join(failures))
        return found

    async def values(self, question: Question, query: Mapping[str, str], via: str) -> list[Raw] | None:
        """Ask the backends in their order; the first that has the metric answers."""
        hops = self._hops(via)
        if not hops:
            raise Refused(508, "LoopDetected", f"{question.metric}: the question came back through {via}")
        failures = []
        for backend in self._backends().usable:
            if question.group not in backend.groups or not await self._may_have(backend, question, hops):
                continue
            try:
                return await self._ask(backend, question, query, hops)
            except NotFound:
                continue
            except KubetideError as error:
                failures.append(f"{backend.name}: {error}")
        if failures:
            raise Unavailable("; ".join(failures))
        return None

    def _hops(self, via: str) -> str:
        """Return the fronts that a question will have come through; none if it was here, or has come too far."""
        passed = [one.strip() for one in via.split(",") if one.strip()]
        return "" if self._identity in passed or len(passed) >= MOST_FRONTS else ",".join([*passed, self._identity])

    async def _may_have(self, backend: Backend, question: Question, hops: str) -> bool:
        """Return whether a backend lists the metric. Of external metrics not all are listed by those who have them."""
        if question.group == EXTERNAL:
            return True
        try:
            return f"{question.resource}/{question.metric}" in await self._names_of(backend, question.group, hops)
        except KubetideError:
            # It cannot say; the question itself finds out, and its failure is this metric's.
            return True

    async def _names_of(self, backend: Backend, group: str, hops: str) -> Mapping[str, bool]:
        async def ask() -> Mapping[str, bool]:
            body = await self._get(backend, f"/apis/{group}/{_version(group)}", {}, hops)
            return {
                str(one.get("name")): bool(one.get("namespaced"))
                for one in body.get("resources") or ()
                if one.get("name")
            }

        # A backend leaves out what it would have to ask another front of the way for: that answer is no one else's.
        return await (self._listed.get((backend, group), ask) if hops == self._identity else ask())

    async def _ask(self, backend: Backend, question: Question, query: Mapping[str, str], hops: str) -> list[Raw]:
        parts = [question.resource, question.name, question.metric]
        if question.group == EXTERNAL:
            parts = [question.metric]
        elif question.resource == "namespaces":
            parts = ["metrics", question.metric]
        path = f"/apis/{question.group}/{_version(question.group)}"
        if question.namespace:
            path += f"/namespaces/{quote(question.namespace, safe='')}"
        path += "".join(f"/{quote(part, safe='*')}" for part in parts)
        body = await self._get(backend, path, query, hops)
        items = body.get("items")
        if not isinstance(items, list):
            raise Unavailable("answers no list of values")
        if len(items) > MOST_VALUES:
            raise Unavailable(f"answers {len(items)} values, more than {MOST_VALUES}")
        return [_in_newest(_bounded(one)) for one in items if isinstance(one, dict)]

    async def _get(self, backend: Backend, path: str, query: Mapping[str, str], hops: str) -> Raw:
        seconds = backend.timeout.total_seconds()
        if hops == self._identity:
            transport = self._transports.get(backend)
            if transport is None:
                transport = self._transports[backend] = self._transport(backend, hops)
            response = await transport.request("GET", path, query=dict(query), timeout=seconds)
        else:
            # A question that came through another front, as anybody may claim: nothing of it is kept.
            transport = self._transport(backend, hops)
            try:
                response = await transport.request("GET", path, query=dict(query), timeout=seconds)
            finally:
                await transport.close()
        if response.status != 200:
            raise error_from(response)
        body = decode_raw(response.body, what=f"{backend.name} {path}")
        if not isinstance(body, dict):
            raise Unavailable("answers no object")
        return body

    def _transport(self, backend: Backend, hops: str) -> HttpTransport:
        ca = Pem(data=backend.ca) if backend.ca else self._access.trust.ca
        credentials: Credentials = WithHeaders(self._access.credentials, ((VIA, hops),))
        access = Access(server=backend.url, trust=ServerTrust(ca=ca), credentials=credentials)
        return HttpTransport(access, body_limit=LARGEST_ANSWER)


def _version(group: str) -> str:
    """Return the version in which backends are asked: the one that all of them serve."""
    return VERSIONS[group][-1]


def _bounded(item: Raw) -> Raw:
    return {**item, "metricLabels": bounded_labels(item["metricLabels"])} if "metricLabels" in item else item


def _in_newest(item: Raw) -> Raw:
    """Return a value of v1beta1 in the shape of v1beta2; external ones are the same in both."""
    if "metricName" not in item or "describedObject" not in item:
        return item
    shown = {key: value for key, value in item.items() if key not in ("metricName", "selector", "window")}
    shown["metric"] = {"name": item["metricName"], "selector": item.get("selector")}
    if item.get("window") is not None:
        shown["windowSeconds"] = item["window"]
    return shown
