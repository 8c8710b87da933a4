"""The colocation webhook over real TLS: it makes its certificates, registers itself, changes and refuses pods."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from embedded_server import running
from kubetide import crds
from kubetide.api.objects.events import Event
from kubetide.api.objects.scheme import COLOCATION_PROFILES, CRDS, PODS, PRIORITY_CLASSES, VALIDATING_WEBHOOKS
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError, NotFound
from kubetide.slo.colocation.settings import ColocationSettings
from kubetide.slo.colocation.webhook import ColocationWebhook
from kubetide.telemetry import Telemetry

Raw = dict[str, Any]


class Silent:
    """A recorder that keeps nothing."""

    def publish(self, event: Event) -> None:
        """Do nothing."""


@asynccontextmanager
async def webhook(**settings: Any) -> AsyncIterator[Client]:
    """Yield a client of an API server that asks a running webhook."""
    clock = SystemClock()
    async with running() as server, asyncio.TaskGroup() as group:
        client = Client(server.transport(), clock=clock)
        await client.create(CRDS, crds.load("clustercolocationprofiles"))
        fields: Raw = {
            "host": "127.0.0.1",
            "port": 0,
            "webhook_address": "127.0.0.1",
            "refresh_period": timedelta(milliseconds=50),
        }
        made = ColocationWebhook(
            client, clock, ColocationSettings(**fields | settings), Telemetry(), Silent(), random.Random(1)
        )
        task = group.create_task(made.run())
        try:
            async with asyncio.timeout(30):
                while not await registered(client):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.02)
            yield client
        finally:
            task.cancel()
            await asyncio.wait([task])
            await client.close()


async def registered(client: Client) -> bool:
    try:
        await client.get_raw(VALIDATING_WEBHOOKS, "kubetide-colocation")
    except NotFound:
        return False
    return True


def pod(name: str, **labels: str) -> Raw:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}}


async def test_pods_become_batch_pods_through_certificates_that_the_webhook_made() -> None:
    async with webhook() as client:
        meta = {"metadata": {"name": "koord-batch"}, "value": 5000}
        await client.create(PRIORITY_CLASSES, {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **meta})
        spec = {"selector": {"matchLabels": {"app": "job"}}, "qosClass": "BE", "priorityClassName": "koord-batch"}
        body = {"apiVersion": COLOCATION_PROFILES.api_version, "kind": COLOCATION_PROFILES.kind}
        await client.create(COLOCATION_PROFILES, {**body, "metadata": {"name": "p"}, "spec": spec})
        async with asyncio.timeout(30):
            number = 0
            while True:  # the profile reaches the webhook by a watch
                made = await client.create(PODS, pod(f"job-{number}", app="job"), namespace="default")
                if made.metadata.annotations:
                    break
                number += 1
        assert made.spec.priority == 5000
        (container,) = made.spec.containers or ()
        assert container.resources is not None
        assert container.resources.requests == {"kubernetes.io/batch-cpu": "1k"}
        other = await client.create(PODS, pod("web", app="web"), namespace="default")
        assert other.metadata.annotations is None


@pytest.mark.parametrize(("compat", "code"), [("1.8", 400), ("1.5", 403)])
async def test_a_rejection_has_the_code_of_its_version(compat: str, code: int) -> None:
    async with webhook(compat=compat) as client:
        with pytest.raises(ApiError, match="does not go with priority class none") as refused:
            await client.create(PODS, pod("p", **{"koordinator.sh/qosClass": "LSR"}), namespace="default")
        assert refused.value.status == code


async def test_a_missing_certificate_of_ones_own_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as found:
        async with asyncio.timeout(30), webhook(webhook_cert_dir=str(tmp_path)):
            pass
    assert "tls.crt" in repr(found.value)
