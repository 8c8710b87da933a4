"""KEDA, both ways: an external scaler that offers signals and forecasts, and a client of the scalers of others.

Needs the extra `agent` (gRPC). The scaler shows the certificate of the metrics server. With a client CA it answers
nobody else; without one, whoever reaches its port may read signals of pods, and no more than those.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio

from kubetide.api.objects.metrics_answers import number_text
from kubetide.clock import Clock
from kubetide.errors import KubetideError, Unavailable
from kubetide.kube.client.tls import Certificate
from kubetide.kube.connections import ConnectionLimits
from kubetide.log import get_logger
from kubetide.metrics.answer_cache import AnswerCache
from kubetide.metrics.cluster_view import ClusterView
from kubetide.metrics.core.readings import Readings
from kubetide.metrics.core.requests import EXTERNAL, Question
from kubetide.metrics.core.scaler_triggers import FORECAST, Scaler, Scalers, Trigger, read_trigger
from kubetide.metrics.core.usage_forecasts import ForecastKey
from kubetide.metrics.forecast_source import CpuForecasts
from kubetide.metrics.protos import external_scaler_pb2 as pb

log = get_logger("metrics.keda")

SERVICE = "externalscaler.ExternalScaler"
LOOK_SECONDS = 1.0
"""How often a stream looks whether its signal has crossed the line."""
CACHED = timedelta(seconds=5)
Raw = dict[str, Any]


class SignalScaler:
    """Serves KEDA's protocol."""

    def __init__(
        self,
        view: ClusterView,
        readings: Readings,
        forecasts: CpuForecasts,
        clock: Clock,
        *,
        address: str,
        certificate: Certificate,
        client_ca: str = "",
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._view = view
        self._readings = readings
        self._forecasts = forecasts
        self._clock = clock
        self._address = address
        self._certificate = certificate
        self._client_ca = client_ca
        self._limits = limits or ConnectionLimits()
        self.port = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        server = grpc.aio.server(options=self._limits.grpc_options())
        server.add_generic_rpc_handlers((_Calls(self),))
        self.port = server.add_secure_port(self._address, self._credentials())
        await server.start()
        log.info("serving", server="keda-scaler", port=self.port)
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop(grace=1.0)

    def trigger(self, ref: pb.ScaledObjectRef) -> Trigger:
        """Read what a ScaledObject asks for."""
        return read_trigger(dict(ref.scalerMetadata))

    def value(self, ref: pb.ScaledObjectRef, trigger: Trigger) -> float | None:
        """Return the signal over the pods of the ScaledObject's namespace that report it."""
        if trigger.signal == FORECAST:
            key = ForecastKey(ref.namespace, str(trigger.selector), trigger.lead)
            total, pods = self._forecasts.ask(key), len(self._forecasts.usage(key))
            if total is None or not pods:
                return None
            return total if trigger.aggregate == "sum" else total / pods
        now = self._clock.now()
        found = []
        for pod in self._view.pods.store.in_namespace(ref.namespace):
            meta = pod.metadata
            if trigger.selector.matches(meta.labels):
                reading = self._readings.pod(pod.spec.node_name, (meta.namespace, meta.name), meta.uid, now=now)
                signal = reading.signal(trigger.signal) if reading is not None else None
                if signal is not None:
                    found.append(signal)
        return trigger.value(found)

    def active(self, ref: pb.ScaledObjectRef, trigger: Trigger) -> bool:
        """Return whether the signal is above the line; what is not known activates nothing."""
        value = self.value(ref, trigger)
        return value is not None and value > trigger.activation

    def _credentials(self) -> grpc.ServerCredentials:
        """Return credentials that follow the certificate's files."""

        def current() -> grpc.ServerCertificateConfiguration:
            pair = (self._certificate.key.read().encode(), self._certificate.certificate.read().encode())
            return grpc.ssl_server_certificate_configuration(
                [pair], root_certificates=self._client_ca.encode() if self._client_ca else None
            )

        return grpc.dynamic_ssl_server_credentials(
            current(), current, require_client_authentication=bool(self._client_ca)
        )


class _Calls(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not subscriptable at run time
    """Routes the four calls."""

    def __init__(self, scaler: SignalScaler) -> None:
        self._scaler = scaler

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        match handler_call_details.method.removeprefix(f"/{SERVICE}/"):
            case "IsActive":
                return _unary(self._is_active, pb.ScaledObjectRef)
            case "GetMetricSpec":
                return _unary(self._spec, pb.ScaledObjectRef)
            case "GetMetrics":
                return _unary(self._metrics, pb.GetMetricsRequest)
            case "StreamIsActive":
                return grpc.unary_stream_rpc_method_handler(self._stream)
        return None

    def _is_active(self, ref: pb.ScaledObjectRef) -> pb.IsActiveResponse:
        return pb.IsActiveResponse(result=self._scaler.active(ref, self._scaler.trigger(ref)))

    def _spec(self, ref: pb.ScaledObjectRef) -> pb.GetMetricSpecResponse:
        trigger = self._scaler.trigger(ref)
        # Older KEDA reads the whole number only, where less than one would be no target at all.
        whole = max(1, round(trigger.target))
        spec = pb.MetricSpec(metricName=trigger.metric, targetSize=whole, targetSizeFloat=trigger.target)
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    def _metrics(self, request: pb.GetMetricsRequest) -> pb.GetMetricsResponse:
        trigger = self._scaler.trigger(request.scaledObjectRef)
        value = self._scaler.value(request.scaledObjectRef, trigger)
        if value is None:
            raise Unavailable(f"no pod reports {trigger.signal}")
        one = pb.MetricValue(metricName=trigger.metric, metricValue=round(value), metricValueFloat=value)
        return pb.GetMetricsResponse(metricValues=[one])

    async def _stream(self, payload: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            ref = pb.ScaledObjectRef.FromString(payload)
            trigger = self._scaler.trigger(ref)
        except KubetideError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        last: bool | None = None
        while True:
            active = self._scaler.active(ref, trigger)
            if active != last:
                last = active
                yield pb.IsActiveResponse(result=active).SerializeToString()
            await asyncio.sleep(LOOK_SECONDS)


def _unary(answer: Callable[[Any], Any], kind: Any) -> Any:
    async def handle(payload: bytes, context: Any) -> bytes:
        try:
            body: bytes = answer(kind.FromString(payload)).SerializeToString()
        except Unavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except KubetideError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return body

    return grpc.unary_unary_rpc_method_handler(handle)


class ExternalScalers:
    """A source of external metrics: external scalers that a ConfigMap declares."""

    name = "external scalers"

    def __init__(self, clock: Clock, scalers: Callable[[], Scalers]) -> None:
        self._scalers = scalers
        self._values: AnswerCache[list[Raw]] = AnswerCache(clock, lambda _: CACHED, most=1024)
        self._clock = clock

    async def names(self, group: str, via: str) -> Mapping[str, bool]:
        """Return the metrics that scalers stand for."""
        return dict.fromkeys(self._scalers().by_metric, True) if group == EXTERNAL else {}

    async def values(self, question: Question, query: Mapping[str, str], via: str) -> list[Raw] | None:
        """Ask the scaler of a metric on behalf of the namespace."""
        scaler = self._scalers().by_metric.get(question.metric) if question.group == EXTERNAL else None
        if scaler is None:
            return None
        asked = (scaler.metric, scaler.address, question.namespace)
        return await self._values.get(asked, lambda: self._ask(scaler, question.namespace))

    async def _ask(self, scaler: Scaler, namespace: str) -> list[Raw]:
        ref = pb.ScaledObjectRef(name=scaler.metric, namespace=namespace, scalerMetadata=dict(scaler.metadata))
        trusted = grpc.ssl_channel_credentials(scaler.ca.encode()) if scaler.ca else None
        opened = (
            grpc.aio.secure_channel(scaler.address, trusted) if trusted else grpc.aio.insecure_channel(scaler.address)
        )
        seconds = scaler.timeout.total_seconds()
        try:
            async with asyncio.timeout(seconds), opened as channel:
                specs = await _call(channel, "GetMetricSpec", ref, pb.GetMetricSpecResponse)
                name = specs.metricSpecs[0].metricName if specs.metricSpecs else scaler.metric
                request = pb.GetMetricsRequest(scaledObjectRef=ref, metricName=name)
                answer = await _call(channel, "GetMetrics", request, pb.GetMetricsResponse)
        except TimeoutError as error:
            raise Unavailable(f"{scaler.address} does not answer within {seconds:g} s") from error
        except grpc.aio.AioRpcError as error:
            raise Unavailable(f"{scaler.address} answers {error.code().name}: {error.details()}") from error
        stamp = f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}"
        return [
            {
                "metricName": scaler.metric,
                "metricLabels": {},
                "timestamp": stamp,
                "value": number_text(one.metricValueFloat or one.metricValue),
            }
            for one in answer.metricValues[:1]
        ]


async def _call(channel: grpc.aio.Channel, method: str, request: Any, kind: Any) -> Any:
    call = channel.unary_unary(
        f"/{SERVICE}/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=kind.FromString,
    )
    return await call(request)
