"""What makes a server the same server after a restart: its CA, its administrator's token, its signing key.

All of it is kept in the journal's facts; without a journal it is made anew. The kubeconfig that is written from it
goes on working as long as the data directory lives.
"""

import base64
import ipaddress
import os
import secrets
import ssl
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import yaml

from kubetide.embedded.journal import Journal
from kubetide.kube.certificates import KeyPair, issue, make_ca

_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")


@dataclass(frozen=True, slots=True)
class Identity:
    """The secrets of one embedded API server."""

    ca: KeyPair
    token: str
    token_key: bytes

    def tls(self, host: str, *, now: datetime) -> ssl.SSLContext:
        """Return the TLS context of a server on `host`, which also reads client certificates of the same CA."""
        addresses, names = {"127.0.0.1", "::1"}, list(_NAMES)
        try:
            addresses.add(str(ipaddress.ip_address(host)))
        except ValueError:
            names.append(host)
        server = issue(self.ca, "kube-apiserver", now=now, dns_names=names, addresses=sorted(addresses))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # The ssl module reads keys from files only.
        with tempfile.TemporaryDirectory(prefix="kubetide-") as directory:
            certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
            certificate.write_text(server.certificate)
            key.touch(mode=0o600)
            key.write_text(server.key)
            context.load_cert_chain(certificate, key)
        context.load_verify_locations(cadata=self.ca.certificate)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def kubeconfig(self, url: str) -> str:
        """Return a kubeconfig for the administrator."""
        authority = base64.b64encode(self.ca.certificate.encode()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kubetide", "cluster": {"server": url, "certificate-authority-data": authority}}],
            "users": [{"name": "kubetide", "user": {"token": self.token}}],
            "contexts": [{"name": "kubetide", "context": {"cluster": "kubetide", "user": "kubetide"}}],
            "current-context": "kubetide",
        }
        return yaml.safe_dump(config, sort_keys=False)


def make_identity(journal: Journal | None, *, now: datetime) -> Identity:
    """Return the identity kept in a journal, or a new one, kept from then on."""
    if journal is not None:
        kept = [journal.fact(name) for name in ("ca.crt", "ca.key", "token", "token.key")]
        if all(kept):
            certificate, key, token, token_key = (str(value) for value in kept)
            return Identity(KeyPair(certificate=certificate, key=key), token, bytes.fromhex(token_key))
    identity = Identity(make_ca("kubetide-ca", now=now), secrets.token_urlsafe(32), secrets.token_bytes(32))
    if journal is not None:
        journal.set_fact("ca.crt", identity.ca.certificate)
        journal.set_fact("ca.key", identity.ca.key)
        journal.set_fact("token", identity.token)
        journal.set_fact("token.key", identity.token_key.hex())
    return identity


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).replace(path)
