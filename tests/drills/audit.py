"""The API server's audit log as values: one `Event` per request that was answered.

`read` takes the lines that any API server writes (audit.k8s.io/v1, level Request or above, one JSON object a line);
`Recorder` hears the same events from an embedded server in this process. Reads are kept as far as the checker needs
them: those of the metrics APIs, because a decision rests on them.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from kubetide.clock import Clock
from kubetide.embedded.apiserver.auth.audit import AuditLevel, audit_event
from kubetide.embedded.apiserver.rest.requests import Request

Raw = dict[str, Any]

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
METRICS_GROUPS = ("metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One request: who asked for what, and what came of it."""

    at: datetime
    user: str
    verb: str
    code: int
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    body: Any = None

    @property
    def accepted(self) -> bool:
        return 200 <= self.code < 300

    @property
    def kind(self) -> str:
        """The resource with its subresource, as permissions name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S} {self.user} {self.verb} {self.kind} {self.namespace}/{self.name} ({self.code})"


def event_of(raw: Raw) -> Event | None:
    """Return an event of the log, None for a dry run and for what is not about a resource."""
    ref = raw.get("objectRef") or {}
    if not ref.get("resource") or "dryRun=" in str(raw.get("requestURI")):
        return None
    body = raw.get("requestObject")
    named = (body.get("metadata") or {}).get("name") if isinstance(body, dict) else None
    return Event(
        at=datetime.fromisoformat(str(raw["requestReceivedTimestamp"])),
        user=str((raw.get("user") or {}).get("username")),
        verb=str(raw["verb"]),
        code=int((raw.get("responseStatus") or {}).get("code") or 0),
        group=ref.get("apiGroup") or "",
        resource=ref["resource"],
        subresource=ref.get("subresource") or "",
        namespace=ref.get("namespace") or "",
        name=ref.get("name") or named or "",
        body=body,
    )


def read(lines: Iterable[bytes]) -> list[Event]:
    """Return the events of a log, in the order in which the requests were received."""
    found = (event_of(msgspec.json.decode(line)) for line in lines if line.strip())
    return sorted((event for event in found if event is not None), key=lambda event: event.at)


class Recorder:
    """Hears an embedded API server; give it as its `audit`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.events: list[Event] = []
        self.requests = 0

    def __call__(self, request: Request, status: int) -> None:
        self.requests += 1
        if request.method in ("GET", "HEAD") and not any(f"/apis/{group}/" in request.path for group in METRICS_GROUPS):
            return
        event = event_of(audit_event(request, status, now=self.clock.now(), level=AuditLevel.REQUEST))
        if event is not None:
            self.keep(event)

    def keep(self, event: Event) -> None:
        """Add an event."""
        self.events.append(event)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)


class FileRecorder(Recorder):
    """Keeps the events in a file: those of a day would be most of the memory of a drill that measures memory."""

    def __init__(self, clock: Clock, path: Path) -> None:
        super().__init__(clock)
        self._path = path
        path.touch()

    def keep(self, event: Event) -> None:
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(event) + b"\n")

    def __iter__(self) -> Iterator[Event]:
        with self._path.open("rb") as file:
            for line in file:
                yield msgspec.json.decode(line, type=Event)
