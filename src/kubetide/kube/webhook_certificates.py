"""Certificates that kubetide makes for its webhooks: kept in a Secret, rotated, written to files for the server.

All replicas share the Secret. Whoever rotates writes it with its resource version; who loses the race reads what the
other one wrote.
"""

import base64
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from kubetide.api.objects.scheme import SECRETS
from kubetide.clock import Clock
from kubetide.kube.certificate_rotation import NOTICE, Lifetimes, Rotation, next_rotation
from kubetide.kube.client.certificates import KeyPair, expiry, issue, make_ca
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, Conflict, NotFound
from kubetide.kube.client.tls import Certificate, Pem
from kubetide.log import get_logger

log = get_logger("webhook")

CA_CERT, CA_KEY, SERVER_CERT, SERVER_KEY = "caCert.pem", "caKey.pem", "serverCert.pem", "serverKey.pem"
NEXT_CA_CERT, NEXT_CA_KEY, OLD_CA_CERT = "nextCaCert.pem", "nextCaKey.pem", "previousCaCert.pem"
STAGED_AT = "kubetide.io/staged-at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The certificates of the webhook. `staged` is a CA that is trusted but does not sign yet."""

    ca: KeyPair
    server: KeyPair
    staged: KeyPair | None = None
    staged_at: datetime | None = None
    previous_ca: str = ""

    @property
    def trusted(self) -> str:
        """The CAs that the API server gets to trust, as PEM text."""
        parts = [self.ca.certificate, self.staged.certificate if self.staged else "", self.previous_ca]
        return "".join(part if part.endswith("\n") else f"{part}\n" for part in parts if part)


class Certificates:
    """Keeps the bundle of a webhook in a Secret and its server certificate in files."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        namespace: str,
        secret: str,
        dns_names: Sequence[str],
        addresses: Sequence[str] = (),
        server_lifetime: timedelta,
        ca_lifetime: timedelta,
        notice: timedelta = NOTICE,
        ca_name: str = "kubetide_webhook_ca",
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._secret = secret
        self._dns_names = tuple(dns_names)
        self._addresses = tuple(addresses)
        self._server_lifetime = server_lifetime
        self._ca_lifetime = ca_lifetime
        self._notice = notice
        self._ca_name = ca_name
        self._folder = tempfile.TemporaryDirectory(prefix="kubetide-webhook-")
        self._written: KeyPair | None = None
        self._version = ""
        self.bundle: Bundle | None = None

    @property
    def files(self) -> Certificate:
        """Where the server finds its certificate."""
        folder = Path(self._folder.name)
        return Certificate(certificate=Pem(path=folder / SERVER_CERT), key=Pem(path=folder / SERVER_KEY))

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    async def refresh(self) -> bool:
        """Read, make or rotate the certificates; return whether anything changed."""
        before = self.bundle
        bundle = await self._read()
        if bundle is None:
            bundle = await self._create()
        else:
            bundle = await self._rotate(bundle)
        self.bundle = bundle
        self._write_files(bundle.server)
        return bundle != before

    async def _rotate(self, bundle: Bundle) -> Bundle:
        lifetimes = Lifetimes(
            ca_expires=expiry(bundle.ca.certificate),
            ca_lifetime=self._ca_lifetime,
            server_expires=expiry(bundle.server.certificate),
            server_lifetime=self._server_lifetime,
            staged_at=bundle.staged_at if bundle.staged is not None else None,
        )
        match next_rotation(lifetimes, now=self._clock.now(), notice=self._notice):
            case Rotation.KEEP:
                return bundle
            case Rotation.STAGE:
                return await self._store(self._staged(bundle))
            case Rotation.SWITCH:
                assert bundle.staged is not None
                ca = bundle.staged
                made = Bundle(ca=ca, server=self._issue(ca), previous_ca=bundle.ca.certificate)
                return await self._store(made)
            case Rotation.RENEW:
                return await self._store(replace(bundle, server=self._issue(bundle.ca)))

    def _staged(self, bundle: Bundle) -> Bundle:
        now = self._clock.now()
        staged = make_ca(self._ca_name, now=now, lifetime=self._ca_lifetime)
        return replace(bundle, staged=staged, staged_at=now)

    def _issue(self, ca: KeyPair) -> KeyPair:
        return issue(
            ca,
            self._dns_names[0] if self._dns_names else "webhook",
            now=self._clock.now(),
            dns_names=self._dns_names,
            addresses=self._addresses,
            lifetime=self._server_lifetime,
        )

    async def _read(self) -> Bundle | None:
        try:
            raw = await self._client.get_raw(SECRETS, self._secret, namespace=self._namespace)
        except NotFound:
            return None
        self._version = str((raw.get("metadata") or {}).get("resourceVersion") or "")
        data = {name: base64.b64decode(text).decode() for name, text in (raw.get("data") or {}).items()}
        if not all(data.get(name) for name in (CA_CERT, CA_KEY, SERVER_CERT, SERVER_KEY)):
            return None
        annotations = (raw.get("metadata") or {}).get("annotations") or {}
        staged_at = annotations.get(STAGED_AT)
        staged = None
        if data.get(NEXT_CA_CERT) and data.get(NEXT_CA_KEY) and staged_at:
            staged = KeyPair(certificate=data[NEXT_CA_CERT], key=data[NEXT_CA_KEY])
        return Bundle(
            ca=KeyPair(certificate=data[CA_CERT], key=data[CA_KEY]),
            server=KeyPair(certificate=data[SERVER_CERT], key=data[SERVER_KEY]),
            staged=staged,
            staged_at=datetime.fromisoformat(staged_at) if staged is not None and staged_at else None,
            previous_ca=data.get(OLD_CA_CERT, ""),
        )

    async def _create(self) -> Bundle:
        now = self._clock.now()
        ca = make_ca(self._ca_name, now=now, lifetime=self._ca_lifetime)
        return await self._store(Bundle(ca=ca, server=self._issue(ca)))

    async def _store(self, bundle: Bundle) -> Bundle:
        body = self._body(bundle)
        try:
            if self._version:
                body["metadata"]["resourceVersion"] = self._version
                await self._client.update(SECRETS, self._secret, body, namespace=self._namespace)
            else:
                await self._client.create(SECRETS, body, namespace=self._namespace)
        except (Conflict, AlreadyExists):
            log.info("another replica was faster with the certificates")
            return await self._read() or bundle
        log.info("wrote certificates", secret=f"{self._namespace}/{self._secret}")
        return bundle

    def _body(self, bundle: Bundle) -> dict[str, Any]:
        data = {
            CA_CERT: bundle.ca.certificate,
            CA_KEY: bundle.ca.key,
            SERVER_CERT: bundle.server.certificate,
            SERVER_KEY: bundle.server.key,
            NEXT_CA_CERT: bundle.staged.certificate if bundle.staged else "",
            NEXT_CA_KEY: bundle.staged.key if bundle.staged else "",
            OLD_CA_CERT: bundle.previous_ca,
        }
        metadata: dict[str, Any] = {"name": self._secret, "namespace": self._namespace}
        if bundle.staged_at is not None:
            metadata["annotations"] = {STAGED_AT: bundle.staged_at.isoformat()}
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items() if text}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": encoded}

    def _write_files(self, server: KeyPair) -> None:
        if server == self._written:
            return
        folder = Path(self._folder.name)
        for name, text in ((SERVER_KEY, server.key), (SERVER_CERT, server.certificate)):
            path = folder / f".{name}"
            path.touch(mode=0o600)
            path.write_text(text)
            path.replace(folder / name)
        self._written = server
