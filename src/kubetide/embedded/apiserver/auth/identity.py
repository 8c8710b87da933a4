"""What makes a server the same server after a restart: its CA, its administrator's token, its signing key.

All of it is kept in the data directory, apart from the objects; without one it is made anew. The kubeconfig that is
written from it goes on working as long as the data directory lives.
"""

import base64
import ipaddress
import secrets
import ssl
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from kubetide.embedded.apiserver.storage.datadir import read_keys, write_keys
from kubetide.embedded.apiserver.storage.journal import Journal
from kubetide.errors import InvalidInput
from kubetide.kube.client.certificates import KeyPair, issue, make_ca
from kubetide.kube.client.kubeconfig import EXPLAIN_EXTENSION

_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
_SECRETS = ("ca.crt", "ca.key", "admin.token", "token.key")
_FACTS = ("ca.crt", "ca.key", "token", "token.key")


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

    def kubeconfig(self, url: str, *, explain: str = "") -> str:
        """Return a kubeconfig for the administrator; it announces where kubetide explains itself, if it does."""
        authority = base64.b64encode(self.ca.certificate.encode()).decode()
        cluster: dict[str, Any] = {"server": url, "certificate-authority-data": authority}
        if explain:
            cluster["extensions"] = [{"name": EXPLAIN_EXTENSION, "extension": {"address": explain}}]
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kubetide", "cluster": cluster}],
            "users": [{"name": "kubetide", "user": {"token": self.token}}],
            "contexts": [{"name": "kubetide", "context": {"cluster": "kubetide", "user": "kubetide"}}],
            "current-context": "kubetide",
        }
        return yaml.safe_dump(config, sort_keys=False)


def make_identity(journal: Journal | None, *, now: datetime) -> Identity:
    """Return the identity kept beside a journal, or a new one, kept from then on."""
    if journal is None:
        return _new_identity(now)
    kept = read_keys(journal.directory, _SECRETS)
    if kept is None:
        kept = _kept_among_objects(journal) or _secrets_of(_new_identity(now))
        write_keys(journal.directory, dict(zip(_SECRETS, kept, strict=True)))
    journal.erase_facts(*_FACTS)
    certificate, key, token, token_key = kept
    try:
        return Identity(KeyPair(certificate=certificate, key=key), token, bytes.fromhex(token_key))
    except ValueError as error:
        raise InvalidInput("token.key is not a key", subject=str(journal.directory)) from error


def _new_identity(now: datetime) -> Identity:
    return Identity(make_ca("kubetide-ca", now=now), secrets.token_urlsafe(32), secrets.token_bytes(32))


def _secrets_of(identity: Identity) -> tuple[str, ...]:
    return identity.ca.certificate, identity.ca.key, identity.token, identity.token_key.hex()


def _kept_among_objects(journal: Journal) -> tuple[str, ...] | None:
    """Return the secrets of a data directory of a version that kept them in the database."""
    kept = [value for value in map(journal.fact, _FACTS) if value]
    return tuple(kept) if len(kept) == len(_FACTS) else None
