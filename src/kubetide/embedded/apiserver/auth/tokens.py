"""Bearer tokens: fixed ones for administrators, signed ones for service accounts.

A service-account token is a JWT signed with the server's own key (HS256: the server is the only one who checks it).
It is good while it has not expired and its service account still exists under the same uid.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import msgspec

from kubetide.clock import Clock
from kubetide.embedded.apiserver.auth.rbac import service_account
from kubetide.embedded.apiserver.rest.requests import Request, RequestTarget, User
from kubetide.embedded.apiserver.rest.status import Raw, bad_request, not_found
from kubetide.embedded.apiserver.storage.objects import ObjectStore, ResourceKey, StoreKey

SERVICE_ACCOUNTS = ResourceKey("", "serviceaccounts")
ISSUER = "https://kubernetes.default.svc"
_SHORTEST, _DEFAULT = 600, 3600


class Tokens:
    """Knows whose a token is, and makes new ones."""

    def __init__(
        self, store: ObjectStore, clock: Clock, key: bytes, fixed: Mapping[str, User] = MappingProxyType({})
    ) -> None:
        self._store = store
        self._clock = clock
        self._key = key
        self._fixed = dict(fixed)

    def add_fixed(self, token: str, user: User) -> None:
        """Accept a token that does not expire."""
        self._fixed[token] = user

    def user_of(self, token: str) -> User | None:
        """Return who presents a token, or None if it is worth nothing."""
        for known, user in self._fixed.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                return user
        claims = self._claims(token)
        if claims is None or float(claims.get("exp") or 0) < self._clock.now().timestamp():
            return None
        bound = claims.get("kubernetes.io") or {}
        account = bound.get("serviceaccount") or {}
        namespace, name = str(bound.get("namespace")), str(account.get("name"))
        entry = self._store.get(SERVICE_ACCOUNTS, StoreKey(namespace, name))
        if entry is None or entry.obj["metadata"]["uid"] != account.get("uid"):
            return None
        return service_account(namespace, name, str(account.get("uid")))

    def make(self, namespace: str, name: str, lifetime: timedelta) -> tuple[str, datetime]:
        """Return a new token of a service account, and when it expires."""
        entry = self._store.get(SERVICE_ACCOUNTS, StoreKey(namespace, name))
        if entry is None:
            raise not_found("", "serviceaccounts", name)
        now = self._clock.now()
        expires = now + lifetime
        claims = {
            "iss": ISSUER,
            "aud": [ISSUER],
            "sub": f"system:serviceaccount:{namespace}:{name}",
            "iat": int(now.timestamp()),
            "nbf": int(now.timestamp()),
            "exp": int(expires.timestamp()),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": entry.obj["metadata"]["uid"]},
            },
        }
        head = _encode(msgspec.json.encode({"alg": "HS256", "typ": "JWT"}))
        body = f"{head}.{_encode(msgspec.json.encode(claims))}"
        return f"{body}.{_encode(self._sign(body))}", expires

    def request_token(self, request: Request, target: RequestTarget, body: Raw) -> Raw:
        """Answer a TokenRequest."""
        seconds = (body.get("spec") or {}).get("expirationSeconds") or _DEFAULT
        if not isinstance(seconds, int) or seconds < _SHORTEST:
            raise bad_request(f"spec.expirationSeconds: must be at least {_SHORTEST}")
        token, expires = self.make(target.namespace, target.name, timedelta(seconds=seconds))
        stamp = expires.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            **body,
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "status": {"token": token, "expirationTimestamp": stamp},
        }

    def review(self, request: Request, target: RequestTarget, body: Raw) -> Raw:
        """Answer a TokenReview."""
        user = self.user_of(str((body.get("spec") or {}).get("token") or ""))
        if user is None:
            return {**body, "status": {"authenticated": False, "error": "invalid bearer token"}}
        info = {"username": user.name, "groups": list(user.groups), "uid": user.uid}
        return {**body, "status": {"authenticated": True, "user": info}}

    def _claims(self, token: str) -> Raw | None:
        body, _, signature = token.rpartition(".")
        if not body or not hmac.compare_digest(_encode(self._sign(body)), signature):
            return None
        try:
            payload = body.partition(".")[2]
            claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (binascii.Error, ValueError, msgspec.DecodeError):
            return None
        return claims if isinstance(claims, dict) else None

    def _sign(self, body: str) -> bytes:
        return hmac.new(self._key, body.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
