"""The agent's HTTP side: metrics, health and explanations like every component, and the audit log under `/events`.

GET /external-metrics, /internal-metrics   about the node and its pods, and about the agent itself; /metrics has both
GET /events?size=&pageToken=     newest first; JSON when asked for exactly that, else one event a line
400 for a size that is too large or negative, 409 for a token that is unknown or has expired

The audit log names pods and what was done to them, so it answers like `/explain`: on loopback, or to the bearer token.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from aiohttp import web

from kubetide.api.values.codec import encode
from kubetide.errors import InvalidInput
from kubetide.kube.connections import ConnectionLimits
from kubetide.kube.endpoints import Endpoints, metrics_page
from kubetide.node.executor.audit_log import DEFAULT_PAGE, UnknownToken
from kubetide.node.telemetry import is_internal
from kubetide.telemetry import Telemetry


class AuditQueries(Protocol):
    """What `/events` asks: the audit log of one agent, or of several in one process."""

    async def query(self, size: int, token: str) -> tuple[list[dict[str, Any]], str]:
        """Return events, newest first, and the token of the next page (empty at the end)."""
        ...


class NodeEndpoints(Endpoints):
    """Endpoints with the audit log."""

    metrics_in_parts = ()  # the agent has real parts

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        audit: AuditQueries | None,
        healthy: Callable[[], bool],
        ready: Callable[[], bool],
        explain: Callable[[str, str], dict[str, Any] | None] | None = None,
        host: str = "0.0.0.0",
        port: int = 9316,
        explain_token: str = "",
        notes: Callable[[], Sequence[str]] = tuple,
        limits: ConnectionLimits | None = None,
    ) -> None:
        super().__init__(
            telemetry,
            healthy=healthy,
            ready=ready,
            explain=explain,
            host=host,
            port=port,
            explain_token=explain_token,
            notes=notes,
            limits=limits,
        )
        self._audit = audit

    def application(self) -> web.Application:
        """Return the routes."""
        app = super().application()
        app.router.add_get("/external-metrics", self._some_metrics(lambda name: not is_internal(name)))
        app.router.add_get("/internal-metrics", self._some_metrics(is_internal))
        if self._audit is not None:
            app.router.add_get("/events", self._events)
        return app

    def _some_metrics(self, wanted: Callable[[str], bool]) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            return metrics_page(self._telemetry, request, wanted)

        return answer

    async def _events(self, request: web.Request) -> web.Response:
        assert self._audit is not None
        if (refusal := self.refuse(request)) is not None:
            return refusal
        try:
            size = int(request.query.get("size", DEFAULT_PAGE))
        except ValueError:
            size = DEFAULT_PAGE
        try:
            events, token = await self._audit.query(size, request.query.get("pageToken", ""))
        except InvalidInput as error:
            return web.Response(status=400, text=str(error))
        except UnknownToken as error:
            return web.Response(status=409, text=str(error))
        if "application/json" in request.headers.getall("Accept", []):
            return web.Response(
                body=encode({"NextPageToken": token, "Events": events}), content_type="application/json"
            )
        headers = {"Next-Page-Token": token} if token else {}
        lines = b"".join(encode(event) + b"\n" for event in events)
        return web.Response(body=lines, content_type="text/plain", headers=headers)
