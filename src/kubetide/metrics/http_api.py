"""The aggregated API over HTTP: who asks, whether they may, and the answer; nothing is read before both are known.

/readyz /livez /healthz          anybody
/apis…, /version, /metrics       callers that the API server lets read the path
/apis/GROUP/VERSION/…            callers that the API server lets read these metrics
/apis/kubetide.io/v1/samples     streams of agents (`agent_streams`)
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol

from aiohttp import web

from kubetide import __version__
from kubetide.api.objects.sample_frames import STREAM_PATH
from kubetide.api.values.codec import encode
from kubetide.api.values.media_types import ACCEPTED, wanted_form
from kubetide.errors import KubetideError
from kubetide.kube.endpoints import metrics_page
from kubetide.log import get_logger
from kubetide.metrics.authentication import Authenticator
from kubetide.metrics.authorization import Authorizer
from kubetide.metrics.core.discovery import group, group_list, resource_list
from kubetide.metrics.core.readings import NodeAlarms, NodeReading, PodKey, PodReading, Readings
from kubetide.metrics.core.requests import SIGNALS, USAGE, Question, parse_path
from kubetide.metrics.core.statuses import Refused, bad_request, forbidden, no_such_path, unauthorized, unavailable
from kubetide.metrics.signals_api import ALARMED, HEARTBEAT_LINE, SignalsApi
from kubetide.metrics.usage_api import UsageApi
from kubetide.telemetry import Telemetry

log = get_logger("metrics")

JSON = "application/json"
LONGEST_WATCH = 1800.0
MOST_WAITING = 16384
"""Readings that may wait for a slow watcher: one of every node, and more."""
HEARTBEAT = 10.0
"""Seconds after which a watch that has nothing to say says so: no alarm and no server are two things."""
VIA = "X-Kubetide-Via"
"""Which fronts a question has passed through, so that it never goes round in circles."""


class ValuesApi(Protocol):
    """Who answers for a group of metrics beyond usage."""

    async def names(self, via: str) -> Mapping[str, bool]:
        """Return the metrics that can be asked for, and whether each is namespaced."""
        ...

    async def answer(self, question: Question, query: Mapping[str, str], via: str) -> bytes:
        """Return the answer as JSON; raises Refused. `via` says which fronts the question came through."""
        ...


class StreamHandler(Protocol):
    """Takes the streams of agents."""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Read a stream to its end."""
        ...


