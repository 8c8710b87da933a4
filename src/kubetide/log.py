"""Structured logs: a constant message and fields, as text for people or JSON for machines.

log = get_logger("hpa")
log.info("scaled", target=key, previous=3, replicas=5, reason=decision.reason)

What libraries, the event loop, threads and destructors report comes the same way: a collector that expects a JSON
object a line must not find a plain traceback between them. What they repeat is reported once a minute.

A line written while a span is open (`kubetide.tracing`) carries its `trace_id` and `span_id`.
"""

import logging
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from kubetide import tracing

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
            extra = {"fields": {**self._fields, **fields, **(tracing.current_ids() or {})}}
            self._logger.log(level, message, extra=extra, exc_info=exc_info)


def get_logger(name: str, **fields: Any) -> Logger:
    """Return the logger of a part of kubetide."""
    return Logger(logging.getLogger(f"{_ROOT}.{name}"), fields)


class Throttle:
    """Lets a line through once per period, with how many were held back since the last one."""

    __slots__ = ("_held_back", "_period", "_quiet_until")

    def __init__(self, period: float = 60.0) -> None:
        self._period = period
        self._quiet_until = float("-inf")
        self._held_back = 0

    def admit(self, now: float) -> int | None:
        """Return how many lines were held back if one may be written now, else None."""
        if now < self._quiet_until:
            self._held_back += 1
            return None
        held_back, self._held_back = self._held_back, 0
        self._quiet_until = now + self._period
        return held_back


def configure(*, json: bool = False, verbosity: int = 0, stream: TextIO | None = None) -> None:
    """Send all logs to `stream` (standard error); verbosity 2 and more shows debug lines."""
    formatter = _JsonFormatter() if json else _TextFormatter()
    own = logging.getLogger(_ROOT)
    own.handlers[:] = [_handler(stream, formatter)]
    own.propagate = False
    own.setLevel(logging.DEBUG if verbosity >= 2 else logging.INFO)
    others = _handler(stream, formatter)
    others.addFilter(_Repetitions())
    root = logging.getLogger()
    # Other people's handlers (a test runner's) stay.
    root.handlers[:] = [*(each for each in root.handlers if not isinstance(each, _Handler)), others]
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _report_unraisable
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _report_thread


class _Handler(logging.StreamHandler[TextIO]):
    """A handler of ours."""


def _handler(stream: TextIO | None, formatter: logging.Formatter) -> _Handler:
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(formatter)
    return handler


class _Repetitions(logging.Filter):
    """Holds back what a library reports again within a minute, by the first line of its message and the exception."""

    _MOST = 256

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str, str], Throttle] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        key = (record.name, record.getMessage().partition("\n")[0], kind.__name__ if kind is not None else "")
        if key not in self._seen and len(self._seen) >= self._MOST:
            self._seen.clear()
        held_back = self._seen.setdefault(key, Throttle()).admit(time.monotonic())
        if held_back:
            record.fields = {"unreported": held_back}
        return held_back is not None


def _report_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    message = unraisable.err_msg or "exception ignored"
    _report("python", message, unraisable.exc_value, source=repr(unraisable.object))


def _report_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        _report("threading", "thread failed", args.exc_value, source=args.thread.name if args.thread else "")


def _report(name: str, message: str, error: BaseException | None, *, source: str) -> None:
    logging.getLogger(name).error(message, extra={"fields": {"source": source}}, exc_info=error)


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
