"""Custom and external metrics: node signals, Prometheus rules, and other servers behind the front."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import yaml
from aiohttp import web

from kubetide.api.objects.scheme import CONFIG_MAPS
from kubetide.kube.client.certificates import issue, make_ca
from kubetide.kube.client.tls import load_identity
from kubetide.kube.listener import listening
from kubetide.metrics.core.readings import NodeReading, PodReading, Usage
from kubetide.metrics.core.usage_forecasts import WARM_UP, ForecastKey
from metricsworld import CLOCK, MetricsWorld, make_pod, metrics_world, pems, until

CUSTOM, EXTERNAL = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"
QUIET = {"metric_resolution": timedelta(hours=1)}
MASTERS = "system:masters"
RULES = {
    "rules": [
        {
            "seriesQuery": "http_requests_total",
            "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
            "name": {"matches": "^(.*)_total$", "as": "${1}_per_second"},
            "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
        }
    ],
    "externalRules": [
        {"seriesQuery": "queue_length", "metricsQuery": "max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"}
    ],
}


class FakePrometheus:
    """Answers every query with the same vector."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.down = False
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FakePrometheus"]:
        """Serve while the block lasts."""
        app = web.Application()
        app.router.add_post("/api/v1/series", self._series)
        app.router.add_post("/api/v1/query", self._query)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        async with listening(runner, "127.0.0.1", 0) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self

    async def _series(self, request: web.Request) -> web.Response:
        wanted = (await request.post())["match[]"]
        labels = {"namespace": "default", "pod": "web-1"} if wanted == "http_requests_total" else {"queue": "orders"}
        return web.json_response({"status": "success", "data": [{"__name__": wanted, **labels}]})

    async def _query(self, request: web.Request) -> web.Response:
        if self.down:
            return web.json_response({"status": "error", "error": "too busy"}, status=503)
        query = str((await request.post())["query"])
        self.queries.append(query)
        labels = {"pod": "web-1"} if "http" in query else {"queue": "orders"}
        nan = {"metric": {"pod": "web-9"}, "value": [1700000000, "NaN"]}
        result = [{"metric": labels, "value": [1700000000, "2.5"]}, nan]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


async def declare(world: MetricsWorld, **files: Any) -> None:
    data = {name.replace("_", "."): yaml.safe_dump(content) for name, content in files.items()}
    body = {"metadata": {"name": "kubetide-metrics-config"}, "data": data}
    await world.client.create(CONFIG_MAPS, body, namespace="kube-system")


async def ask(world: MetricsWorld, path: str) -> tuple[int, Any]:
    return await world.as_user(path, "root", MASTERS)


async def test_node_signals_are_custom_metrics_of_pods() -> None:
    async with metrics_world(**QUIET) as world:
        uid = await make_pod(world.client, "web-1", "n-1", app="web")
        usage = Usage(cpu_nanos=1, memory_bytes=1)
        pod = PodReading(
            at=CLOCK.now(),
            window=timedelta(seconds=5),
            containers={"web": usage},
            uid=uid,
            signals=(0.25,),
        )
        reading = NodeReading(
            node="n-1",
            source="agent",
            at=CLOCK.now(),
            window=timedelta(seconds=5),
            usage=usage,
            pods={("default", "web-1"): pod},
        )
        world.server.streams.keep(reading)
        path = f"{CUSTOM}/namespaces/default/pods/*/kubetide_cpu_throttled_ratio?labelSelector=app%3Dweb"

        async def shown() -> list[Any]:
            return list((await ask(world, path))[1].get("items") or ())

        (item,) = await until(shown)
        assert (item["value"], item["describedObject"]["name"], item["windowSeconds"]) == ("250m", "web-1", 5)
        _, older = await ask(world, path.replace("v1beta2", "v1beta1"))
        assert older["items"][0]["metricName"] == "kubetide_cpu_throttled_ratio"
        missing = f"{CUSTOM}/namespaces/default/pods/web-1/kubetide_oom_kills"
        assert (await ask(world, missing))[0] == 404
        assert (await ask(world, f"{CUSTOM}/namespaces/default/pods/*/unknown"))[0] == 404
        status, body = await world.as_user(path, "ann")
        assert (status, "pods/kubetide_cpu_throttled_ratio" in body["message"]) == (403, True)


