"""Readings of the metrics APIs: whose samples are whose, and what a bad answer costs."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from faulty_api import FaultyApi, FaultyTransport
from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectMeta
from kubetide.api.values.selectors import parse_selector
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.hpa.core.describe import MetricsRequest, PodsQuery, Query, ResourceQuery
from kubetide.hpa.core.samples import ErrorKind, MetricFailure, PodReading, Reading
from kubetide.hpa.metrics_cache import PARTS, MetricsReader
from kubetide.hpa.settings import HpaSettings, MetricsScope
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response
from unit.hpa.worlds import pods

PERIOD = timedelta(seconds=15)


class Server(FaultyTransport):
    """Serves one answer for every list of usage, and for every custom metric."""

    def __init__(self, body: bytes) -> None:
        super().__init__(FaultyApi())
        self._body = body
        self.paths: list[str] = []

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if path == "/apis":
            version = {"version": "v1beta2"}
            group = {"name": "custom.metrics.k8s.io", "versions": [version], "preferredVersion": version}
            return Response(200, {}, msgspec.json.encode({"groups": [group]}))
        self.paths.append(path)
        return Response(200, {}, self._body)


def read(body: bytes, query: Query, *, scope: MetricsScope = MetricsScope.NAMESPACE) -> Reading:
    async def main() -> Reading:
        clock = virtual_clock()
        async with MetricsReader(Client(Server(body), clock=clock), clock, HpaSettings(metrics_scope=scope)) as reader:
            return await reader.read(query, parse_selector("app=web"), pods(2), MetricsRequest(max_age=PERIOD))

    return run_virtual(main())


CPU = ResourceQuery("shop", "app=web", "cpu")


def usage(*items: dict[str, Any]) -> bytes:
    containers = [{"name": "app", "usage": {"cpu": "5m"}}]
    return msgspec.json.encode({"items": [{"containers": containers, **item} for item in items]})


def test_samples_of_a_namespace_need_not_name_it() -> None:
    found = read(usage({"metadata": {"name": "web-0"}}, {"metadata": {"name": "other"}}), CPU)
    assert isinstance(found, PodReading)
    assert set(found.samples) == {"web-0"}


def test_samples_of_the_cluster_count_where_they_belong() -> None:
    mine, other = ({"metadata": {"name": "web-0", "namespace": name}} for name in ("shop", "bank"))
    found = read(usage(other, mine), CPU, scope=MetricsScope.CLUSTER)
    assert isinstance(found, PodReading)
    assert set(found.samples) == {"web-0"}
    assert isinstance(read(usage(other), CPU, scope=MetricsScope.CLUSTER), MetricFailure)


@pytest.mark.parametrize("query", [CPU, PodsQuery("shop", "app=web", "rps")], ids=["usage", "custom"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="a-list"),
        pytest.param(b"<html>", id="a-page"),
        pytest.param(b'{"items": 5}', id="items-that-are-a-number"),
        pytest.param(b'{"items": [null]}', id="an-item-that-is-null"),
        pytest.param(b'{"items": [7]}', id="an-item-that-is-a-number"),
        pytest.param(b'{"items": [{"metadata": 7, "describedObject": 7}]}', id="a-name-that-is-a-number"),
        pytest.param(b'{"items": [{"timestamp": "soon", "value": "1"}]}', id="a-time-that-is-none"),
        pytest.param(
            b'{"items": [{"containers": [{"usage": {"cpu": []}}], "value": []}]}', id="a-value-that-is-a-list"
        ),
        pytest.param(b"[" * 100_000, id="very-deep"),
        pytest.param(b'{"items": "\xff\xfe"}', id="not-utf-8"),
        pytest.param(
            b'{"items":[{"metadata":{"name":"web-0","labels":{"app":"web"}},"describedObject":{"name":"web-0"},'
            b'"containers":[{"name":"a","usage":{"cpu":"' + b"9" * 5000 + b'"}}],"value":"' + b"9" * 5000 + b'"}]}',
            id="thousands-of-digits",
        ),
    ],
)
def test_nonsense_is_a_failure_with_a_name_and_never_a_crash(body: bytes, query: Query) -> None:
    found = read(body, query)
    assert isinstance(found, MetricFailure)
    assert found.kind in (ErrorKind.FETCH_FAILED, ErrorKind.EMPTY, ErrorKind.INVALID_VALUE)
    assert str(found)


def read_all(body: bytes, names: Sequence[str], *, periods: int = 1) -> tuple[list[Reading], list[str]]:
    """Let an autoscaler for each name ask, all at once; return what they got and what was asked."""

    async def main() -> tuple[list[Reading], list[str]]:
        clock = virtual_clock()
        server = Server(body)
        settings = HpaSettings(metrics_scope=MetricsScope.NAMESPACE)
        found: list[Reading] = []
        async with MetricsReader(Client(server, clock=clock), clock, settings) as reader:
            for _ in range(periods):
                found = await asyncio.gather(
                    *(
                        reader.read(
                            ResourceQuery("shop", f"app={name}", "cpu"),
                            parse_selector(f"app={name}"),
                            (Pod(metadata=ObjectMeta(namespace="shop", name=f"{name}-0", labels={"app": name})),),
                            MetricsRequest(max_age=PERIOD),
                        )
                        for name in names
                    )
                )
                await asyncio.sleep(20)
        return found, server.paths

    return run_virtual(main())


def sample(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": f"{name}-0", "labels": {"app": name}}, **fields}


def test_a_bad_sample_concerns_its_own_autoscaler_and_costs_no_call() -> None:
    body = usage(sample("good"), sample("bad", window=7), sample("fine"))
    (good, bad, fine), asked = read_all(body, ["good", "bad", "fine"])
    assert isinstance(good, PodReading)
    assert isinstance(fine, PodReading)
    assert isinstance(bad, MetricFailure)
    assert "bad-0" in str(bad)
    assert len(asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"items": 5}', id="no-list"),
        pytest.param(b'{"items": [7]}', id="an-item-without-a-name"),
        pytest.param(b'{"items": [{"window": 7}]}', id="a-sample-of-nobody"),
    ],
)
def test_a_bad_answer_does_not_become_a_call_for_every_autoscaler(body: bytes) -> None:
    found, asked = read_all(body, [f"app-{number}" for number in range(500)], periods=3)
    assert all(isinstance(each, MetricFailure) for each in found)
    assert len(asked) == 3 * (1 + PARTS)
