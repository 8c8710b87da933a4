"""Structured logs: a constant message and fields, as text for people or JSON for machines.

log = get_logger("hpa")
log.info("scaled", target=key, previous=3, replicas=5, reason=decision.reason)
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

_ROOT = "kubetide"


class Logger:
    """Writes constant messages with fields. Bound fields come with every line."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: dict[str, Any]) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: Any) -> "Logger":
        """Return a logger that adds these fields to every line."""
        return Logger(self._logger, {**self._fields, **fields})

    def debug(self, message: str, /, **fields: Any) -> None:
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, /, **fields: Any) -> None:
        self._write(logging.INFO, message, fields)

    def warning(self, message: str, /, **fields: Any) -> None:
        self._write(logging.WARNING, message, fields)

    def error(self, message: str, /, **fields: Any) -> None:
        self._write(logging.ERROR, message, fields)

    def exception(self, message: str, /, **fields: Any) -> None:
        """Write an error with the traceback of the exception being handled."""
        self._write(logging.ERROR, message, fields, exc_info=True)

    def _write(self, level: int, message: str, fields: dict[str, Any], *, exc_info: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            extra = {"fields": {**self._fields, **fields}}
            self._logger.log(level, message, extra=extra, exc_info=exc_info)


def get_logger(name: str, **fields: Any) -> Logger:
    """Return the logger of a part of kubetide."""
    return Logger(logging.getLogger(f"{_ROOT}.{name}"), fields)


def configure(*, json: bool = False, verbosity: int = 0, stream: TextIO | None = None) -> None:
    """Send all logs to `stream` (standard error); verbosity 2 and more shows debug lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if json else _TextFormatter())
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(logging.DEBUG if verbosity >= 2 else logging.INFO)


class _TextFormatter(logging.Formatter):
    """`12:00:01 I hpa: scaled target=shop/web replicas=5`"""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        fields: dict[str, Any] = getattr(record, "fields", {})
        shown = "".join(f" {key}={_quoted(value)}" for key, value in fields.items())
        name = record.name.removeprefix(f"{_ROOT}.")
        line = f"{time} {record.levelname[0]} {name}: {record.getMessage()}{shown}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(logging.Formatter):
    """One JSON object a line: `ts`, `level`, `logger`, `msg`, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix(f"{_ROOT}."),
            "msg": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def _quoted(value: Any) -> str:
    text = str(value)
    return repr(text) if not text or any(c.isspace() or c == '"' for c in text) else text
