"""Typed verbs over a transport: read into structs, write as patches.

What the server reports decides the pace: 429, and 5xx with Retry-After, are tried again when it asks for it; a list
whose continue token has expired starts over in one piece. Everything else that is refused is raised as the error of its
reason, for the caller to judge.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta
from typing import Any, TypeVar, cast
from weakref import WeakMethod

from kubetide.api.objects.scheme import PODS, Resource
from kubetide.api.values.codec import decode, decode_raw, encode
from kubetide.clock import Clock
from kubetide.kube.client.answers import AnswerBudget
from kubetide.kube.client.decoding import (
    Elsewhere,
    Foreign,
    Listing,
    Rejected,
    WatchEvent,
    decode_page,
    find_expected,
    find_foreign,
    parse_line,
)
from kubetide.kube.client.discovery import Discovery
from kubetide.kube.client.errors import LONGEST_RETRY_AFTER, ApiError, Gone, NotFound, error_from
from kubetide.kube.client.parameters import Patch, delete_options, eviction, selectors, write_options
from kubetide.kube.client.transport import Response, Transport
from kubetide.kube.pacing import TokenBucket

T = TypeVar("T")

REQUEST_TIMEOUT = 60.0
MAX_RETRIES = 10
CACHE_CHECK = timedelta(minutes=5)


class Client:
    """Reads and writes the objects of one API server as one identity.

    `observe(method, status, seconds)` is called for every request; status 0 means that nobody answered.
    `announce(part)` is called for every informer, elector, recorder and queue of this client, so that all can be shown.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        concurrency: int = 64,
        qps: float | None = None,
        burst: int | None = None,
        rng: random.Random | None = None,
        timeout: float = REQUEST_TIMEOUT,
        cache_check: timedelta = CACHE_CHECK,
        observe: Callable[[str, int, float], None] | None = None,
        announce: Callable[[object], None] | None = None,
    ) -> None:
        self.transport = transport
        self.clock = clock
        self.rng = rng or random.Random()
        self.cache_check = cache_check
        """How often an informer compares what it holds with the server."""
        self.discovery = Discovery(self.request, clock=clock)
        self.answers = AnswerBudget()
        self._timeout = timeout
        self._slots = asyncio.Semaphore(concurrency)
        self._observe = observe
        self._announce = announce
        self._not_found: list[WeakMethod[Callable[[str], None]]] = []
        self._bucket = TokenBucket(qps, burst or max(1, int(2 * qps))) if qps else None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
        retries: int = MAX_RETRIES,
    ) -> Response:
        """Send any request; raises the ApiError of an error status once retrying is not worth it."""
        for attempt in range(retries + 1):
            response = await self._send(
                method,
                path,
                query=query,
                body=body,
                content_type=content_type,
                accept=accept,
                timeout=timeout or self._timeout,
            )
            if response.status < 300:
                return response
            error = error_from(response)
            if isinstance(error, NotFound):
                self._tell_not_found(path)
            if attempt == retries or not _worth_waiting(error):
                raise error
            await asyncio.sleep(min(LONGEST_RETRY_AFTER, error.retry_after or 1.0))
        raise AssertionError("unreachable")

    async def _send(self, method: str, path: str, **parts: Any) -> Response:
        if self._bucket is not None:
            delay = self._bucket.reserve(self.clock.monotonic())
            if delay > 0:
                await asyncio.sleep(delay)
        async with self._slots:
            if self._observe is None:
                return await self.transport.request(method, path, **parts)
            started = self.clock.monotonic()
            status = 0
            try:
                response = await self.transport.request(method, path, **parts)
                status = response.status
                return response
            finally:
                self._observe(method, status, self.clock.monotonic() - started)

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        """Read one object."""
        path = resource.path(namespace=namespace, name=name)
        return decode((await self.request("GET", path)).body, resource.type, what=path)

    async def get_raw(
        self, resource: Resource[Any], name: str, *, namespace: str | None = None, subresource: str | None = None
    ) -> dict[str, Any]:
        """Read one object, or a subresource of it, whole."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return cast(dict[str, Any], decode_raw((await self.request("GET", path)).body, what=path))

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        shard_selector: str = "",
        limit: int = 500,
        foreign: Foreign | None = None,
    ) -> Listing[T]:
        """Read all objects, page by page; `limit=0` asks for one page. By uid and key `foreign` are left out."""
        query = selectors(label_selector, field_selector, shard_selector)
        try:
            return await self._list(resource, namespace, query, limit, foreign)
        except Gone:
            # The continue token outlived the server's memory. One page cannot expire.
            return await self._list(resource, namespace, query, 0, foreign)

    async def _list(
        self,
        resource: Resource[T],
        namespace: str | None,
        query: Mapping[str, str],
        limit: int,
        foreign: Foreign | None,
    ) -> Listing[T]:
        path = resource.path(namespace=namespace)
        items: list[T] = []
        rejected: list[Rejected] = []
        token = ""
        while True:
            page_query = {**query, **({"limit": str(limit)} if limit else {}), **({"continue": token} if token else {})}
            response = await self.request("GET", path, query=page_query)
            meta, page, bad = await decode_page(response.body, resource.type, what=path, foreign=foreign)
            items += page
            rejected += bad
            token = meta.continue_
            if not token:
                version, shard = meta.resource_version, meta.shard_info.selector
                return Listing(items=tuple(items), resource_version=version, rejected=tuple(rejected), shard=shard)

    async def watch(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int | None = None,
        bookmarks: bool = True,
    ) -> AsyncIterator[WatchEvent[T]]:
        """Yield the changes after `resource_version` until the server ends the stream; close it with `aclosing`."""
        stream = self.watch_items(
            resource,
            namespace=namespace,
            resource_version=resource_version,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout_seconds=timeout_seconds,
            bookmarks=bookmarks,
        )
        async with aclosing(stream):
            async for event in stream:
                if isinstance(event, Rejected):
                    raise event.error
                if not isinstance(event, Elsewhere):
                    yield event

    async def watch_items(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        shard_selector: str = "",
        timeout_seconds: int | None = None,
        bookmarks: bool = True,
        expected: Mapping[str, WatchEvent[T]] | None = None,
        foreign: Foreign | None = None,
    ) -> AsyncGenerator[WatchEvent[T] | Rejected | Elsewhere, None]:
        """Like `watch`, but hand over what cannot be decoded.

        Events `expected` by version are known, and of those that are `foreign` by uid and key nobody wants more
        than that they came: neither is decoded.
        """
        query = {"watch": "true", **selectors(label_selector, field_selector, shard_selector)}
        if resource_version:
            query["resourceVersion"] = resource_version
        if bookmarks:
            query["allowWatchBookmarks"] = "true"
        if timeout_seconds:
            query["timeoutSeconds"] = str(timeout_seconds)
        async with AsyncExitStack() as stack:
            lines = await self._open(stack, resource.path(namespace=namespace), query)
            async for line in lines:
                yield (
                    (expected and find_expected(line, expected))
                    or (foreign and find_foreign(line, foreign))
                    or parse_line(line, resource.type)
                )

    async def _open(self, stack: AsyncExitStack, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Open a watch; to the observer it is a request that took as long as its answer needed to begin."""
        started, status = self.clock.monotonic(), 0
        try:
            lines = await stack.enter_async_context(self.transport.watch(path, query=query))
            status = 200
            return lines
        except ApiError as error:
            status = error.status
            raise
        finally:
            if self._observe is not None:
                self._observe("GET", status, self.clock.monotonic() - started)

    async def create(
        self,
        resource: Resource[T],
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> T:
        """Create an object from its raw form."""
        path = resource.path(namespace=namespace)
        query = write_options(field_manager, dry_run=dry_run)
        response = await self.request("POST", path, query=query, body=encode(body))
        return decode(response.body, resource.type, what=path)

    async def update(
        self,
        resource: Resource[T],
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
        field_manager: str | None = None,
    ) -> T:
        """Replace an object by a raw one; with a resource version in it, only if it is still that one."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        query = write_options(field_manager, dry_run=dry_run)
        response = await self.request("PUT", path, query=query, body=encode(body))
        return decode(response.body, resource.type, what=path)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Patch,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Change an object by a merge, JSON or strategic merge patch."""
        query = write_options(field_manager, dry_run=dry_run)
        body = await self.send_patch(resource, name, patch, namespace=namespace, subresource=subresource, query=query)
        return decode(body, resource.type, what=resource.path(namespace=namespace, name=name, subresource=subresource))

    async def send_patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Patch,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        """Patch an object and return the answer as it came: for callers to whom it is enough that it was written."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        kind, body = patch.content_type, patch.encode()
        return (await self.request("PATCH", path, query=query, body=body, content_type=kind)).body

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        namespace: str | None = None,
        grace_period_seconds: int | None = None,
        propagation: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Delete an object; with `uid` or `resource_version`, only if it is that one."""
        options = delete_options(grace_period_seconds, propagation, uid=uid, resource_version=resource_version)
        await self.request("DELETE", resource.path(namespace=namespace, name=name), body=encode(options))

    async def evict(
        self,
        name: str,
        *,
        namespace: str,
        grace_period_seconds: int | None = None,
        uid: str | None = None,
        dry_run: bool = False,
    ) -> None:
        """Ask for the eviction of a pod. A disruption budget that forbids it raises TooManyRequests at once."""
        body = encode(eviction(name, namespace, grace_period_seconds, uid=uid, dry_run=dry_run))
        path = PODS.path(namespace=namespace, name=name, subresource="eviction")
        # A budget's 429 is an answer for the caller to act on, so it is not waited out here.
        await self.request("POST", path, body=body, retries=0)

    def over(self, transport: Transport) -> "Client":
        """Return a client over another transport that shares this one's limits, discovery and observer."""
        other = Client(
            transport,
            clock=self.clock,
            rng=self.rng,
            timeout=self._timeout,
            cache_check=self.cache_check,
            observe=self._observe,
            announce=self._announce,
        )
        other.discovery, other._slots, other._bucket = self.discovery, self._slots, self._bucket
        other.answers = self.answers
        other._not_found = self._not_found
        return other

    @property
    def qps(self) -> float:
        """Return how many requests a second may be sent; 0 where only the server sets the pace."""
        return self._bucket.qps if self._bucket is not None else 0.0

    def announce(self, part: object) -> None:
        """Hand a part that works with this client to whoever shows the machinery of this process."""
        if self._announce is not None:
            self._announce(part)

    def on_not_found(self, heard: Callable[[str], None]) -> None:
        """Call a method with every path that the server does not know, for as long as its object is alive."""
        self._not_found.append(WeakMethod(heard))

    def _tell_not_found(self, path: str) -> None:
        for reference in list(self._not_found):
            heard = reference()
            if heard is None:
                self._not_found.remove(reference)
            else:
                heard(path)

    async def close(self) -> None:
        """Close the transport."""
        await self.transport.close()


def _worth_waiting(error: ApiError) -> bool:
    if error.status == 429:
        return True
    return error.status >= 500 and error.retry_after is not None and error.retry_after <= LONGEST_RETRY_AFTER
