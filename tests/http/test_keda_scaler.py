"""KEDA both ways over gRPC: node signals for ScaledObjects, and other scalers as external metrics."""

import asyncio
import base64
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio
import pytest
import yaml

from kubetide.api.objects.scheme import CONFIG_MAPS, SECRETS
from kubetide.metrics.core.readings import NodeReading, PodReading, Usage
from kubetide.metrics.keda_scaler import SERVICE, _call
from kubetide.metrics.protos import external_scaler_pb2 as pb
from metricsworld import CLOCK, MetricsWorld, make_pod, metrics_world, until

EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"


async def throttled(world: MetricsWorld, uid: str, ratio: float) -> None:
    """Have the agent of n-1 report how throttled `web-1` is."""
    usage, window = Usage(cpu_nanos=1, memory_bytes=1), timedelta(seconds=60)
    pod = PodReading(at=CLOCK.now(), window=window, containers={"web": usage}, uid=uid, signals=(ratio,))
    pods = {("default", "web-1"): pod}
    world.server.streams.keep(
        NodeReading(node="n-1", source="agent", at=CLOCK.now(), window=window, usage=usage, pods=pods)
    )


async def channel_to(world: MetricsWorld) -> grpc.aio.Channel:
    secret = await world.client.get_raw(SECRETS, "kubetide-metrics-certs", namespace="kube-system")
    trusted = grpc.ssl_channel_credentials(base64.b64decode(secret["data"]["caCert.pem"]))
    assert world.server.scaler is not None
    return grpc.aio.secure_channel(f"localhost:{world.server.scaler.port}", trusted)


async def test_keda_reads_signals_hears_of_changes_and_is_told_what_is_wrong() -> None:
    async with metrics_world(metric_resolution=timedelta(hours=1), keda_scaler_address="127.0.0.1:0") as world:
        uid = await make_pod(world.client, "web-1", "n-1", app="web")

        async def up() -> bool:
            here = world.server.view.pod("default", "web-1") is not None
            return here and world.server.scaler is not None and world.server.scaler.port > 0

        await until(up)
        await throttled(world, uid, 0.4)
        metadata = {"signal": "cpu_throttled_ratio", "selector": "app=web", "target": "0.2", "activation": "0.1"}
        ref = pb.ScaledObjectRef(name="web", namespace="default", scalerMetadata=metadata)
        async with await channel_to(world) as channel:
            spec = await _call(channel, "GetMetricSpec", ref, pb.GetMetricSpecResponse)
            assert (spec.metricSpecs[0].metricName, spec.metricSpecs[0].targetSizeFloat) == (
                "kubetide-cpu-throttled-ratio",
                0.2,
            )
            request = pb.GetMetricsRequest(scaledObjectRef=ref, metricName=spec.metricSpecs[0].metricName)
            answer = await _call(channel, "GetMetrics", request, pb.GetMetricsResponse)
            assert answer.metricValues[0].metricValueFloat == 0.4
            assert (await _call(channel, "IsActive", ref, pb.IsActiveResponse)).result
            stream: Any = channel.unary_stream(
                f"/{SERVICE}/StreamIsActive",
                request_serializer=pb.ScaledObjectRef.SerializeToString,
                response_deserializer=pb.IsActiveResponse.FromString,
            )(ref)
            async with asyncio.timeout(20):
                assert (await stream.read()).result
                await throttled(world, uid, 0.0)
                assert not (await stream.read()).result
            stream.cancel()
            for wrong, code in (
                (pb.ScaledObjectRef(scalerMetadata={"signal": "x"}), grpc.StatusCode.INVALID_ARGUMENT),
                (pb.ScaledObjectRef(namespace="empty", scalerMetadata=metadata), grpc.StatusCode.UNAVAILABLE),
            ):
                asked = pb.GetMetricsRequest(scaledObjectRef=wrong)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await _call(channel, "GetMetrics", asked, pb.GetMetricsResponse)
                assert refused.value.code() is code


async def test_scalers_of_others_are_external_metrics_and_fail_alone() -> None:
    async def metrics(payload: bytes, _: Any) -> bytes:
        asked = pb.GetMetricsRequest.FromString(payload)
        assert asked.scaledObjectRef.scalerMetadata["queue"] == "orders"
        value = pb.MetricValue(metricName=asked.metricName, metricValue=7)
        return pb.GetMetricsResponse(metricValues=[value]).SerializeToString()

    async def spec(_: bytes, __: Any) -> bytes:
        return pb.GetMetricSpecResponse(metricSpecs=[pb.MetricSpec(metricName="q")]).SerializeToString()

    handlers = {
        "GetMetrics": grpc.unary_unary_rpc_method_handler(metrics),
        "GetMetricSpec": grpc.unary_unary_rpc_method_handler(spec),
    }
    other = grpc.aio.server()
    other.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = other.add_insecure_port("127.0.0.1:0")
    await other.start()
    async with metrics_world(metric_resolution=timedelta(hours=1)) as world:
        declared = [
            {"metric": "queue-length", "address": f"127.0.0.1:{port}", "metadata": {"queue": "orders"}},
            {"metric": "gone", "address": "127.0.0.1:1", "timeout": "500ms"},
        ]
        data = {"scalers.yaml": yaml.safe_dump({"scalers": declared})}
        body = {"metadata": {"name": "kubetide-metrics-config"}, "data": data}
        await world.client.create(CONFIG_MAPS, body, namespace="kube-system")

        async def shown() -> Any:
            answer = await world.as_user(f"{EXTERNAL}/namespaces/default/queue-length", "root", "system:masters")
            return answer[1].get("items")

        (item,) = await until(shown)
        assert (item["metricName"], item["value"]) == ("queue-length", "7")
        status, _ = await world.as_user(f"{EXTERNAL}/namespaces/default/gone", "root", "system:masters")
        assert status == 503
    await other.stop(grace=0)
