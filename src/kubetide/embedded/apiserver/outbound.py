"""Calls that the API server makes itself: to webhooks, and to servers behind APIServices.

A service is reached at its external name, the address of its endpoints, or its cluster IP, with the TLS name
`NAME.NAMESPACE.svc`, as in a cluster. Nobody resolves cluster names here, so a webhook on the same machine is best
given by URL.
"""

import base64
import binascii
import ssl
from functools import lru_cache

import aiohttp
from yarl import URL

from kubetide.embedded.apiserver.admission.admission import HookFailed
from kubetide.embedded.apiserver.admission.webhooks import Hook
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.rest.status import Raw, unavailable
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.objects import ObjectStore, ResourceKey, StoreKey
from kubetide.kube.wire import wire_seconds, wire_timeout

_SERVICES = ResourceKey("", "services")
_ENDPOINTS = ResourceKey("", "endpoints")
_REVIEW_LIMIT = 8 * 1024 * 1024
_FORWARD_LIMIT = 64 * 1024 * 1024
_FORWARD_SECONDS = 30.0


class Outbound:
    """An HTTPS client on behalf of one API server."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._session: aiohttp.ClientSession | None = None

    def attach(self) -> None:
        """Let the API server call out."""
        self._api.admission.remote = self.call_webhook
        self._api.conversions.remote = self.post
        self._api.forward = self.forward

    async def close(self) -> None:
        """Stop calling out."""
        self._api.admission.remote = None
        self._api.conversions.remote = None
        self._api.forward = None
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call_webhook(self, hook: Hook, body: bytes) -> bytes:
        """Send a review to an admission webhook and return its answer."""
        return await self.post(hook.client, body)

    async def post(self, config: Raw, body: bytes) -> bytes:
        """Send a review to where a client configuration says and return the answer."""
        try:
            url, name = _webhook_address(self._api.store, config)
            context = _context(str(config.get("caBundle") or ""))
            async with self._client().post(
                url, data=body, headers={"Content-Type": "application/json"}, ssl=context, server_hostname=name
            ) as response:
                answer = await _read(response, _REVIEW_LIMIT)
                if response.status != 200:
                    text = answer[:200].decode("utf-8", "replace")
                    raise HookFailed(f"the webhook answered {response.status}: {text}")
                return answer
        except (aiohttp.ClientError, OSError, ValueError, ssl.SSLError) as error:
            raise HookFailed(f"{type(error).__name__}: {error}") from error

    async def forward(self, service: Raw, request: Request) -> Answer:
        """Send a request on to the server behind an APIService."""
        spec = service.get("spec") or {}
        reference = spec.get("service") or {}
        name = f"{reference.get('name')}.{reference.get('namespace')}.svc"
        try:
            host, port = service_address(self._api.store, reference)
            context = _context(str(spec.get("caBundle") or ""), insecure=bool(spec.get("insecureSkipTLSVerify")))
            url = URL.build(scheme="https", host=host, port=port, path=request.path, encoded=True)
            async with (
                wire_timeout(_FORWARD_SECONDS),
                self._client().request(
                    request.method,
                    url.with_query(dict(request.query)),
                    data=request.body,
                    headers=_forwarded_headers(request),
                    ssl=context,
                    server_hostname=name,
                ) as response,
            ):
                body = await _read(response, _FORWARD_LIMIT)
                return Answer(response.status, body, response.headers.get("Content-Type", "application/json"))
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
            raise unavailable(f"the server behind {name} cannot be reached: {error}") from error

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=wire_seconds(10))
            )
        return self._session


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > limit:
            raise ValueError(f"the answer is longer than {limit} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _forwarded_headers(request: Request) -> dict[str, str]:
    headers = {"Accept": request.accept, "X-Remote-User": request.user.name}
    if request.user.groups:
        headers["X-Remote-Group"] = ",".join(request.user.groups)
    if request.body is not None:
        headers["Content-Type"] = request.content_type
    return headers


def _webhook_address(store: ObjectStore, config: Raw) -> tuple[URL, str | None]:
    if config.get("url"):
        url = URL(str(config["url"]))
        if url.scheme != "https":
            raise ValueError("a webhook is called over https")
        return url, None
    reference = config.get("service") or {}
    host, port = service_address(store, reference)
    url = URL.build(scheme="https", host=host, port=port, path=str(reference.get("path") or "/"))
    return url, f"{reference.get('name')}.{reference.get('namespace')}.svc"


def service_address(store: ObjectStore, reference: Raw) -> tuple[str, int]:
    """Return host and port of a service reference; raise ValueError if it leads nowhere."""
    namespace, name = str(reference.get("namespace")), str(reference.get("name"))
    port = int(reference.get("port") or 443)
    entry = store.get(_SERVICES, StoreKey(namespace, name))
    if entry is None:
        raise ValueError(f'service "{name}" not found')
    spec = entry.obj.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName")), port
    endpoints = store.get(_ENDPOINTS, StoreKey(namespace, name))
    for subset in (endpoints.obj.get("subsets") or ()) if endpoints is not None else ():
        addresses, ports = subset.get("addresses") or (), subset.get("ports") or ()
        if addresses and ports:
            return str(addresses[0].get("ip")), int(ports[0].get("port"))
    address = spec.get("clusterIP")
    if address and address != "None":
        return str(address), port
    raise ValueError(f'no endpoints available for service "{name}"')


@lru_cache(maxsize=64)
def _context(bundle: str, *, insecure: bool = False) -> ssl.SSLContext:
    """Return a TLS context that trusts a base64 CA bundle, or the system's CAs without one."""
    if insecure:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if not bundle:
        return ssl.create_default_context()
    try:
        text = base64.b64decode(bundle, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(f"the CA bundle cannot be read: {error}") from error
    return ssl.create_default_context(cadata=text)
