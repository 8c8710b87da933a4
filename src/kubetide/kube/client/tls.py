"""TLS contexts that follow their files, and names of ciphers.

A certificate that is rotated on disk is used by the next connection.
A context is rebuilt when any of its files has changed (by time, size or inode: projected volumes swap a symlink).
Connections are pooled by context, so a new context means new connections, and requests in flight on old ones are
not disturbed.
"""

import os
import re
import ssl
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kubetide.kube.client.errors import CredentialsFailed

_GO = re.compile(
    r"TLS_(?:(?P<exchange>ECDHE)_)?(?P<key>RSA|ECDSA)_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?P<mode>GCM|CBC)_(?P<digest>SHA|SHA256|SHA384)|(?P<chacha>CHACHA20_POLY1305)(?:_SHA256)?)"
)
_OPENSSL = re.compile(r"(?:ECDHE-(?:RSA|ECDSA)-)?(?:AES(?:128|256)(?:-GCM)?-SHA(?:256|384)?|CHACHA20-POLY1305)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pem:
    """PEM text, or the file that holds it."""

    data: str = field(default="", repr=False)
    path: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.data) or self.path is not None

    def read(self) -> str:
        """Return the text."""
        if self.path is None:
            return self.data
        try:
            return self.path.read_text()
        except OSError as error:
            raise CredentialsFailed(f"cannot read {self.path}: {error.strerror}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate and its key."""

    certificate: Pem
    key: Pem


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTrust:
    """How to know the server: by a CA (the system's when none is given), or not at all."""

    ca: Pem = field(default_factory=Pem)
    insecure: bool = False


def stamp(pem: Pem) -> tuple[int, int, int] | None:
    """Return what changes when a file does; None for text in memory or a file that cannot be read now."""
    if pem.path is None:
        return None
    try:
        status = os.stat(pem.path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class ClientTls:
    """Makes the context of a client, and makes it anew when something in it changed."""

    def __init__(self, trust: ServerTrust) -> None:
        self._trust = trust
        self._context: ssl.SSLContext | None = None
        self._made_of: tuple[object, ...] = ()

    def context(self, identity: Certificate | None) -> ssl.SSLContext:
        """Return the context to connect with, presenting `identity` if there is one."""
        made_of: tuple[object, ...] = (stamp(self._trust.ca), identity)
        if identity is not None:
            made_of += (stamp(identity.certificate), stamp(identity.key))
        if self._context is None or made_of != self._made_of:
            self._context = client_context(self._trust, identity)
            self._made_of = made_of
        return self._context


def client_context(trust: ServerTrust, identity: Certificate | None) -> ssl.SSLContext:
    """Return a fresh client context."""
    try:
        context = ssl.create_default_context(cadata=trust.ca.read() if trust.ca else None)
    except ssl.SSLError as error:
        raise CredentialsFailed(f"the CA certificate cannot be used: {error}") from error
    # Cluster CAs are often older than the strict profile that Python 3.13 asks for; the chain is verified all the same.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if trust.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if identity is not None:
        load_identity(context, identity)
    return context


def load_identity(context: ssl.SSLContext, identity: Certificate) -> None:
    """Load a certificate and key into a context; the ssl module takes files only, so text passes through one."""
    try:
        with tempfile.TemporaryDirectory(prefix="kubetide-") as folder:
            chain = Path(folder) / "identity.pem"
            chain.touch(mode=0o600)
            chain.write_text(f"{identity.certificate.read()}\n{identity.key.read()}\n")
            context.load_cert_chain(chain)
    except (ssl.SSLError, OSError) as error:
        raise CredentialsFailed(f"the certificate cannot be used: {error}") from error


def shown_certificate(server: ssl.SSLContext) -> bytes:
    """Return the certificate (DER) that a client is shown: a handshake in memory shows what no attribute does."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server)
    for _ in range(10):  # it takes two or three
        try:
            theirs.do_handshake()
        except ssl.SSLWantReadError:
            with suppress(ssl.SSLWantReadError):
                ours.do_handshake()
            continue
        shown = theirs.getpeercert(binary_form=True)
        return shown or b""
    raise ssl.SSLError("the handshake does not end")


def openssl_ciphers(text: str) -> str:
    """Return the cipher list for OpenSSL; empty when nothing is known, which leaves the choice to the library.

    Names are Go's, which upstream's `--tls-ciphers` takes, or those of OpenSSL; unknown ones are left out:

        TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256          ECDHE-RSA-AES128-GCM-SHA256
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256  ECDHE-ECDSA-CHACHA20-POLY1305
        TLS_RSA_WITH_AES_256_CBC_SHA                   AES256-SHA

    The ciphers of TLS 1.3 cannot be chosen, here as there.
    """
    names = (name.strip() for name in re.split(r"[,:]", text))
    return ":".join(found for name in names if (found := _translated(name)))


def _translated(name: str) -> str:
    if _OPENSSL.fullmatch(name):
        return name
    parts = _GO.fullmatch(name)
    if parts is None:
        return ""
    prefix = f"ECDHE-{parts['key']}-" if parts["exchange"] else ""
    if parts["chacha"]:
        return f"{prefix}CHACHA20-POLY1305"
    mode = "-GCM" if parts["mode"] == "GCM" else ""
    return f"{prefix}AES{parts['bits']}{mode}-{parts['digest']}"
