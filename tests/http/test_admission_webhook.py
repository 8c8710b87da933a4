"""The webhook over real sockets: broken in every way, and with certificates that change under load."""

import asyncio
import base64
import io
import random
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, web

from kubetide import crds
from kubetide.api.objects.core import Pod
from kubetide.api.objects.scheme import CRDS, MUTATING_WEBHOOKS, PODS, REPLICA_SETS, VPAS
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.rest.requests import ADMIN, User
from kubetide.embedded.apiserver.server import ApiServer, Audit
from kubetide.errors import InvalidInput
from kubetide.kube.client.certificates import issue, make_ca
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static, bearer
from kubetide.kube.client.errors import ApiError
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import Certificate, Pem, ServerTrust, load_identity
from kubetide.kube.listener import listening
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_pod, make_replica_set, make_vpa
from kubetide.vpa.admission.core.registration import Registration, configuration
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.admission.webhook import AdmissionController
from rotation import renew_server, stage_ca

LOCALHOST = "127.0.0.1"
WEBHOOK = User("kubetide-admission-1", ADMIN.groups)
SECOND = timedelta(seconds=1)
FAST = AdmissionSettings(
    host=LOCALHOST,
    port=0,
    register_by_url=True,
    webhook_address=LOCALHOST,
    register_delay=timedelta(milliseconds=200),
    lease_period=timedelta(milliseconds=200),
    ca_notice=timedelta(seconds=1),
    tls_cert_file=Path("/nonexistent/serverCert.pem"),
    webhook_match_conditions=False,
    probe_webhook=True,
    memory_headroom=-1,
)


@dataclass(slots=True)
class Cluster:
    """An API server with a ReplicaSet, a VPA and its recommendation."""

    client: Client
    webhook: Client
    """The client of the admission controller, with a user of its own."""
    owner: dict[str, Any]

    async def create_pod(self, name: str) -> Pod:
        body = make_pod(name, labels={"app": "web"}, cpu="100m", memory="128Mi")
        body["metadata"]["ownerReferences"] = [self.owner]
        return await self.client.create(PODS, body, namespace="default")


@asynccontextmanager
async def cluster(audit: Audit | None = None) -> AsyncIterator[Cluster]:
    clock = SystemClock()
    made = ApiServer(clock=clock, audit=audit, tokens={WEBHOOK.name: WEBHOOK})
    async with serve(made, anonymous=True) as serving:
        clients = [
            Client(
                HttpTransport(Access(server=serving.url, trust=ServerTrust(), credentials=Static(headers))),
                clock=clock,
                rng=random.Random(1),
            )
            for headers in ((), bearer(WEBHOOK.name))
        ]
        try:
            yield Cluster(clients[0], clients[1], await prepared(clients[0]))
        finally:
            for client in clients:
                await client.close()


async def prepared(client: Client) -> dict[str, Any]:
    """Create a ReplicaSet, a VPA and its recommendation; return the reference to the ReplicaSet."""
    for name in ("verticalpodautoscalers", "verticalpodautoscalercheckpoints"):
        await client.create(CRDS, crds.load(name))
    created = await client.create(REPLICA_SETS, make_replica_set("web", replicas=1), namespace="default")
    vpa = make_vpa("web", target="web", kind="ReplicaSet", mode="Recreate")
    await client.create(VPAS, vpa, namespace="default")
    recommendation = {
        "containerRecommendations": [{"containerName": "main", "target": {"cpu": "300m", "memory": "256Mi"}}]
    }
    status = MergePatch({"status": {"recommendation": recommendation}})
    await client.patch(VPAS, "web", status, namespace="default", subresource="status")
    uid = created.metadata.uid
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": True}


@asynccontextmanager
async def webhook(
    given: Cluster, settings: AdmissionSettings = FAST, telemetry: Telemetry | None = None
) -> AsyncIterator[AdmissionController]:
    """Run the admission controller until pods come back patched."""
    numbers = telemetry or Telemetry()
    controller = AdmissionController(given.webhook, SystemClock(), settings, numbers, None, random.Random(2))
    task = asyncio.get_running_loop().create_task(controller.run())
    try:
        async with asyncio.timeout(60):
            number = 0
            while True:
                if task.done():
                    task.result()
                number += 1
                pod = await given.create_pod(f"warm-{number}-{id(task):x}")
                if patched(pod):
                    break
                await asyncio.sleep(0.1)
        yield controller
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def patched(pod: Pod) -> bool:
    (container,) = pod.spec.containers or ()
    requests = container.resources.requests if container.resources else None
    return (requests or {}).get("cpu") == "300m" and "vpaObservedContainers" in (pod.metadata.annotations or {})


async def test_a_pod_of_a_vpa_is_patched_over_https() -> None:
    async with cluster() as given, webhook(given):
        pod = await given.create_pod("web-1")
        assert patched(pod)
        stranger = await given.client.create(PODS, make_pod("alone", cpu="100m"), namespace="default")
        assert not patched(stranger)


