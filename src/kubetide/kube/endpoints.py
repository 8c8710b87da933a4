"""What a running component shows: metrics, health, readiness, and why it decided as it did.

    /metrics                              kubetide's own telemetry, in the Prometheus text format
    /healthz, /health-check               200 while no component asks for a restart
    /readyz                               200 once everything does its work
    /explain/{kind}/[{namespace}/]{name}  the last decisions about an object with their traces, read-only

Below the verdict, health and readiness carry what components have to report, a line each: the first line is for probes,
the rest for people, and since anybody may ask, it names no object. A trace shows what a namespace runs, so `/explain`
answers on loopback, or to who shows the bearer token given.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from kubetide.api.values.codec import encode
from kubetide.kube.connections import ConnectionLimits
from kubetide.kube.listener import listening
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry

log = get_logger("endpoints")


class Endpoints:
    """The HTTP server beside a controller."""

    metrics_in_parts: tuple[str, ...] = ("/internal-metrics", "/external-metrics")
    """Koordinator serves its own metrics in parts; each of the paths has all here, so that existing scrape
    configurations find what they look for."""

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        healthy: Callable[[], bool],
        ready: Callable[[], bool],
        explain: Callable[[str, str], dict[str, Any] | None] | None = None,
        host: str = "0.0.0.0",
        port: int = 8080,
        explain_token: str = "",
        notes: Callable[[], Sequence[str]] = tuple,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.name = "endpoints"
        self.port = port
        self._telemetry = telemetry
        self._healthy = healthy
        self._ready = ready
        self._explain = explain
        self._notes = notes
        self.host = host
        self._explain_token = explain_token
        self._limits = limits or ConnectionLimits()
        self._serving = False

    def ready(self) -> bool:
        """Whether it answers."""
        return self._serving

    def healthy(self) -> bool:
        """Whether it should be left alone."""
        return True

    def application(self) -> web.Application:
        """Return the routes, for serving elsewhere."""
        app = web.Application()
        for path in ("/metrics", "/all-metrics", *self.metrics_in_parts):
            app.router.add_get(path, self._metrics)
        app.router.add_get("/healthz", self._check(self._healthy))
        app.router.add_get("/livez", self._check(self._healthy))
        app.router.add_get("/health-check", self._checked)
        app.router.add_get("/readyz", self._check(self._ready))
        app.router.add_get("/explain/{kind}/{name}", self._explained)
        app.router.add_get("/explain/{kind}/{namespace}/{name}", self._explained)
        return app

    async def run(self) -> None:
        """Serve until cancelled."""
        runner = self._limits.runner(self.application())
        async with listening(runner, self.host, self.port, limits=self._limits) as self.port:
            self._serving = True
            log.info("serving", port=self.port)
            try:
                await asyncio.Event().wait()
            finally:
                self._serving = False

    async def _metrics(self, request: web.Request) -> web.Response:
        return metrics_page(self._telemetry, request)

    def _check(self, passes: Callable[[], bool]) -> Callable[[web.Request], Any]:
        async def answer(_: web.Request) -> web.Response:
            fine = passes()
            lines = ["ok" if fine else "not yet", *self._notes()]
            return web.Response(status=200 if fine else 503, text="\n".join(lines))

        return answer

    async def _checked(self, _: web.Request) -> web.Response:
        """Answer the health check of the vertical autoscaler in its words."""
        if self._healthy():
            return web.Response(text="OK")
        return web.Response(status=500, text="Error: last activity is too long ago")

    async def _explained(self, request: web.Request) -> web.Response:
        if (refusal := self.refuse(request)) is not None:
            return refusal
        parts = request.match_info
        key = f"{parts['namespace']}/{parts['name']}" if "namespace" in parts else parts["name"]
        answer = self._explain(parts["kind"], key) if self._explain is not None else None
        if answer is None:
            return web.Response(status=404, text=f"nothing is known about {parts['kind']} {key}")
        return web.Response(body=encode(answer), content_type="application/json")

    def refuse(self, request: web.Request) -> web.Response | None:
        """Return the answer that refuses a request for what not everybody may read, or None if this one may."""
        presented = request.headers.get("Authorization", "")
        if self._explain_token and hmac.compare_digest(presented.encode(), f"Bearer {self._explain_token}".encode()):
            return None
        if is_loopback(request.remote):
            return None
        status, challenge = (403, {}) if presented else (401, {"WWW-Authenticate": "Bearer"})
        return web.Response(status=status, headers=challenge, text="answers on loopback, or to its bearer token")


def metrics_page(
    telemetry: Telemetry, request: web.Request, wanted: Callable[[str], bool] | None = None
) -> web.Response:
    """Answer a scraper in the format it asks for."""
    body, form = telemetry.page(request.headers.get("Accept", ""), wanted)
    return web.Response(body=body, headers={"Content-Type": form})


def is_loopback(address: str | None) -> bool:
    """Return whether a peer's address is of this machine."""
    try:
        return address is not None and ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
