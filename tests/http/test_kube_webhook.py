"""The webhook server: reviews over TLS, and a certificate that is replaced while requests are under way."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from kubetide.api.objects.admission import AdmissionReview, review_response
from kubetide.clock import SystemClock
from kubetide.kube.client.certificates import KeyPair, as_der, expiry, issue, make_ca
from kubetide.kube.client.errors import CredentialsFailed
from kubetide.kube.client.tls import Certificate, Pem
from kubetide.kube.webhook import ReviewHandler, Stopwatch, WebhookServer
from kubetide.telemetry import Telemetry

NOW = SystemClock().now()
CA = make_ca("webhook-ca", now=NOW)
REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u1", "name": "web"}}


def write(folder: Path, name: str) -> KeyPair:
    pair = issue(CA, name, now=NOW, dns_names=["localhost"])
    put(folder, pair)
    return pair


def put(folder: Path, pair: KeyPair) -> None:
    for file, text in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        fresh = folder / f"{file}.new"
        fresh.write_text(text)
        fresh.rename(folder / file)


def make_rsa(name: str) -> KeyPair:
    """Return a certificate with an RSA key, as other tools than ours make them, signed by itself."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(hours=1))
        .not_valid_after(NOW + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return KeyPair(
        certificate=made.public_bytes(serialization.Encoding.PEM).decode(),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )


async def shown(server: WebhookServer) -> bytes:
    """Return the certificate that a new connection is shown, whoever signed it."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=anybody)
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return certificate


def allow(review: AdmissionReview) -> dict[str, Any]:
    return review_response(review.request.uid if review.request is not None else "")


async def deny_admin(review: AdmissionReview) -> dict[str, Any]:
    assert review.request is not None
    if review.request.name == "admin":
        return review_response(review.request.uid, allowed=False, message="no admins here")
    return allow(review)


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    stopwatch: Stopwatch = nullcontext,
    telemetry: Telemetry | None = None,
    reload_interval: timedelta = timedelta(seconds=0.02),
    **handlers: ReviewHandler,
) -> AsyncIterator[WebhookServer]:
    server = WebhookServer(
        {f"/{name}": handler for name, handler in (handlers or {"pods": deny_admin}).items()},
        certificate=Certificate(certificate=Pem(path=folder / "tls.crt"), key=Pem(path=folder / "tls.key")),
        host="127.0.0.1",
        port=0,
        reload_interval=reload_interval,
        stopwatch=stopwatch,
        telemetry=telemetry,
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.run())
        async with asyncio.timeout(10):
            while not server.ready():  # noqa: ASYNC110 - readiness has no event
                await asyncio.sleep(0.01)
        yield server
        task.cancel()
    assert not server.ready()


def trust() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=CA.certificate)


@asynccontextmanager
async def caller() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust())) as session:
        yield session
    await asyncio.sleep(0.01)


async def ask(session: aiohttp.ClientSession, server: WebhookServer, path: str = "/pods", **request: Any) -> Any:
    body = {**REVIEW, "request": {"uid": "u1", **request}}
    async with session.post(f"https://localhost:{server.port}{path}", json=body) as response:
        return await response.json() if response.status == 200 else response.status


async def shown_name(server: WebhookServer) -> str:
    """Return the common name in the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust(), server_hostname="localhost")
    certificate = writer.get_extra_info("peercert")
    writer.close()
    await writer.wait_closed()
    return str(next(value for part in certificate["subject"] for key, value in part if key == "commonName"))


async def test_reviews_are_answered(tmp_path: Path) -> None:
    write(tmp_path, "first")
    async with serving(tmp_path) as server, caller() as session:
        answer = await ask(session, server, name="web")
        assert answer["response"] == {"uid": "u1", "allowed": True}
        refused = await ask(session, server, name="admin")
        assert refused["response"]["allowed"] is False
        assert refused["response"]["status"]["message"] == "no admins here"


async def test_an_answer_is_measured_until_it_is_written(tmp_path: Path) -> None:
    steps: list[str] = []

    @contextmanager
    def stopwatch(name: str) -> Iterator[None]:
        steps.append(f"{name} begins")
        yield
        steps.append(f"{name} ends")

    async def handler(review: AdmissionReview) -> dict[str, Any]:
        steps.append("answered")
        return allow(review)

    write(tmp_path, "first")
    async with serving(tmp_path, stopwatch=stopwatch, pods=handler) as server, caller() as session:
        assert (await ask(session, server))["response"]["allowed"] is True
    assert steps == ["total begins", "answered", "write_response begins", "write_response ends", "total ends"]


async def test_a_caller_that_does_not_wait_disturbs_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entered, go_on, measured = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(review: AdmissionReview) -> dict[str, Any]:
        entered.set()
        await go_on.wait()
        return allow(review)

    @contextmanager
    def stopwatch(name: str) -> Iterator[None]:
        yield
        if name == "total":
            measured.set()

    write(tmp_path, "first")
    async with serving(tmp_path, stopwatch=stopwatch, slow=slow, pods=deny_admin) as server:
        async with caller() as session:
            asking = asyncio.get_running_loop().create_task(ask(session, server, "/slow"))
            await entered.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        go_on.set()
        async with asyncio.timeout(10):
            await measured.wait()
        async with caller() as session:
            assert (await ask(session, server))["response"]["allowed"] is True
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


