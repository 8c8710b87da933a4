"""An HTTPS server for admission reviews, whose certificate may be replaced while it runs (`kube.server_tls`)."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from aiohttp import web

from kubetide.api.objects.admission import AdmissionReview, review_response
from kubetide.api.values.codec import decode, encode
from kubetide.errors import DecodeError
from kubetide.kube.client.tls import Certificate
from kubetide.kube.connections import ConnectionLimits
from kubetide.kube.listener import listening
from kubetide.kube.server_tls import ServerTls
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry

log = get_logger("webhook")

LocalHook = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
ReviewHandler = Callable[[AdmissionReview], Awaitable[dict[str, Any]]]
Stopwatch = Callable[[str], AbstractContextManager[object]]
"""Measures what happens inside of it, by the name of a step."""
TOTAL = "total"
WRITE_RESPONSE = "write_response"

# Twice the size of the largest object that etcd takes, old and new one in a review.
REVIEW_LIMIT = 8 * 1024 * 1024


class LocalWebhooks(Protocol):
    """Where an embedded API server takes webhooks that are functions."""

    def register_local(self, name: str, hook: LocalHook) -> None:
        """Let `local://NAME` call a function."""
        ...


class WebhookServer:
    """Serves review handlers by path, with the certificate that its files hold now."""

    def __init__(
        self,
        handlers: Mapping[str, ReviewHandler],
        *,
        certificate: Certificate,
        host: str = "0.0.0.0",
        port: int = 8000,
        reload_interval: timedelta = timedelta(seconds=10),
        min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        ciphers: str = "",
        client_ca: str = "",
        name: str = "webhook",
        stopwatch: Stopwatch = nullcontext,
        limits: ConnectionLimits | None = None,
        telemetry: Telemetry | None = None,
        body_limit: int = REVIEW_LIMIT,
        too_large: Callable[[], None] = lambda: None,
    ) -> None:
        """A body above `body_limit` bytes is answered with 413, and `too_large` is called."""
        self.name = name
        self._body_limit = body_limit
        self._too_large = too_large
        self.port = port
        self._handlers = dict(handlers)
        self._stopwatch = stopwatch
        self.tls = ServerTls(
            certificate,
            name=name,
            min_version=min_version,
            ciphers=ciphers,
            client_ca=lambda: client_ca,
            telemetry=telemetry,
        )
        self._host = host
        self._interval = reload_interval.total_seconds()
        # Checked here instead, after the content type, so that what is refused is also counted.
        self._limits = replace(limits or ConnectionLimits(), body_bytes=None)
        self._serving = False

    def ready(self) -> bool:
        """Whether it accepts reviews."""
        return self._serving

    def healthy(self) -> bool:
        """Whether it should be left alone."""
        return True

    async def run(self) -> None:
        """Serve until cancelled; requests in flight are answered before it returns."""
        self.tls.load()
        app = web.Application(client_max_size=self._body_limit)
        for path, handler in self._handlers.items():
            app.router.add_post(path, _answering(handler, self._stopwatch, self._body_limit, self._too_large))
        runner = self._limits.runner(app)
        async with listening(runner, self._host, self.port, tls=self.tls.context, limits=self._limits) as self.port:
            self._serving = True
            log.info("serving", server=self.name, port=self.port)
            try:
                while True:
                    await asyncio.sleep(self._interval)
                    self.tls.reload()
            finally:
                self._serving = False


def _answering(
    handler: ReviewHandler, stopwatch: Stopwatch, limit: int, too_large: Callable[[], None]
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        with stopwatch(TOTAL):
            try:
                response = await _answer(request, handler, limit)
            except web.HTTPRequestEntityTooLarge:
                log.warning("admission review too large", path=request.path, bytes=request.content_length)
                too_large()
                raise
            with stopwatch(WRITE_RESPONSE):
                await _write(request, response)
        return response

    return answer


async def _answer(request: web.Request, handler: ReviewHandler, limit: int) -> web.Response:
    if (request.content_length or 0) > limit:
        # Before anything of it is read.
        raise web.HTTPRequestEntityTooLarge(limit, request.content_length or 0)
    if request.headers.get("Content-Type") != "application/json":
        log.warning("not an admission review", path=request.path, content=request.headers.get("Content-Type", ""))
        return web.Response()
    try:
        review = decode(await request.read(), AdmissionReview, what="AdmissionReview")
    except DecodeError as error:
        log.warning("unreadable admission review", path=request.path, error=str(error))
        review = AdmissionReview()
    if review.request is None:
        # Allowed, but for no request: an API server takes it as a failure and does what its failurePolicy says.
        return web.Response(body=encode(review_response("")), content_type="application/json")
    try:
        reply = await handler(review)
    except Exception as error:
        log.exception("review failed", path=request.path)
        # Not a rejection: the failurePolicy of the webhook's configuration decides what this means for the request.
        return web.Response(status=500, text=str(error))
    return web.Response(body=encode(reply), content_type="application/json")


async def _write(request: web.Request, response: web.Response) -> None:
    """Hand the whole answer to the transport and wait until it takes more; a caller that left is no error."""
    try:
        await response.prepare(request)
        await response.write_eof()
    except ConnectionError as error:
        log.debug("the caller did not wait for its answer", path=request.path, error=str(error))
