"""Streams of node agents: a WebSocket each, authenticated by the agent's token and bound to the node it was made for.

An agent reports for its own node and for no other: the node is read off its token (`core.identity.bound_node`), never
off what it sends, and pods count only where the cluster says that they run there (`usage_api`). Whoever sends needs the
permission to create `samples.kubetide.io`. A stream ends after half an hour, so that an identity that was taken back
does not live on in a connection, and at once with the first frame that breaks a rule (`core.frames`).
"""

import asyncio
import random

from aiohttp import WebSocketError, WSCloseCode, WSMsgType, web

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.sample_frames import (
    FRAME_LIMIT,
    STREAM_AUDIENCE,
    STREAM_GROUP,
    STREAM_PROTOCOL,
    STREAM_RESOURCE,
    STREAM_VERB,
)
from kubetide.api.values.codec import encode
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.log import Throttle, get_logger
from kubetide.metrics.authentication import Authenticator
from kubetide.metrics.authorization import Authorizer
from kubetide.metrics.cluster_view import ClusterView
from kubetide.metrics.core.frames import FrameRefused, SampleStream
from kubetide.metrics.core.identity import bound_node
from kubetide.metrics.core.readings import NodeAlarms, NodeReading, Readings
from kubetide.metrics.core.statuses import Refused, forbidden, unauthorized, unavailable
from kubetide.telemetry import Telemetry

log = get_logger("metrics.streams")

LIFETIME_SECONDS = 1800.0
SILENCE_SECONDS = 150.0
"""Longer than the longest window: an agent that says nothing for so long is asked to connect again."""
_SEND = {"group": STREAM_GROUP, "resource": STREAM_RESOURCE, "verb": STREAM_VERB}


class AgentStreams:
    """Takes frames and keeps what they say."""

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        view: ClusterView,
        readings: Readings,
        clock: Clock,
        telemetry: Telemetry,
        rng: random.Random,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._view = view
        self._readings = readings
        self._clock = clock
        self._rng = rng
        self._complaints = Throttle()
        self._frames = telemetry.counts(
            "kubetide_metrics_frames_total",
            "Frames of agents by what became of them: kept, repeated, late, or refused by the rule named.",
            ("result",),
        )
        self._open = telemetry.gauge("kubetide_metrics_streams", "Streams of agents that are open.")

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Read a stream to its end."""
        try:
            node = await self._admitted(request)
        except Refused as refusal:
            return web.Response(status=refusal.code, body=encode(refusal.to_raw()), content_type="application/json")
        socket = web.WebSocketResponse(
            protocols=(STREAM_PROTOCOL,),
            max_msg_size=FRAME_LIMIT,
            receive_timeout=SILENCE_SECONDS,
            compress=False,
            timeout=1.0,
        )
        try:
            await socket.prepare(request)
        except ConnectionResetError:
            # Gone while it was asked who it is; it comes again by itself.
            return web.Response(status=400)
        log.debug("stream opened", node=node)
        self._open.inc()
        try:
            lifetime = LIFETIME_SECONDS * self._rng.uniform(0.75, 1.0)
            async with asyncio.timeout(lifetime):
                await self._read(socket, SampleStream(node))
        except TimeoutError:
            await socket.close(code=1001, message=b"connect again")
        finally:
            self._open.dec()
            log.debug("stream closed", node=node)
        return socket

    async def _admitted(self, request: web.Request) -> str:
        """Return the node that the stream is of; raises Refused."""
        try:
            user = await self._authenticator.bearer(request, (STREAM_AUDIENCE,))
            if user is None:
                raise unauthorized()
            if not await self._authorizer.allows(user, _SEND):
                raise forbidden(user.name, _SEND)
        except KubetideError as error:
            if isinstance(error, Refused):
                raise
            raise unavailable(f"cannot be answered now: {error}") from error
        node = bound_node(user, self._node_of_pod)
        if not node or ObjectKey("", node) not in self._view.nodes.store:
            message = f'User "{user.name}": the token is not bound to a node of this cluster'
            raise Refused(403, "Forbidden", message)
        return node

    def _node_of_pod(self, namespace: str, name: str, uid: str) -> str:
        pod = self._view.pod(namespace, name)
        return pod.spec.node_name if pod is not None and pod.metadata.uid == uid else ""

    async def _read(self, socket: web.WebSocketResponse, stream: SampleStream) -> None:
        async for message in socket:
            if message.type is WSMsgType.ERROR:
                # The connection broke, or a message was so long that it was not read to its end.
                if isinstance(message.data, WebSocketError) and message.data.code == WSCloseCode.MESSAGE_TOO_BIG:
                    self._refuse(stream.node, FrameRefused("size", f"more than {FRAME_LIMIT} bytes"))
                return
            if message.type is not WSMsgType.BINARY:
                await socket.close(code=1003, message=b"frames are binary")
                return
            try:
                reading = stream.take(message.data, arrived=self._clock.now())
            except FrameRefused as error:
                self._refuse(stream.node, error)
                await socket.close(code=1008, message=str(error).encode()[:120])
                return
            self.keep(reading)

    def keep(self, reading: NodeReading | NodeAlarms | None) -> None:
        """Keep a reading or alarms; None stands for a frame that was seen before or waited too long."""
        if reading is None:
            self._frames.add("repeated or late")
        elif isinstance(reading, NodeAlarms):
            self._frames.add("kept" if self._readings.take_alarms(reading) else "late")
        elif self._readings.take(reading, now=self._clock.now()):
            self._frames.add("kept")
        else:
            self._frames.add("late")

    def _refuse(self, node: str, error: FrameRefused) -> None:
        self._frames.add(f"refused: {error.rule}")
        held_back = self._complaints.admit(self._clock.monotonic())
        if held_back is not None:
            log.warning("frame refused, stream ends", node=node, error=str(error), unreported=held_back)