async def test_an_unreadable_review_is_answered_for_no_request(tmp_path: Path) -> None:
    write(tmp_path, "first")
    async with serving(tmp_path) as server, caller() as session:
        url = f"https://localhost:{server.port}/pods"
        for body in (b"{", b"{}", b"[]", b'{"request": 1}'):
            async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
                assert (await response.json())["response"] == {"uid": "", "allowed": True}


async def test_what_is_no_review_gets_no_answer(tmp_path: Path) -> None:
    write(tmp_path, "first")
    async with serving(tmp_path) as server, caller() as session:
        url = f"https://localhost:{server.port}/pods"
        for kind in ("text/plain", "application/json; charset=utf-8"):
            async with session.post(url, data=b"{}", headers={"Content-Type": kind}) as response:
                assert (response.status, await response.read()) == (200, b"")
        async with session.get(url) as response:
            assert response.status == 405
        async with session.post(f"https://localhost:{server.port}/other", json=REVIEW) as response:
            assert response.status == 404


async def test_a_handler_that_fails_does_not_take_the_server_down(tmp_path: Path) -> None:
    async def fails(review: AdmissionReview) -> dict[str, Any]:
        raise RuntimeError("bug")

    write(tmp_path, "first")
    async with serving(tmp_path, fails=fails, pods=deny_admin) as server, caller() as session:
        assert await ask(session, server, "/fails") == 500
        assert (await ask(session, server))["response"]["allowed"] is True


async def test_a_new_certificate_is_shown_without_dropping_a_request(tmp_path: Path) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def slow(review: AdmissionReview) -> dict[str, Any]:
        entered.set()
        await go_on.wait()
        return allow(review)

    write(tmp_path, "first")
    async with serving(tmp_path, slow=slow) as server, caller() as session, asyncio.TaskGroup() as group:
        assert await shown_name(server) == "first"
        pending = group.create_task(ask(session, server, "/slow"))
        await entered.wait()
        write(tmp_path, "second")
        async with asyncio.timeout(10):
            while server.tls.reloads == 0:  # noqa: ASYNC110 - the reload has no event
                await asyncio.sleep(0.01)
        assert await shown_name(server) == "second"
        go_on.set()
        assert (await pending)["response"]["allowed"] is True


async def test_a_certificate_with_another_type_of_key_is_shown(tmp_path: Path) -> None:
    first = write(tmp_path, "elliptic")
    telemetry = Telemetry()
    async with serving(tmp_path, telemetry=telemetry) as server:
        for pair in (make_rsa("classic"), write(tmp_path, "elliptic again"), make_rsa("classic again"), first):
            before = server.tls.reloads
            put(tmp_path, pair)
            async with asyncio.timeout(10):
                while server.tls.reloads == before:  # noqa: ASYNC110 - the reload has no event
                    await asyncio.sleep(0.01)
            assert await shown(server) == as_der(pair.certificate)
    assert b'kubetide_webhook_certificate_matches{server="webhook"} 1.0' in telemetry.render()


async def test_a_certificate_that_is_in_the_file_but_not_served_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "first")
    telemetry = Telemetry()
    monkeypatch.setattr(logging.getLogger("kubetide"), "propagate", True)
    async with serving(tmp_path, telemetry=telemetry, reload_interval=timedelta(hours=1)) as server:
        old = server.tls.context()
        monkeypatch.setattr(server.tls, "_new_context", lambda: old)
        write(tmp_path, "second")
        assert server.tls.reload()
        assert b'kubetide_webhook_certificate_matches{server="webhook"} 0.0' in telemetry.render()
        assert "the certificate in the file is not the one that is served" in caplog.messages
        assert "loaded a new certificate" not in caplog.messages
        monkeypatch.undo()
        write(tmp_path, "third")
        assert server.tls.reload()
        assert b'kubetide_webhook_certificate_matches{server="webhook"} 1.0' in telemetry.render()


async def test_a_new_certificate_that_cannot_be_used_leaves_the_old_one_in_force(tmp_path: Path) -> None:
    write(tmp_path, "first")
    async with serving(tmp_path) as server:
        (tmp_path / "tls.crt").write_text("half-writ")
        assert not server.tls.reload()
        assert await shown_name(server) == "first"
        write(tmp_path, "second")
        async with asyncio.timeout(10):
            while server.tls.reloads == 0:  # noqa: ASYNC110 - the reload has no event
                await asyncio.sleep(0.01)
        assert await shown_name(server) == "second"


async def test_a_server_without_a_certificate_reports_it_at_start(tmp_path: Path) -> None:
    server = WebhookServer(
        {}, certificate=Certificate(certificate=Pem(path=tmp_path / "tls.crt"), key=Pem(path=tmp_path / "tls.key"))
    )
    with pytest.raises(CredentialsFailed, match=r"tls\.crt"):
        await server.run()


async def test_requests_in_flight_are_answered_before_the_server_stops(tmp_path: Path) -> None:
    entered = asyncio.Event()

    async def slow(review: AdmissionReview) -> dict[str, Any]:
        entered.set()
        await asyncio.sleep(0.2)
        return allow(review)

    write(tmp_path, "first")
    async with caller() as session, asyncio.TaskGroup() as group:
        async with serving(tmp_path, slow=slow) as server:
            pending = group.create_task(ask(session, server, "/slow"))
            await entered.wait()
        assert (await pending)["response"]["allowed"] is True


def test_certificates_know_when_they_end() -> None:
    pair = issue(CA, "x", now=NOW, lifetime=timedelta(days=30))
    assert abs(expiry(pair.certificate) - NOW - timedelta(days=30)) < timedelta(seconds=2)
