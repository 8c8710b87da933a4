"""The audit log: one JSON line per request, in the shape of audit.k8s.io/v1 events at the Metadata level.

A request is answered whether or not its line can be written: what it did is done. That lines are missing is logged,
once a minute.
"""

from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from kubetide.clock import Clock
from kubetide.embedded.apiserver.auth.rbac import attributes_of
from kubetide.embedded.apiserver.rest.requests import Request, parse_target
from kubetide.embedded.apiserver.rest.status import Raw, StatusError
from kubetide.errors import InvalidInput
from kubetide.log import get_logger

log = get_logger("apiserver")

_COMPLAIN_SECONDS = 60.0


class AuditLog:
    """Appends to a file. Call it with a request and the status of its answer."""

    def __init__(self, path: Path, clock: Clock) -> None:
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise InvalidInput(f"cannot be opened: {error.strerror}", subject=str(path)) from error
        self._clock = clock
        self._complained: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __call__(self, request: Request, status: int) -> None:
        try:
            self._file.write(msgspec.json.encode(self._event(request, status)) + b"\n")
        except OSError as error:
            now = self._clock.monotonic()
            if self._complained is None or now - self._complained >= _COMPLAIN_SECONDS:
                self._complained = now
                log.warning(
                    "the audit log cannot be written, lines are missing", path=self._file.name, error=str(error)
                )

    def _event(self, request: Request, status: int) -> Raw:
        try:
            target = parse_target(request.path)
        except StatusError:
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
