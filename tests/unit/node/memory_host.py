"""A machine in memory for tests: a dict of files that behaves like kernel files where it matters."""

import errno
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class MemoryHost:
    """Files by path; writes are recorded; a path may be made to fail."""

    def __init__(self, files: dict[str, str] | None = None) -> None:
        self.files = dict(files or {})
        self.writes: list[tuple[str, str]] = []
        self.failures: dict[str, OSError] = {}
        self.on_write: Callable[[str, str], None] | None = None

    def read(self, path: str) -> str:
        if path in self.failures:
            raise self.failures[path]
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self.files[path]

    def write(self, path: str, value: str) -> None:
        self.read(path)
        if self.on_write is not None:
            self.on_write(path, value)
        self.files[path] = value
        self.writes.append((path, value))

    def list_dirs(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = [name.removeprefix(prefix) for name in self.files if name.startswith(prefix)]
        if not below:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return sorted({rest.split("/")[0] for rest in below if "/" in rest})

    def exists(self, path: str) -> bool:
        return path in self.files or any(name.startswith(path.rstrip("/") + "/") for name in self.files)


class ManualClock:
    """A clock that a test moves."""

    def __init__(self, start: datetime = START) -> None:
        self.start = start
        self.seconds = 0.0

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
