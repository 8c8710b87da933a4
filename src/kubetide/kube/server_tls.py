"""The TLS side of an HTTPS server whose certificate, and whose trusted clients, may change while it runs.

A new certificate gets a TLS context of its own: connections that exist go on with the old one, the next handshake
shows the new one, and no request is dropped. (One context keeps a certificate per type of key, so an RSA one loaded
beside an EC one might never be shown.) Files that are half-written or wrong are reported and the old certificate stays
in force.

After every rotation the server shakes hands with itself in memory, and what it shows is compared with the file. A
mismatch is reported in the log and in `kubetide_webhook_certificate_matches`.
"""

import ssl
from asyncio import sslproto
from collections.abc import Callable

from kubetide.kube.client.certificates import as_der
from kubetide.kube.client.errors import CredentialsFailed
from kubetide.kube.client.tls import Certificate, load_identity, shown_certificate, stamp
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry

log = get_logger("webhook")


def use_small_buffers() -> None:
    """Have TLS connections of this process read in pieces of 16 KiB, the largest record there is.

    asyncio keeps a buffer of 256 KiB for each, which is a gigabyte for thousands of agents that send a kilobyte now and
    then. (uvloop has buffers of its own.)
    """
    sslproto.SSLProtocol.max_size = 16 * 1024


class ServerTls:
    """The TLS context for the next connection, from the files as they are now."""

    def __init__(
        self,
        certificate: Certificate,
        *,
        name: str,
        min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        ciphers: str = "",
        client_ca: Callable[[], str] = str,
        require_client: bool = True,
        telemetry: Telemetry | None = None,
    ) -> None:
        """`client_ca` gives the CAs of clients as PEM text; with any, a client must show a certificate of theirs, or
        without `require_client` may show one."""
        self.reloads = 0
        self._certificate = certificate
        self._name = name
        self._min_version = min_version
        self._ciphers = ciphers
        self._client_ca = client_ca
        self._require_client = require_client
        self._matches = (telemetry or Telemetry()).gauge(
            "kubetide_webhook_certificate_matches",
            "1 while the certificate that the webhook shows is the one in its file.",
            ("server",),
        )
        self._context: ssl.SSLContext | None = None
        self._made_of: tuple[object, ...] = ()

    def load(self) -> None:
        """Make the first context; raises CredentialsFailed where that cannot be."""
        self._made_of = self._sources()
        self._context = self._new_context()
        self.check()

    def reload(self) -> bool:
        """Load the certificate again if its files changed, or the CAs of clients; return whether it did."""
        made_of = self._sources()
        if made_of == self._made_of:
            return False
        try:
            self._context = self._new_context()
        except CredentialsFailed as error:
            log.warning("new certificate cannot be used, keeping the old one", server=self._name, error=str(error))
            return False
        self._made_of = made_of
        self.reloads += 1
        if self.check():
            log.info("loaded a new certificate", server=self._name)
        return True

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for the next connection."""
        assert self._context is not None, "a server that runs has a certificate"
        return self._context

    def check(self) -> bool:
        """Compare the certificate that is shown with the one in the file; report and measure a mismatch."""
        problem = ""
        try:
            if shown_certificate(self.context()) != as_der(self._certificate.certificate.read()):
                problem = "the handshake shows another certificate"
        except (ssl.SSLError, ValueError, CredentialsFailed) as error:
            problem = str(error)
        self._matches.labels(self._name).set(0 if problem else 1)
        if problem:
            log.error("the certificate in the file is not the one that is served", server=self._name, error=problem)
        return not problem

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._min_version
        if self._ciphers:
            context.set_ciphers(self._ciphers)
        if trusted := self._client_ca():
            try:
                context.load_verify_locations(cadata=trusted)
            except ssl.SSLError as error:
                raise CredentialsFailed(f"the CA of clients cannot be used: {error}") from error
            context.verify_mode = ssl.CERT_REQUIRED if self._require_client else ssl.CERT_OPTIONAL
            # Cluster CAs are often older than the strict profile that Python 3.13 asks for.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        load_identity(context, self._certificate)
        return context

    def _sources(self) -> tuple[object, ...]:
        return stamp(self._certificate.certificate), stamp(self._certificate.key), self._client_ca()
