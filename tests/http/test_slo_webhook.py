"""The webhooks of the SLO controller over real TLS: what is refused, how it is said, what passes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from embedded_server import running
from kubetide.api.objects.scheme import CONFIG_MAPS, NODES, VALIDATING_WEBHOOKS
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.install.slo_webhook import SloWebhook, make_slo_webhook, webhook_objects
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError
from kubetide.slo.settings import SloSettings
from kubetide.slo.webhook import webhook_server

NAMESPACE, NAME = "koordinator-system", "slo-controller-config"
COLOCATION, THRESHOLD = "colocation-config", "resource-threshold-config"
Raw = dict[str, Any]


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[Client]:
    """Yield a client of an API server that asks the webhooks of a running SLO controller, as its manifests say."""
    clock = SystemClock()
    made = make_slo_webhook("kube-system", now=clock.now())
    (folder / "tls.crt").write_text(made.certificate)
    (folder / "tls.key").write_text(made.key)
    async with running() as server, asyncio.TaskGroup() as group:
        client = Client(server.transport(), clock=clock)
        settings = SloSettings(
            feature_gates=("ConfigMapValidatingWebhook=true", "NodeValidatingWebhook=true"),
            webhook_port=0,
            webhook_cert_dir=str(folder),
            names_needed=True,
        )
        webhook = webhook_server(client, settings)
        assert webhook is not None
        task = group.create_task(webhook.run())
        try:
            async with asyncio.timeout(10):
                while not webhook.ready():  # noqa: ASYNC110 - readiness has no event
                    await asyncio.sleep(0.01)
            await register(client, made, webhook.port)
            yield client
        finally:
            await client.close()
            task.cancel()


async def register(client: Client, made: SloWebhook, port: int) -> None:
    """Create the Service and the registration of the manifests, and say where the Service leads."""
    objects = {each["kind"]: each for each in webhook_objects(made, "kube-system", {})}
    await post(client, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    await post(client, "/api/v1/namespaces/kube-system/services", objects["Service"])
    meta = objects["Service"]["metadata"]
    subset = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": port}]}
    await post(client, "/api/v1/namespaces/kube-system/endpoints", {"metadata": meta, "subsets": [subset]})
    await client.create(VALIDATING_WEBHOOKS, objects["ValidatingWebhookConfiguration"])


async def post(client: Client, path: str, body: Raw) -> None:
    await client.request("POST", path, body=msgspec.json.encode(body))


async def create(client: Client, data: dict[str, str], name: str = NAME) -> None:
    await client.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": data}, namespace=NAMESPACE)


async def change(client: Client, data: dict[str, str | None]) -> None:
    await client.patch(CONFIG_MAPS, NAME, MergePatch({"data": data}), namespace=NAMESPACE)


def told(refusal: ApiError) -> Raw:
    """Return what stands between the marks in the message of a refusal."""
    assert refusal.status == 400
    _, text, _ = str(refusal).split("___")
    found: Raw = msgspec.json.decode(text)
    return found


def entries(*labels: str, names: tuple[str, ...] = ("one", "two")) -> str:
    pairs = zip(names, labels, strict=True)
    found = [{"name": name, "nodeSelector": {"matchLabels": {label: "yes"}}} for name, label in pairs]
    return msgspec.json.encode({"clusterStrategy": {"enable": True}, "nodeStrategies": found}).decode()


@pytest.mark.parametrize(
    ("data", "reason", "said"),
    [
        pytest.param({COLOCATION: '{"enable": "yes"}'}, "ParseConfigFail", "colocation-config", id="not-readable"),
        pytest.param(
            {COLOCATION: '{"cpuReclaimThresholdPercent": 101}'},
            "ConfigParamInvalid",
            "cpuReclaimThresholdPercent",
            id="out-of-range",
        ),
        pytest.param(
            {THRESHOLD: entries("big", "big")}, "NodeStrategiesOverlap", '"strategies":["one","two"]', id="overlap"
        ),
        pytest.param(
            {THRESHOLD: entries("big", "fast", names=("one", "one"))}, "ConfigParamInvalid", "names", id="name-twice"
        ),
        pytest.param({THRESHOLD: entries("big", "fast")}, "ExistNodeConfict", "node-1", id="existing-node-matches-two"),
    ],
)
async def test_a_configuration_that_cannot_work_is_refused(
    tmp_path: Path, data: dict[str, str], reason: str, said: str
) -> None:
    async with guarded(tmp_path) as client:
        await client.create(NODES, {"metadata": {"name": "node-1", "labels": {"big": "yes", "fast": "yes"}}})
        with pytest.raises(ApiError) as refused:
            await create(client, data)
    answer = told(refused.value)
    assert answer["reason"] == reason
    assert said in answer["message"]


async def test_what_works_passes_and_only_what_changed_is_looked_at(tmp_path: Path) -> None:
    async with guarded(tmp_path) as client:
        await create(client, {"anything": "{"}, name="somebody-elses")
        await create(client, {COLOCATION: '{"enable": true}', "unknown": "{"})
        await change(client, {COLOCATION: '{"enable": false}', THRESHOLD: '{"clusterStrategy": {"enable": true}}'})
        with pytest.raises(ApiError):
            await change(client, {THRESHOLD: '{"clusterStrategy": {"cpuSuppressThresholdPercent": -1}}'})
        kept = await client.get(CONFIG_MAPS, NAME, namespace=NAMESPACE)
        assert kept.data is not None
        assert kept.data[THRESHOLD] == '{"clusterStrategy": {"enable": true}}'
        await client.delete(CONFIG_MAPS, NAME, namespace=NAMESPACE)


async def test_a_label_that_would_match_two_entries_is_refused_and_others_pass(tmp_path: Path) -> None:
    async with guarded(tmp_path) as client:
        await create(client, {THRESHOLD: entries("big", "fast"), COLOCATION: ""})
        await client.create(NODES, {"metadata": {"name": "node-1", "labels": {"big": "yes"}}})
        await client.patch(NODES, "node-1", MergePatch({"metadata": {"labels": {"colour": "red"}}}))
        with pytest.raises(ApiError) as refused:
            await client.patch(NODES, "node-1", MergePatch({"metadata": {"labels": {"fast": "yes"}}}))
        assert told(refused.value)["reason"] == "ExistNodeConfict"
        await client.patch(NODES, "node-1", MergePatch({"metadata": {"labels": {"big": None, "fast": "yes"}}}))
        await client.delete(CONFIG_MAPS, NAME, namespace=NAMESPACE)
        await client.patch(NODES, "node-1", MergePatch({"metadata": {"labels": {"big": "yes"}}}))
