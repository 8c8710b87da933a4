"""Signatures of AWS (SigV4), for Prometheus as a managed service there.

A request is reduced to a canonical text; its digest, the time and the scope (day, region, service) are signed with a
key that is derived from the secret for that scope alone. All of it is HMAC-SHA-256 of the standard library.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsCredentials:
    """Who signs, and for what."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)
    region: str
    service: str = "aps"


def signed_headers(
    credentials: AwsCredentials, method: str, url: str, body: bytes, headers: Mapping[str, str], *, now: datetime
) -> dict[str, str]:
    """Return what to add to the headers of a request so that AWS knows who sends it; all `headers` are signed."""
    parts = urlsplit(url)
    at = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{at[:8]}/{credentials.region}/{credentials.service}/aws4_request"
    added = {"X-Amz-Date": at}
    if credentials.session_token:
        added["X-Amz-Security-Token"] = credentials.session_token
    signed = {name.lower(): " ".join(value.split()) for name, value in {**headers, **added}.items()}
    signed["host"] = parts.netloc
    names = ";".join(sorted(signed))
    query = sorted((quote(key, safe="-_.~"), quote(value, safe="-_.~")) for key, value in parse_qsl(parts.query, True))
    canonical = "\n".join(
        (
            method,
            quote(parts.path or "/", safe="/-_.~"),
            "&".join(f"{key}={value}" for key, value in query),
            "".join(f"{name}:{signed[name]}\n" for name in sorted(signed)),
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    text = "\n".join((_ALGORITHM, at, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    authorization = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return {**added, "Authorization": authorization}