async def test_every_step_of_a_review_is_measured() -> None:
    telemetry = Telemetry()
    async with cluster() as given, webhook(given, telemetry=telemetry):
        assert patched(await given.create_pod("web-1"))
    text = telemetry.render().decode()
    counts = {
        step: float(text.split(f'_execution_latency_seconds_count{{step="{step}"}} ')[1].split()[0])
        for step in ("read_request", "admit", "build_response", "write_response", "total")
    }
    assert all(count >= 1 for count in counts.values())
    assert counts["write_response"] == counts["total"]


async def test_a_review_above_five_mebibytes_is_refused_and_counted() -> None:
    telemetry = Telemetry()
    async with cluster() as given, webhook(given, telemetry=telemetry) as controller, ClientSession() as session:
        assert controller.server is not None
        url, large = f"https://{LOCALHOST}:{controller.server.port}/", io.BytesIO(b" " * (5 * 1024 * 1024 + 1))
        async with session.post(url, data=large, headers={"Content-Type": "application/json"}, ssl=False) as answer:
            assert answer.status == 413
        async with session.post(url, data=b"x", headers={"Content-Type": "text/plain"}, ssl=False) as answer:
            assert answer.status == 200, "the content type is looked at first"
    name = "vpa_admission_controller_admission_latency_seconds_count"
    assert f'{name}{{resource="unknown",status="error"}} 1.0' in telemetry.render().decode()


