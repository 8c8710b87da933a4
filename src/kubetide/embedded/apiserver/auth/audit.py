"""The audit log: one JSON line per request, in the shape of audit.k8s.io/v1 events.

At the Metadata level a line says who asked for what and what came of it, at the Request level also what was asked
for: the body of a write, unless it is too large or no JSON.

A request is answered whether or not its line can be written: what it did is done. That lines are missing is logged,
once a minute.
"""

from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

import msgspec

from kubetide.clock import Clock
from kubetide.embedded.apiserver.auth.rbac import attributes_of
from kubetide.embedded.apiserver.rest.requests import Request, parse_target
from kubetide.embedded.apiserver.rest.status import Raw, StatusError
from kubetide.errors import InvalidInput
from kubetide.log import get_logger

log = get_logger("apiserver")

_COMPLAIN_SECONDS = 60.0
_LARGEST_BODY = 1 << 20


class AuditLevel(StrEnum):
    """How much of a request is in its line, in the words of Kubernetes' audit policy."""

    METADATA = "Metadata"
    REQUEST = "Request"


def audit_event(request: Request, status: int, *, now: datetime, level: AuditLevel = AuditLevel.METADATA) -> Raw:
    """Return the event of a request that was answered with `status`."""
    try:
        target = parse_target(request.path)
    except StatusError:
        target = None
    wanted = attributes_of(request, target)
    event: Raw = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": level.value,
        "stage": "ResponseComplete",
        "requestURI": f"{request.path}?{urlencode(request.query)}" if request.query else request.path,
        "verb": wanted.verb,
        "user": {"username": request.user.name, "groups": list(request.user.groups)},
        "userAgent": request.user_agent,
        "responseStatus": {"code": status},
        "requestReceivedTimestamp": now.isoformat(),
    }
    if wanted.resource:
        event["objectRef"] = {
            "resource": wanted.resource,
            "namespace": wanted.namespace,
            "name": wanted.name,
            "apiGroup": wanted.group,
            "subresource": wanted.subresource,
        }
    if level is AuditLevel.REQUEST and request.body and len(request.body) <= _LARGEST_BODY:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # YAML or protobuf: the line goes without
            event["requestObject"] = msgspec.json.decode(request.body)
    return event


class AuditLog:
    """Appends to a file. Call it with a request and the status of its answer."""

    def __init__(self, path: Path, clock: Clock, *, level: AuditLevel = AuditLevel.METADATA) -> None:
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise InvalidInput(f"cannot be opened: {error.strerror}", subject=str(path)) from error
        self._clock = clock
        self._level = level
        self._complained: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __call__(self, request: Request, status: int) -> None:
        event = audit_event(request, status, now=self._clock.now(), level=self._level)
        try:
            self._file.write(msgspec.json.encode(event) + b"\n")
        except OSError as error:
            now = self._clock.monotonic()
            if self._complained is None or now - self._complained >= _COMPLAIN_SECONDS:
                self._complained = now
                log.warning(
                    "the audit log cannot be written, lines are missing", path=self._file.name, error=str(error)
                )
