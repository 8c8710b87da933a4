"""What the agent did, on disk: one JSON event per line, in files of 2 MiB, newest first on request.

Space is bounded by the number of files. Reading goes backwards through the files in chunks; a line may be longer than
a chunk. A reader is a position that a page token names; it expires after ten minutes without use.
"""

import os
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from kubetide.clock import Clock
from kubetide.errors import InvalidInput, KubetideError
from kubetide.log import get_logger
from kubetide.node.core.plan import Write
from kubetide.node.settings import NodeSettings

log = get_logger("node.audit")

FILE_BYTES = 2 * 1024 * 1024
FLUSH_AFTER = timedelta(seconds=5)
READER_LIFETIME = timedelta(minutes=10)
DEFAULT_PAGE = 256
MAX_PAGE = 2048
_CHUNK = 4096
_ACTIVE = "audit.log"


class UnknownToken(KubetideError):
    """A page token was never given out or has expired."""


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing the agent did."""

    created_at: datetime
    type: str = ""
    level: int = 0
    namespace: str = ""
    name: str = ""
    container: str = ""
    reason: str = ""
    message: str = ""


@dataclass(slots=True)
class _Reader:
    events: Iterator[dict[str, Any]]
    used: datetime


class Audit:
    """Writes and reads the audit log. Without a directory nothing is kept."""

    def __init__(
        self,
        directory: Path | None,
        clock: Clock,
        *,
        verbosity: int = 3,
        max_bytes: int = 16 * 1024 * 1024,
        max_readers: int = 4,
        max_page: int = MAX_PAGE,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._verbosity = verbosity
        self._max_files = max(max_bytes // FILE_BYTES, 1)
        self._max_readers = max_readers
        self._max_page = max_page
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._flushed = clock.now()
        self._size = 0
        self._readers: OrderedDict[str, _Reader] = OrderedDict()
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True, mode=0o755)
            active = directory / _ACTIVE
            self._size = active.stat().st_size if active.exists() else 0

    def record(
        self,
        *,
        reason: str,
        message: str,
        level: int = 3,
        type: str = "unknown",  # noqa: A002
        namespace: str = "",
        name: str = "",
        container: str = "",
        at: datetime | None = None,
    ) -> None:
        """Note an event, of now or of `at`, unless it is above the verbosity."""
        if self._directory is None or (self._verbosity > 0 and level > self._verbosity):
            return
        event = AuditEvent(
            created_at=(at or self._clock.now()).astimezone(),
            type=type,
            level=level,
            namespace=namespace,
            name=name,
            container=container,
            reason=reason,
            message=message,
        )
        line = msgspec.json.encode(event) + b"\n"
        self._buffer.append(line)
        self._buffered += len(line)
        self._size += len(line)
        if self._size >= FILE_BYTES:
            self.flush()
            self._rotate()
        elif self._buffered >= 1024 * 1024 or self._clock.now() - self._flushed >= FLUSH_AFTER:
            self.flush()

    def record_write(self, write: Write, path: str, previous: str, value: str, *, at: datetime | None = None) -> None:
        """Note a kernel write."""
        subject = write.subject
        self.record(
            reason=write.audit_reason,
            message=f"{path}: {_short(previous)} -> {_short(value)}" + (f"; {write.message}" if write.message else ""),
            level=write.level,
            type=subject.type or "unknown",
            namespace=subject.namespace,
            name=subject.name,
            container=subject.container,
            at=at,
        )

    def flush(self) -> None:
        """Write what is buffered; a full disk loses events, never the agent."""
        self._flushed = self._clock.now()
        if self._directory is None or not self._buffer:
            return
        data, self._buffer, self._buffered = b"".join(self._buffer), [], 0
        try:
            with open(self._directory / _ACTIVE, "ab") as file:
                file.write(data)
        except OSError as error:
            log.warning("audit events lost", error=str(error))

    def _rotate(self) -> None:
        assert self._directory is not None
        stamp = self._clock.now().astimezone().strftime("%Y-%m-%d-%H-%M-%S")
        for number in range(9):
            target = self._directory / f"audit-{stamp}-{number}.log"
            if not target.exists():
                break
        try:
            os.replace(self._directory / _ACTIVE, target)
        except OSError as error:
            log.warning("audit log not rotated", error=str(error))
            return
        self._size = 0
        rotated = self._rotated()
        for old in rotated[: max(len(rotated) - (self._max_files - 1), 0)]:
            old.unlink(missing_ok=True)

    def _rotated(self) -> list[Path]:
        assert self._directory is not None
        return sorted(self._directory.glob("audit-*.log"))

    def query(self, size: int = DEFAULT_PAGE, token: str = "") -> tuple[list[dict[str, Any]], str]:
        """Return events, newest first, and the token of the next page (empty at the end)."""
        if size < 0 or size > self._max_page:
            raise InvalidInput(f"size must be between 0 and {self._max_page}")
        now = self._clock.now()
        self._expire(now)
        if not token:
            self.flush()
            token = str(uuid.uuid4())
            self._readers[token] = _Reader(self._backwards(), now)
            while len(self._readers) > self._max_readers:
                self._readers.popitem(last=False)
        reader = self._readers.get(token)
        if reader is None:
            raise UnknownToken("unknown or expired page token")
        reader.used = now
        events: list[dict[str, Any]] = []
        for event in reader.events if size else ():
            events.append(event)
            if len(events) == size:
                return events, token
        if size:
            del self._readers[token]
            return events, ""
        return events, token

    def _expire(self, now: datetime) -> None:
        for token in [token for token, reader in self._readers.items() if now - reader.used > READER_LIFETIME]:
            del self._readers[token]

    def _backwards(self) -> Iterator[dict[str, Any]]:
        if self._directory is None:
            return
        for path in [self._directory / _ACTIVE, *reversed(self._rotated())]:
            for line in lines_backwards(path):
                try:
                    event = msgspec.json.decode(line)
                except msgspec.DecodeError:
                    continue
                if isinstance(event, dict):
                    yield event

    def keep_house(self) -> None:
        """Write what is buffered, and close readers that nobody came back to."""
        self.flush()
        self._expire(self._clock.now())

    def close(self) -> None:
        """Write what is left, and close all readers."""
        self.flush()
        self._readers.clear()


def open_audit(settings: NodeSettings, clock: Clock) -> Audit | None:
    """Return the audit log of the settings; None when there is none or its directory cannot be made."""
    if not settings.audit_log_dir:
        return None
    try:
        return Audit(
            Path(settings.audit_log_dir),
            clock,
            verbosity=settings.audit_verbose,
            max_bytes=settings.audit_max_disk_space_mb * 1024 * 1024,
            max_readers=settings.audit_max_concurrent_readers,
            max_page=settings.audit_max_events_limit,
        )
    except OSError as error:
        log.warning("no audit log", directory=settings.audit_log_dir, error=str(error))
        return None


def lines_backwards(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file from the last to the first."""
    try:
        with open(path, "rb") as file:
            position = file.seek(0, os.SEEK_END)
            rest = b""
            while position > 0:
                step = min(_CHUNK, position)
                position -= step
                file.seek(position)
                lines = (file.read(step) + rest).split(b"\n")
                rest = lines[0]
                yield from (line for line in reversed(lines[1:]) if line)
            if rest:
                yield rest
    except FileNotFoundError:
        return


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}…"
