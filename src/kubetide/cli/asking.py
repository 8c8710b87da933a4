"""Questions to a running kubetide over HTTP: where it listens, what it answers, and what its silence means.

Two processes may know about one object: of a pod the updater knows the size and the agent of its node the QoS class,
of a node the SLO controller knows what is overcommitted and the agent what it wrote. `join` puts their halves together.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from kubetide.errors import InvalidInput, KubetideError, Unavailable

Read = Callable[[str, int, bytes], Any]
"""Where an answer is from, its status and its body, to what it says."""


def base_url(address: str) -> str:
    """Return the URL of an address as people type it: `:8941`, `127.0.0.1:8941`, `http://…` or `https://…`."""
    text = f"127.0.0.1{address}" if address.startswith(":") else address
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise InvalidInput(f"{address!r} is not an address such as 127.0.0.1:8941 or http://127.0.0.1:8941")
    return url.rstrip("/")


async def get_json(
    address: str,
    path: str,
    *,
    token: str = "",
    seconds: float = 10.0,
    read: "Read | None" = None,
) -> Any:
    """Return what is answered, as JSON or as `read` finds it, or None where it is not known there.

    Raises `Unavailable` where nobody answers, and `KubetideError` for an answer that is a refusal.
    """
    import aiohttp

    from kubetide.kube.client.http import why

    url = base_url(address)
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds), headers=headers) as session,
            session.get(f"{url}{path}") as response,
        ):
            body = await response.read()
            status = response.status
    except TimeoutError as error:
        raise Unavailable(f"nothing answers at {url} within {seconds:g} s") from error
    except aiohttp.ClientError as error:
        raise Unavailable(f"nothing answers at {url}: {why(error)}") from error
    return (read or read_json)(url, status, body)


def read_json(where: str, status: int, body: bytes) -> Any:
    """Return the content of an answer, None where it says that the question concerns nothing known there."""
    import msgspec

    if status == 404:
        return None
    if status in (401, 403):
        raise KubetideError(f"{where} answers on loopback only, or to its token: pass --token")
    if status != 200:
        raise KubetideError(f"{where} answers {status}: {body.decode(errors='replace')[:200]}")
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KubetideError(f"{where} is not a kubetide: its answer is not JSON") from error


def join(kind: str, controller: dict[str, Any] | None, agent: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return one answer of the two halves; an agent's half of a pod is kept apart, for both know a priority."""
    if agent is None or (controller is not None and kind not in ("node", "pod")):
        return controller
    if kind == "pod":
        return {**(controller or {}), "agent": agent}
    return {**agent, **(controller or {})}
