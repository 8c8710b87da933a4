"""The audit log: one JSON line per request, in the shape of audit.k8s.io/v1 events at the Metadata level."""

from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from kubetide.clock import Clock
from kubetide.embedded.rbac import attributes_of
from kubetide.embedded.requests import Request, parse_target
from kubetide.embedded.status import Raw, Refusal


class AuditLog:
    """Appends to a file. Call it with a request and the status of its answer."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file: IO[bytes] = path.open("ab")
        self._clock = clock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __call__(self, request: Request, status: int) -> None:
        self._file.write(msgspec.json.encode(self._event(request, status)) + b"\n")
        self._file.flush()

    def _event(self, request: Request, status: int) -> Raw:
        try:
            target = parse_target(request.path)
        except Refusal:
            target = None
        wanted = attributes_of(request, target)
        event: Raw = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "stage": "ResponseComplete",
            "requestURI": request.path,
            "verb": wanted.verb,
            "user": {"username": request.user.name, "groups": list(request.user.groups)},
            "userAgent": request.user_agent,
            "responseStatus": {"code": status},
            "requestReceivedTimestamp": self._clock.now().isoformat(),
        }
        if wanted.resource:
            event["objectRef"] = {
                "resource": wanted.resource,
                "namespace": wanted.namespace,
                "name": wanted.name,
                "apiGroup": wanted.group,
                "subresource": wanted.subresource,
            }
        return event