class HttpApi:
    """The routes of the metrics server."""

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        usage: UsageApi,
        signals: SignalsApi,
        readings: Readings,
        telemetry: Telemetry,
        *,
        ready: Callable[[], bool],
        values: Mapping[str, ValuesApi],
        streams: StreamHandler | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._usage = usage
        self._signals = signals
        self._readings = readings
        self._telemetry = telemetry
        self._ready = ready
        self._values = values
        self._streams = streams
        self._groups = (USAGE, *values)
        self._requests = telemetry.counts(
            "kubetide_metrics_requests_total", "Requests to the metrics APIs.", ("group", "resource", "code")
        )

    def application(self) -> web.Application:
        """Return the routes."""
        app = web.Application()
        for path in ("/readyz", "/livez", "/healthz"):
            app.router.add_get(path, self._health)
        if self._streams is not None:
            app.router.add_get(STREAM_PATH, self._streams.serve)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        fine = request.path != "/readyz" or self._ready()
        return web.Response(status=200 if fine else 503, text="ok" if fine else "not yet")

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        question = parse_path(request.rel_url.raw_path)
        if question is not None and question.group not in self._groups:
            question = None
        group_name, resource = (question.group, question.resource) if question is not None else ("", "")
        try:
            response: web.StreamResponse = await self._answered(request, question)
        except Refused as refusal:
            response = _refused(refusal)
        except KubetideError as error:
            # The API server cannot be asked who this is: nobody is let in, and nobody is called forbidden for it.
            log.warning("request not answered", path=request.path, error=str(error))
            response = _refused(unavailable(f"cannot be answered now: {error}"))
        # Of external metrics, which anybody may name at will, only the group is counted.
        self._requests.add(group_name, resource if group_name == USAGE else "", str(response.status))
        return response

    async def _answered(self, request: web.Request, question: Question | None) -> web.StreamResponse:
        user = await self._authenticator.user_of(request)
        if user is None:
            raise unauthorized()
        if question is None or not question.resource:
            if not await self._authorizer.allows_path(user, request.path):
                raise forbidden(user.name, {}, request.path)
            return await self._described(request, question)
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        watched = question.group == USAGE and request.query.get("watch") in ("true", "1")
        attributes = {**question.attributes(), **({"verb": "watch"} if watched else {})}
        if not await self._authorizer.allows(user, attributes):
            raise forbidden(user.name, attributes)
        if watched:
            return await self._watched(request, question)
        return web.Response(body=await self._answer(request, question), content_type=JSON)

    async def _answer(self, request: web.Request, question: Question) -> bytes:
        query = dict(request.query)
        if question.resource == SIGNALS and question.group == USAGE:
            return self._signals.answer(question, query)
        if question.group == USAGE:
            return self._usage.answer(question, query, request.headers.get("Accept", ""))
        return await self._values[question.group].answer(question, query, request.headers.get(VIA, ""))

    async def _watched(self, request: web.Request, question: Question) -> web.StreamResponse:
        """Send what changes until the caller's time is over; a slow reader loses the oldest of it."""
        if question.resource not in ("pods", SIGNALS) or question.name:
            raise Refused(405, "MethodNotAllowed", "only lists of pods and of their signals can be watched")
        if question.resource == SIGNALS and request.query.get("fieldSelector") != ALARMED:
            raise bad_request(f"signals are watched with fieldSelector={ALARMED}")
        try:
            seconds = min(float(request.query.get("timeoutSeconds", LONGEST_WATCH)), LONGEST_WATCH)
        except ValueError:
            raise bad_request("timeoutSeconds is not a number") from None
        waiting: deque[Callable[[], list[bytes]]] = deque(maxlen=MOST_WAITING)
        news = asyncio.Event()

        def tell(lines: Callable[[], list[bytes]]) -> None:
            waiting.append(lines)
            news.set()

        response = web.StreamResponse(headers={"Content-Type": JSON})
        await response.prepare(request)
        with self._hearing(question, tell), suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(seconds):
                while True:
                    if question.resource == SIGNALS and not waiting:
                        with suppress(TimeoutError):
                            async with asyncio.timeout(HEARTBEAT):
                                await news.wait()
                        if not waiting:
                            await response.write(HEARTBEAT_LINE)
                    else:
                        await news.wait()
                    news.clear()
                    while waiting:
                        # In one piece: each write is a record of its own under TLS, here and behind the API server.
                        if lines := waiting.popleft()():
                            await response.write(b"".join(lines))
        return response

    @contextmanager
    def _hearing(self, question: Question, tell: Callable[[Callable[[], list[bytes]]], None]) -> Iterator[None]:
        """Have the lines of a watch told, made when they are sent, while the block lasts."""
        namespace = question.namespace
        if question.resource == SIGNALS:

            def hear_alarms(now: NodeAlarms, before: NodeAlarms | None) -> None:
                tell(partial(self._signals.changes, now, before, namespace))

            tell(partial(self._signals.opening, namespace))
            self._readings.alarmed.append(hear_alarms)
            try:
                yield
            finally:
                self._readings.alarmed.remove(hear_alarms)
            return
        sent: dict[PodKey, PodReading] = {}

        def hear(reading: NodeReading) -> None:
            tell(partial(self._usage.changes, reading, namespace, sent))

        self._readings.heard.append(hear)
        try:
            yield
        finally:
            self._readings.heard.remove(hear)

    async def _described(self, request: web.Request, question: Question | None) -> web.Response:
        """Answer what is served here, and nothing else."""
        if request.method not in ("GET", "HEAD"):
            raise no_such_path()
        if question is not None:
            via = request.headers.get(VIA, "")
            names = {} if question.group == USAGE else await self._values[question.group].names(via)
            return _json(resource_list(question.group, question.version, names))
        parts = request.path.strip("/").split("/")
        if parts == ["apis"]:
            if wanted_form(request.headers.get("Accept", "")) is None:
                # An API server that asks for the aggregated form of discovery alone then asks for the legacy one.
                raise Refused(406, "NotAcceptable", ACCEPTED)
            return _json(group_list(self._groups))
        if len(parts) == 2 and parts[0] == "apis" and parts[1] in self._groups:
            return _json(group(parts[1]))
        if parts == ["version"]:
            return _json({"major": "1", "minor": "0", "gitVersion": f"v{__version__}"})
        if parts == ["metrics"]:
            return metrics_page(self._telemetry, request)
        raise no_such_path()


def _json(obj: object) -> web.Response:
    return web.Response(body=encode(obj), content_type=JSON)


def _refused(refusal: Refused) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if refusal.code == 401 else {}
    return web.Response(status=refusal.code, body=encode(refusal.to_raw()), content_type=JSON, headers=headers)
