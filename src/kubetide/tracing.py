"""OpenTelemetry spans: one per decision, with what was decided and why; logs and latencies name its trace.

Tracing belongs to a context, not to the program: what runs inside `exporting` is traced, a simulation in the same
process is not. Without it nothing of OpenTelemetry is imported and a span costs one look at a context variable.
Export happens in a thread of the SDK with a bounded queue: a collector that is away costs spans, never a decision.
"""

import importlib.util
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from kubetide import __version__
from kubetide.errors import SettingsError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as SdkSpan
    from opentelemetry.trace import Tracer

FLUSH_SECONDS = 3.0
"""How long the end of a process waits for the last spans to be delivered."""
PREFIX = "kubetide."
_PLAIN = (str, bool, int, float)


class Span:
    """A decision that is being made; open while it is, and never if the ratio left its trace out."""

    __slots__ = ("_span", "ids", "open")

    def __init__(self, span: "SdkSpan") -> None:
        context = span.get_span_context()
        self._span = span
        self.ids: Mapping[str, str] = {
            "trace_id": format(context.trace_id, "032x"),
            "span_id": format(context.span_id, "016x"),
        }
        self.open = span.is_recording()

    def annotate(self, attributes: Mapping[str, Any]) -> None:
        """Add what is known by now; None says nothing, and what is no plain value is shown as text."""
        for name, value in attributes.items():
            if value is not None:
                self._span.set_attribute(PREFIX + name, value if isinstance(value, _PLAIN) else str(value))

    def fail(self, error: BaseException) -> None:
        """Mark it as failed."""
        from opentelemetry.trace import StatusCode

        self._span.set_status(StatusCode.ERROR, str(error))
        self._span.set_attribute("error.type", type(error).__name__)

    def end(self) -> None:
        """Hand it to the exporter. Work that was started in it and goes on is no longer part of it."""
        self.open = False
        self._span.end()


_tracer: ContextVar["Tracer | None"] = ContextVar("kubetide_tracer", default=None)
CURRENT: ContextVar[Span | None] = ContextVar("kubetide_span", default=None)
_UNTRACED: AbstractContextManager[None] = nullcontext()


def is_on() -> bool:
    """Return whether spans are made here."""
    return _tracer.get() is not None


def current_ids() -> Mapping[str, str] | None:
    """Return `trace_id` and `span_id` of the decision that is being made, or None."""
    span = CURRENT.get()
    return span.ids if span is not None and span.open else None


def span(name: str, /, **attributes: Any) -> AbstractContextManager[None]:
    """Open a span, below the one that is open. One that the ratio leaves out is in no log line and no exemplar."""
    tracer = _tracer.get()
    return _UNTRACED if tracer is None else _opened(tracer, name, attributes)


@contextmanager
def _opened(tracer: "Tracer", name: str, attributes: Mapping[str, Any]) -> Iterator[None]:
    from opentelemetry.context import Context
    from opentelemetry.trace import set_span_in_context

    above = CURRENT.get()
    below = Context() if above is None else set_span_in_context(above._span, Context())
    opened = Span(tracer.start_span(name, below))
    opened.annotate(attributes)
    token = CURRENT.set(opened)
    try:
        yield
    except Exception as error:
        opened.fail(error)
        raise
    finally:
        CURRENT.reset(token)
        opened.end()


def annotate(**attributes: Any) -> None:
    """Add to the decision that is being made what was decided and why, as `kubetide.NAME`."""
    span = CURRENT.get()
    if span is not None and span.open:
        span.annotate(attributes)


def failed(error: BaseException) -> None:
    """Mark the decision that is being made as failed."""
    span = CURRENT.get()
    if span is not None and span.open:
        span.fail(error)


@contextmanager
def exporting(endpoint: str, ratio: float) -> Iterator[None]:
    """Trace what runs inside, and send it to an OTLP collector over HTTP; an empty endpoint traces nothing.

    What the SDK reads from `OTEL_*` variables (headers, certificates, resource attributes, queue) holds.
    """
    if not endpoint:
        yield
        return
    provider = _provider(_traces_url(endpoint), ratio)
    token = _tracer.set(provider.get_tracer("kubetide", __version__))
    try:
        yield
    finally:
        _tracer.reset(token)
        # The SDK has no bound for the whole of a shutdown; a daemon does not keep the process.
        flush = threading.Thread(target=provider.shutdown, name="tracing-flush", daemon=True)
        flush.start()
        flush.join(FLUSH_SECONDS)


def _traces_url(endpoint: str) -> str:
    """Return where traces go: the endpoint, with the path of the protocol if it names none."""
    try:
        parts = urlsplit(endpoint)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fine = False
    if not fine:
        raise SettingsError(f"{endpoint!r} is no http:// or https:// URL", field="tracing-endpoint")
    return urlunsplit(parts._replace(path="/v1/traces")) if parts.path in ("", "/") else endpoint


def _provider(url: str, ratio: float) -> "TracerProvider":
    if not _installed():
        raise SettingsError("needs OpenTelemetry: pip install 'kubetide[otel]'", field="tracing-endpoint")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    own = Resource.create({"service.name": "kubetide", "service.version": __version__})
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(ratio)),
        resource=own.merge(OTELResourceDetector().detect()),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    return provider


def _installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False
