"""Every component does its work with just the rights that `kubetide manifests` gives it."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest

from kubetide.embedded.requests import User
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.install.objects import account, manifests
from kubetide.kube.client import Client
from kubetide.kube.transport import Response, Transport
from kubetide.settings import COMPONENTS
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_config_map, make_deployment, make_hpa, make_vpa
from kubetide.testing.cluster import run
from kubetide.wiring import World, build


class Watched:
    """A transport that remembers what was refused."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.refused: list[str] = []
        self.written: list[str] = []

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
    ) -> Response:
        response = await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept, timeout=timeout
        )
        if response.status == 403:
            self.refused.append(f"{method} {path}: {response.body.decode()}")
        elif method != "GET" and response.status < 300:
            self.written.append(f"{method} {path}")
        return response

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        await self._inner.close()


def service_account(component: str) -> User:
    name = f"system:serviceaccount:kube-system:{account(component)}"
    return User(name, ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"))


async def work(cluster: SimCluster) -> None:
    """Give every component something to do."""
    await cluster.apply(
        [
            make_deployment("web", replicas=2, cpu="500m", memory="256Mi"),
            make_hpa("web", maximum=6, cpu_percent=50),
            make_deployment("idle", replicas=3, cpu="1", memory="1Gi"),
            make_vpa("idle", target="idle", mode="Recreate"),
            make_config_map(
                "slo-controller-config", "koordinator-system", {"colocation-config": '{"enable": true}', "x": "{"}
            ),
        ]
    )
    cluster.set_usage("default", "web", cpu=0.45)
    cluster.set_usage("default", "idle", cpu=0.05)


def settings_of(component: str) -> Any:
    changes: dict[str, dict[str, Any]] = {
        "hpa": {"take_over": True},
        "admission": {"local_name": "vpa", "register_delay": timedelta(seconds=1)},
    }
    return COMPONENTS[component](**changes.get(component, {}))


@pytest.mark.parametrize("component", sorted(COMPONENTS))
def test_nothing_is_refused(component: str) -> None:
    async def main(cluster: SimCluster) -> Watched:
        objects = manifests((component,), namespace="kube-system", image="x")
        await cluster.apply([each for each in objects if each["kind"] not in ("Deployment", "DaemonSet")])
        await work(cluster)
        transport = Watched(cluster.transport(service_account(component)))
        telemetry, rng = Telemetry(), random.Random(1)
        world = World(
            client=Client(transport, clock=cluster.clock, chance=rng),
            clock=cluster.clock,
            telemetry=telemetry,
            rng=rng,
            local_webhooks=cluster.api.admission,
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part.run()) for part in build(component, world, settings_of(component))]
            await cluster.run_for(timedelta(minutes=15))
            for task in tasks:
                task.cancel()
        return transport

    transport = run(main, nodes=2)
    assert transport.refused == []
    assert transport.written