async def hangs(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def fails(request: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="out of order")


async def answers_nonsense(request: web.Request) -> web.StreamResponse:
    return web.json_response({"kind": "Banana"})


@asynccontextmanager
async def broken_webhook(handler: Any) -> AsyncIterator[tuple[int, str]]:
    """Serve a handler over HTTPS; yield its port and CA."""
    now = SystemClock().now()
    ca = make_ca("broken", now=now)
    pair = issue(ca, LOCALHOST, now=now, addresses=[LOCALHOST])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_identity(context, Certificate(certificate=Pem(data=pair.certificate), key=Pem(data=pair.key)))
    app = web.Application()
    app.router.add_post("/", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    async with listening(runner, LOCALHOST, 0, tls=context) as port:
        yield port, ca.certificate


@pytest.mark.parametrize("handler", [hangs, fails, answers_nonsense, None], ids=["hangs", "500", "nonsense", "down"])
async def test_a_broken_webhook_stops_no_pod(handler: Any) -> None:
    async with cluster() as given:
        if handler is None:
            with socket.socket() as unused:
                unused.bind((LOCALHOST, 0))
                port = unused.getsockname()[1]
            await _create_pods(given, port, "")
        else:
            async with broken_webhook(handler) as (port, ca):
                await _create_pods(given, port, base64.b64encode(ca.encode()).decode())


async def _create_pods(given: Cluster, port: int, ca_bundle: str) -> None:
    registration = Registration(client={"url": f"https://{LOCALHOST}:{port}/"}, ca_bundle=ca_bundle, timeout_seconds=1)
    await given.client.create(MUTATING_WEBHOOKS, configuration(registration))
    # Twenty at once: none waits for another one's timeout, and the test fails if one waits much longer than its own.
    async with asyncio.timeout(15), asyncio.TaskGroup() as group:
        tasks = [group.create_task(given.create_pod(f"web-{number}")) for number in range(20)]
    assert not any(patched(task.result()) for task in tasks)


async def rotated_under_load(given: Cluster) -> list[Pod]:
    """Return the pods that were created, fifty a second, while the certificate and then the CA were replaced."""
    async with webhook(given) as controller:
        certificates, server = controller.certificates, controller.server
        assert certificates is not None
        assert server is not None
        assert certificates.bundle is not None
        first = certificates.bundle
        results: list[Pod] = []

        async def create(number: int) -> None:
            results.append(await given.create_pod(f"web-{number}"))

        async def rotate() -> None:
            await asyncio.sleep(1)
            await renew_server(given.webhook, SystemClock(), FAST, LOCALHOST)
            await asyncio.sleep(1)
            await stage_ca(given.webhook, SystemClock(), FAST, LOCALHOST)

        number = 0
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            group.create_task(rotate())
            # On a busy machine the rotation takes longer; the load goes on until it is over.
            while number < 300 or certificates.bundle.ca == first.ca or server.tls.reloads < 2:
                group.create_task(create(number))
                number += 1
                await asyncio.sleep(0.02)
        assert len(results) == number
        assert certificates.bundle.ca != first.ca
        assert certificates.bundle.server != first.server
        assert certificates.bundle.previous_ca == first.ca.certificate
        assert server.tls.reloads >= 2
        return results


async def test_certificate_and_ca_are_rotated_under_load_without_a_failed_admission() -> None:
    async with cluster() as given:
        assert all(patched(pod) for pod in await rotated_under_load(given))


async def test_mounted_certificates_are_read_again_when_they_change(tmp_path: Path) -> None:
    now = SystemClock().now()

    def write(ca_name: str) -> None:
        ca = make_ca(ca_name, now=now)
        pair = issue(ca, LOCALHOST, now=now, addresses=[LOCALHOST])
        (tmp_path / "serverKey.pem").write_text(pair.key)
        (tmp_path / "serverCert.pem").write_text(pair.certificate)
        (tmp_path / "caCert.pem").write_text(ca.certificate)

    write("first")
    settings = msgspec.structs.replace(
        FAST,
        tls_cert_file=tmp_path / "serverCert.pem",
        tls_private_key=tmp_path / "serverKey.pem",
        client_ca_file=tmp_path / "caCert.pem",
    )
    async with cluster() as given, webhook(given, settings) as controller:
        assert controller.certificates is None
        write("second")
        async with asyncio.timeout(60):
            number = 0
            assert controller.server is not None
            while controller.server.tls.reloads == 0 or not patched(await given.create_pod(f"again-{number}")):
                number += 1
                await asyncio.sleep(0.1)
        config = await given.client.get_raw(MUTATING_WEBHOOKS, "vpa-webhook-config")
        assert len({hook["clientConfig"]["caBundle"] for hook in config["webhooks"]}) == 1


async def test_a_webhook_that_is_stopped_before_it_has_registered_leaves_no_files() -> None:
    settings = msgspec.structs.replace(FAST, register_delay=timedelta(minutes=10))
    async with cluster() as given:
        controller = AdmissionController(given.client, SystemClock(), settings, Telemetry(), None, random.Random(2))
        task = asyncio.get_running_loop().create_task(controller.run())
        try:
            async with asyncio.timeout(60):
                while not controller.ready():  # noqa: ASYNC110 - readiness has no event
                    await asyncio.sleep(0.02)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert controller.certificates is not None
        where = controller.certificates.files.certificate.path
        assert where is not None
        assert not where.parent.exists()


async def test_a_wrong_vpa_is_refused_with_its_fields() -> None:
    async with cluster() as given, webhook(given):
        wrong = make_vpa("wrong", target="web", mode="Recreate", min_replicas=1)
        wrong["spec"]["recommenders"] = [{"name": "a"}, {"name": "b"}]
        with pytest.raises(ApiError) as raised:
            await given.client.create(VPAS, wrong, namespace="default")
        assert "spec.recommenders" in raised.value.message
        plain = make_vpa("plain", target="web", mode=None)
        plain["spec"].pop("updatePolicy", None)
        created = await given.client.create(VPAS, plain, namespace="default")
        assert created.spec.update_policy is not None
        assert created.spec.update_policy.update_mode == "Recreate"


async def test_conditions_that_the_server_cannot_evaluate_are_left_out() -> None:
    settings = msgspec.structs.replace(FAST, webhook_match_conditions=True)
    async with cluster() as given:

        def refuse(*_: object) -> bool:
            raise InvalidInput("this server evaluates nothing")

        async def convicted() -> dict[str, Any]:
            async with asyncio.timeout(60):
                while True:
                    config = await given.client.get_raw(MUTATING_WEBHOOKS, "vpa-webhook-config")
                    if "annotations" in config["metadata"]:
                        return config
                    await asyncio.sleep(0.1)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kubetide.embedded.apiserver.admission.admission.evaluate_conditions", refuse)
            async with webhook(given, settings):
                config = await convicted()
        assert not any(hook.get("matchConditions") for hook in config["webhooks"])
        assert config["metadata"]["annotations"] == {"kubetide.io/without-conditions": "true"}
        # The next one does not try again.
        async with webhook(given, settings):
            assert not any(hook.get("matchConditions") for hook in (await convicted())["webhooks"])


async def test_on_an_embedded_server_without_its_service_it_registers_by_url() -> None:
    settings = msgspec.structs.replace(FAST, register_by_url=False, webhook_address="")
    telemetry = Telemetry()
    async with cluster() as given, webhook(given, settings, telemetry) as controller:
        assert patched(await given.create_pod("web-1"))
        async with asyncio.timeout(60):
            while b"kubetide_admission_patching 1.0" not in telemetry.render():  # noqa: ASYNC110 - set by a probe
                await asyncio.sleep(0.1)
        assert controller.notes() == ()


async def test_a_webhook_that_is_not_called_reports_it(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    settings = msgspec.structs.replace(FAST, webhook_port="1")
    async with cluster() as given:
        controller = AdmissionController(given.client, SystemClock(), settings, telemetry, None, random.Random(2))
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            work = group.create_task(controller.run())
            while not controller.notes():  # noqa: ASYNC110 - set by a probe
                await asyncio.sleep(0.1)
            work.cancel()
    assert controller.notes() == ("the API server does not call the webhook: new pods are not patched",)
    assert b"kubetide_admission_patching 0.0" in telemetry.render()
    assert [record for record in caplog.records if "does not call the webhook" in record.getMessage()]
