"""Who we are to an API server, kept current: tokens, token files that rotate, exec plugins, client certificates.

Each kind answers two questions: what to present now, and whether presenting again makes sense after the server said
401. A token file is read again when it changes. An exec plugin is run before its credential expires and once more
after a 401; however many requests fail at once, it runs once.
"""

import asyncio
import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from kubetide.api.objects.meta import ApiObject
from kubetide.api.values.codec import decode
from kubetide.clock import Clock
from kubetide.errors import DecodeError
from kubetide.kube.client.errors import CredentialsFailed
from kubetide.kube.client.tls import Certificate, Pem, stamp

# Pairs, because impersonation repeats a name.
Headers = tuple[tuple[str, str], ...]

EXEC_INFO = "KUBERNETES_EXEC_INFO"
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# A credential that expires while the request is on its way is of no use.
EXPIRY_MARGIN = timedelta(seconds=10)
EXEC_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """What goes with one request."""

    headers: Headers = field(default=(), repr=False)
    certificate: Certificate | None = field(default=None, repr=False)


class Credentials(Protocol):
    """A source of what to present."""

    async def present(self) -> Presented:
        """Return what to present now; raises CredentialsFailed when there is nothing."""
        ...

    async def refused(self, presented: Presented) -> bool:
        """Take note that the server answered 401 to `presented`; return whether there is something new to try."""
        ...


class Static:
    """Credentials that never change: a token, a password, a certificate (whose files may), or nothing."""

    def __init__(self, headers: Headers = (), certificate: Certificate | None = None) -> None:
        self._presented = Presented(headers=headers, certificate=certificate)

    async def present(self) -> Presented:
        return self._presented

    async def refused(self, presented: Presented) -> bool:
        return False


class TokenFile:
    """A bearer token in a file that somebody else keeps current."""

    def __init__(self, path: Path, *, certificate: Certificate | None = None) -> None:
        self._pem = Pem(path=path)
        self._path = path
        self._certificate = certificate
        self._stamp: tuple[int, int, int] | None = None
        self._presented: Presented | None = None

    async def present(self) -> Presented:
        current = stamp(self._pem)
        if self._presented is None or (current is not None and current != self._stamp):
            self._presented = self._read()
            self._stamp = current
        return self._presented

    async def refused(self, presented: Presented) -> bool:
        # The file may have been replaced within one tick of its time stamp.
        self._presented = self._read()
        return self._presented.headers != presented.headers

    def _read(self) -> Presented:
        token = self._pem.read().strip()
        if not token:
            raise CredentialsFailed(f"the token file {self._path} is empty")
        return Presented(headers=bearer(token), certificate=self._certificate)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecConfig:
    """An exec plugin as a kubeconfig declares it."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = EXEC_VERSIONS[0]
    install_hint: str = ""
    interactive_mode: str = "Never"
    cluster: Mapping[str, object] | None = None
    """What the plugin learns about the cluster, where `provideClusterInfo` asks for it."""


class _ExecStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    token: str = ""
    expiration_timestamp: datetime | None = None
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(ApiObject, frozen=True, kw_only=True, gc=False):
    api_version: str = ""
    kind: str = ""
    status: _ExecStatus | None = None


class ExecPlugin:
    """Credentials from a program that is run when they are needed."""

    def __init__(self, config: ExecConfig, *, clock: Clock, certificate: Certificate | None = None) -> None:
        self._config = config
        self._clock = clock
        self._certificate = certificate
        self._lock = asyncio.Lock()
        self._presented: Presented | None = None
        self._expires: datetime | None = None

    async def present(self) -> Presented:
        async with self._lock:
            if self._presented is None or self._expired():
                await self._renew()
            assert self._presented is not None
            return self._presented

    async def refused(self, presented: Presented) -> bool:
        async with self._lock:
            if self._presented is presented:
                # Nobody has renewed since that request was sent.
                await self._renew()
            return True

    def _expired(self) -> bool:
        return self._expires is not None and self._clock.now() + EXPIRY_MARGIN >= self._expires

    async def _renew(self) -> None:
        status = self._parse(await self._run())
        certificate = self._certificate
        if status.client_certificate_data:
            certificate = Certificate(
                certificate=Pem(data=status.client_certificate_data), key=Pem(data=status.client_key_data)
            )
        self._presented = Presented(headers=bearer(status.token) if status.token else (), certificate=certificate)
        self._expires = status.expiration_timestamp

    def _parse(self, output: bytes) -> _ExecStatus:
        try:
            credential = decode(output, _ExecCredential, what=f"output of {self._config.command}")
        except DecodeError as error:
            raise CredentialsFailed(f"exec plugin {self._config.command}: {error}") from error
        if credential.kind != "ExecCredential" or credential.api_version != self._config.api_version:
            raise CredentialsFailed(
                f"exec plugin {self._config.command} answered {credential.api_version} {credential.kind}, "
                f"expected {self._config.api_version} ExecCredential"
            )
        status = credential.status or _ExecStatus()
        if not status.token and not (status.client_certificate_data and status.client_key_data):
            raise CredentialsFailed(f"exec plugin {self._config.command} gave neither a token nor a certificate")
        return status

    async def _run(self) -> bytes:
        config = self._config
        spec: dict[str, object] = {"interactive": False}
        if config.cluster is not None:
            spec["cluster"] = config.cluster
        info = {"apiVersion": config.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {**os.environ, **config.env, EXEC_INFO: msgspec.json.encode(info).decode()}
        try:
            async with asyncio.timeout(EXEC_TIMEOUT_SECONDS):
                return await _output(config, environment)
        except TimeoutError as error:
            raise CredentialsFailed(f"exec plugin {config.command} did not finish in time") from error


async def _output(config: ExecConfig, environment: Mapping[str, str]) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            config.command,
            *config.args,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        hint = f"; {config.install_hint}" if config.install_hint else ""
        raise CredentialsFailed(f"exec plugin {config.command} cannot be run: {error.strerror}{hint}") from error
    try:
        output, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        text = complaint.decode("utf-8", "replace").strip()[-300:]
        raise CredentialsFailed(f"exec plugin {config.command} failed with {process.returncode}: {text}")
    return output


class WithHeaders:
    """Other credentials with more headers: impersonation."""

    def __init__(self, inner: Credentials, headers: Headers) -> None:
        self._inner = inner
        self._headers = headers
        self._last: tuple[Presented, Presented] | None = None

    async def present(self) -> Presented:
        inner = await self._inner.present()
        if self._last is None or self._last[0] is not inner:
            shown = Presented(headers=inner.headers + self._headers, certificate=inner.certificate)
            self._last = (inner, shown)
        return self._last[1]

    async def refused(self, presented: Presented) -> bool:
        if self._last is None or self._last[1] is not presented:
            return True
        return await self._inner.refused(self._last[0])


def bearer(token: str) -> Headers:
    """Return the header of a bearer token; tokens often come with the line break of their file."""
    return (("Authorization", f"Bearer {token.strip()}"),)


def basic(username: str, password: str) -> Headers:
    """Return the header of a user name and password."""
    return (("Authorization", "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()),)
