"""API aggregation: requests for some groups are answered by another server, as an APIService says.

How to reach that server is the HTTP shell's business (`outbound.py`); here is what discovery learns from it.
"""

from collections.abc import Awaitable, Callable

import msgspec

from kubetide.embedded.apiserver.discovery import Listed
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.rest.status import Raw, StatusError

Forward = Callable[[Raw, Request], Awaitable[Answer]]


async def discover(forward: Forward, service: Raw, group: str, version: str) -> list[Listed]:
    """Return the resources that an aggregated server lists; none while it cannot be reached."""
    try:
        answer = await forward(service, Request("GET", f"/apis/{group}/{version}"))
        body = msgspec.json.decode(answer.body) if answer.status == 200 else {}
    except (StatusError, msgspec.DecodeError):
        return []
    return [
        Listed(
            str(item.get("name")),
            str(item.get("kind")),
            bool(item.get("namespaced")),
            tuple(item.get("verbs") or ()),
            str(item.get("group") or group),
            str(item.get("version") or version),
            str(item.get("singularName") or ""),
            tuple(item.get("shortNames") or ()),
            tuple(item.get("categories") or ()),
        )
        for item in body.get("resources") or ()
        if isinstance(item, dict)
    ]
