"""Who asks: the API server on behalf of somebody, the owner of a client certificate, or the bearer of a token.

In this order, as API servers do it. A front proxy is known by its certificate alone; without it its headers are passed
over, and a request that has nothing else is answered 401. Tokens are reviewed by the API server (TokenReview), and the
review is kept for `--authentication-token-webhook-cache-ttl`; a review that fails is never kept.

A certificate counts when a CA of the ConfigMap has signed it directly.
"""

import hashlib
import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from aiohttp import web
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from kubetide.api.values.codec import decode_raw, encode
from kubetide.clock import Clock
from kubetide.kube.client.client import Client
from kubetide.metrics.answer_cache import AnswerCache
from kubetide.metrics.core.identity import TrustedProxies, User, vouched_user

_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_AUTHENTICATED, _ANONYMOUS = "system:authenticated", "system:anonymous"


class Authenticator:
    """Finds out who a request is from."""

    def __init__(
        self, client: Client, clock: Clock, proxies: Callable[[], TrustedProxies], *, token_ttl: timedelta
    ) -> None:
        self._client = client
        self._proxies = proxies
        self._tokens: AnswerCache[User | None] = AnswerCache(clock, lambda _: token_ttl)
        self._certificates: AnswerCache[tuple[str, tuple[str, ...], bool, bool]] = AnswerCache(
            clock, lambda _: timedelta(minutes=5)
        )

    async def user_of(self, request: web.Request) -> User | None:
        """Return who asks; None if nothing proves it. Raises where the API server cannot be asked."""
        shown = _shown(request)
        if shown is not None and (found := await self._by_certificate(shown, request)) is not None:
            return found
        return await self.bearer(request)

    async def bearer(self, request: web.Request, audiences: Sequence[str] = ()) -> User | None:
        """Return the owner of the request's bearer token, if it is meant for one of the audiences."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None
        digest = hashlib.sha256(token.strip().encode()).digest()
        return await self._tokens.get((digest, tuple(audiences)), lambda: self._review(token.strip(), audiences))

    async def _review(self, token: str, audiences: Sequence[str]) -> User | None:
        spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
        body = encode({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec})
        answer = decode_raw((await self._client.request("POST", _REVIEWS, body=body)).body, what=_REVIEWS)
        status = answer.get("status") or {}
        if not status.get("authenticated"):
            return None
        if audiences and not set(audiences) & set(status.get("audiences") or ()):
            # A server that knows nothing of audiences has not looked at them.
            return None
        user = status.get("user") or {}
        return User(
            name=str(user.get("username") or ""),
            groups=tuple(user.get("groups") or ()),
            uid=str(user.get("uid") or ""),
            extra={key: tuple(values) for key, values in (user.get("extra") or {}).items()},
        )

    async def _by_certificate(self, shown: bytes, request: web.Request) -> User | None:
        proxies = self._proxies()

        async def examine() -> tuple[str, tuple[str, ...], bool, bool]:
            return _examined(shown, proxies)

        key = (hashlib.sha256(shown).digest(), proxies.proxy_ca, proxies.client_ca)
        name, groups, is_proxy, is_client = await self._certificates.get(key, examine)
        if is_proxy and (not proxies.allowed_names or name in proxies.allowed_names):
            vouched = vouched_user(proxies, list(request.headers.items()))
            if vouched is not None:
                return _authenticated(vouched)
        return _authenticated(User(name=name, groups=groups)) if is_client and name else None


def _authenticated(user: User) -> User:
    """Return a user in the group of all who proved who they are; the front proxy names only the others."""
    if user.name == _ANONYMOUS or _AUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, _AUTHENTICATED))


def _shown(request: web.Request) -> bytes | None:
    """Return the certificate that the peer showed in its handshake, which a CA that we trust has signed."""
    transport = request.transport
    session: ssl.SSLObject | None = transport.get_extra_info("ssl_object") if transport is not None else None
    return session.getpeercert(binary_form=True) if session is not None else None


def _examined(shown: bytes, proxies: TrustedProxies) -> tuple[str, tuple[str, ...], bool, bool]:
    """Return common name and organizations of a certificate, and whether it is of a proxy or of a client."""
    certificate = x509.load_der_x509_certificate(shown)
    subject = certificate.subject
    names = [str(each.value) for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = tuple(str(each.value) for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    is_proxy, is_client = (_signed(certificate, ca) for ca in (proxies.proxy_ca, proxies.client_ca))
    return names[0] if names else "", groups, is_proxy, is_client


def _signed(certificate: x509.Certificate, authorities: str) -> bool:
    if not authorities.strip():
        return False
    for authority in x509.load_pem_x509_certificates(authorities.encode()):
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False