async def test_rules_turn_queries_into_metrics_and_equal_queries_are_asked_once() -> None:
    prometheus = FakePrometheus()
    async with prometheus.serving(), metrics_world(**QUIET, prometheus_url=prometheus.url) as world:
        await declare(world, config_yaml=RULES)
        await make_pod(world.client, "web-1", "n-1", app="web")
        path = f"{CUSTOM}/namespaces/default/pods/*/http_requests_per_second"

        async def shown() -> list[Any]:
            return list((await ask(world, path))[1].get("items") or ())

        (item,) = await until(shown)
        assert (item["value"], item["describedObject"]["name"]) == ("2500m", "web-1")
        await ask(world, path)
        assert prometheus.queries == ['sum(rate(http_requests_total{namespace="default",pod="web-1"}[2m])) by (pod)']
        _, external = await ask(world, f"{EXTERNAL}/namespaces/default/queue_length?labelSelector=queue%3Dorders")
        assert external["items"][0]["metricLabels"] == {"queue": "orders"}
        status, _ = await ask(world, f"{EXTERNAL}/namespaces/default/queue_length?labelSelector=a.b%2Fc%3Dx")
        assert status == 400
        _, names = await ask(world, EXTERNAL)
        assert [one["name"] for one in names["resources"]] == ["kubetide-cpu-forecast", "queue_length"]
        prometheus.down = True
        status, body = await ask(world, f"{EXTERNAL}/namespaces/other/queue_length?labelSelector=queue%3Dx")
        assert (status, "too busy" in body["message"]) == (503, True)
        assert (await ask(world, f"{CUSTOM}/namespaces/default/pods/*/kubetide_oom_kills"))[0] == 200


class OtherServer:
    """Another server of external metrics."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[tuple[str, str, str]] = []
        self.hangs = False
        self.count, self.labels = 1, dict[str, str]()
        self._ca = make_ca(f"{name}-ca", now=CLOCK.now())

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[dict[str, Any]]:
        """Serve while the block lasts; gives its declaration."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_identity(context, pems(issue(self._ca, self.name, now=CLOCK.now(), addresses=["127.0.0.1"])))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        async with listening(runner, "127.0.0.1", 0, tls=context) as port:
            ca = base64.b64encode(self._ca.certificate.encode()).decode()
            yield {"name": self.name, "url": f"https://127.0.0.1:{port}", "caBundle": ca, "timeout": "500ms"}

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(
            (request.path, request.headers.get("Authorization", ""), request.headers.get("X-Kubetide-Via", ""))
        )
        if self.hangs:
            await asyncio.sleep(5)
        if request.path.endswith(f"/{self.name}-metric"):
            value = {"metricName": f"{self.name}-metric", "metricLabels": self.labels, "value": "7"}
            return web.json_response({"items": [value] * self.count})
        if request.path == EXTERNAL:
            return web.json_response({"resources": [{"name": f"{self.name}-metric", "namespaced": True}]})
        return web.json_response({"kind": "Status", "reason": "NotFound", "code": 404}, status=404)


class OtherFront(OtherServer):
    """A front that has this one behind it, as this one has it."""

    world: MetricsWorld

    async def _answer(self, request: web.Request) -> web.Response:
        if request.path != EXTERNAL:
            return await super()._answer(request)
        via = f"{request.headers['X-Kubetide-Via']},{self.name}"
        _, listed = await self.world.as_user(EXTERNAL, "root", MASTERS, **{"X-Kubetide-Via": via})
        listed["resources"].append({"name": f"{self.name}-metric", "namespaced": True})
        return web.json_response(listed)


async def test_fronts_behind_each_other_list_the_metrics_of_both() -> None:
    other, keda = OtherFront("other"), OtherServer("keda")
    async with other.serving() as first, keda.serving() as second, metrics_world(**QUIET) as world:
        other.world = world
        await declare(world, backends_yaml={"backends": [first, second]})

        async def listed() -> list[str]:
            names = [one["name"] for one in (await ask(world, EXTERNAL))[1]["resources"]]
            return names if "keda-metric" in names else []

        assert await until(listed) == ["keda-metric", "kubetide-cpu-forecast", "other-metric"]
        # What was asked through another front says so when it is passed on.
        await world.as_user(EXTERNAL, "root", MASTERS, **{"X-Kubetide-Via": "elsewhere"})
        assert keda.asked[-1][2] == "elsewhere,kube-system/kubetide-metrics"


async def test_an_answer_of_another_server_is_bounded() -> None:
    keda = OtherServer("keda")
    async with keda.serving() as first, metrics_world(**QUIET) as world:
        await declare(world, backends_yaml={"backends": [first]})
        path = f"{EXTERNAL}/namespaces/default/keda-metric"
        keda.labels = {**{f"label-{number:02}": "x" for number in range(40)}, "label-00": "y" * 2000}

        async def answered() -> Any:
            status, body = await ask(world, path)
            return body if status == 200 else None

        (item,) = (await until(answered))["items"]
        assert sorted(item["metricLabels"]) == [f"label-{number:02}" for number in range(1, 31)]
        keda.count, keda.labels = 2001, {}
        status, body = await ask(world, path)
        assert (status, "2001 values" in body["message"]) == (503, True)


async def test_other_servers_live_behind_the_front_and_fail_alone() -> None:
    keda, adapter = OtherServer("keda"), OtherServer("adapter")
    async with keda.serving() as first, adapter.serving() as second, metrics_world(**QUIET) as world:
        await declare(world, backends_yaml={"backends": [first, second]})
        path = f"{EXTERNAL}/namespaces/default/adapter-metric"

        async def answered() -> bool:
            return (await ask(world, path))[0] == 200

        await until(answered)
        _, body = await ask(world, path)
        assert body["items"][0]["value"] == "7"
        asked = [one for one in adapter.asked if one[0].endswith("adapter-metric")]
        # Asked with the server's own identity, never with the caller's.
        assert asked[-1][1:] == ("Bearer kubelet-token", "kube-system/kubetide-metrics")
        _, names = await ask(world, EXTERNAL)
        assert [one["name"] for one in names["resources"]] == ["adapter-metric", "keda-metric", "kubetide-cpu-forecast"]
        before = len(adapter.asked)
        assert (await world.as_user(path, "ann"))[0] == 403
        assert len(adapter.asked) == before
        status, body = await world.as_user(path, "root", MASTERS, **{"X-Kubetide-Via": "kube-system/kubetide-metrics"})
        assert (status, body["reason"]) == (508, "LoopDetected")
        keda.hangs = True
        assert (await ask(world, path))[0] == 200
        status, body = await ask(world, f"{EXTERNAL}/namespaces/default/keda-metric")
        assert (status, "keda" in json.dumps(body)) == (503, True)
        keda.hangs = False
        assert (await ask(world, f"{EXTERNAL}/namespaces/default/nobody-s"))[0] == 404


async def test_a_forecast_is_an_external_metric_that_begins_with_the_first_question() -> None:
    async with metrics_world(**QUIET) as world:
        path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/kubetide-cpu-forecast"
        status, body = await world.as_user(f"{path}?labelSelector=app%3Dweb", "root", "system:masters")
        assert (status, "too little is known" in body["message"]) == (503, True)
        status, _ = await world.as_user(f"{path}?labelSelector=%3D%3D%3D", "root", "system:masters")
        assert status == 400
        forecasts = world.server._forecasts
        key = ForecastKey("shop", "app=web")
        for step in range(WARM_UP):
            forecasts._forecasts.learn(key, 1.5, now=CLOCK.now().timestamp() - 15 * (WARM_UP - step))
        status, body = await world.as_user(f"{path}?labelSelector=app%3Dweb", "root", "system:masters")
        assert (status, body["items"][0]["value"]) == (200, "1500m")
