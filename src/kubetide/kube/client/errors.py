"""What can go wrong with an API server, by the reason it gave.

    KubetideError
    ├── ApiError                 the server answered, and refused: a Status object with a reason
    │   ├── BadRequest 400 · Unauthorized 401 · Forbidden 403 · NotFound 404 · MethodNotAllowed 405
    │   ├── Conflict 409 · AlreadyExists 409 · Gone 410 · Invalid 422 · TooManyRequests 429
    │   └── InternalError 500 · ServiceUnavailable 503 · ServerTimeout 504
    └── Unavailable              nobody answered, or not to the end
        ├── ConnectionLost       refused, reset, closed in the middle
        ├── RequestTimeout       no answer in the time given
        ├── UntrustedServer      the server's certificate is not signed by the CA we were given
        ├── CredentialsFailed    a token file, exec plugin or key cannot be read
        └── ResponseTooLarge     the body is longer than the limit

The reason decides, and the status code only where there is no reason (a proxy's HTML page, a webhook's text):
409 is both Conflict and AlreadyExists, and 500 with reason ServerTimeout is a timeout.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kubetide.api.values.quantity import parse_float
from kubetide.errors import InvalidInput, KubetideError, Unavailable
from kubetide.kube.client.transport import Response


class ApiError(KubetideError):
    """An API server refused a request; `retry_after` in seconds where it said when to come back."""

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message or reason or f"status {status}")
        self.status = status
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after

    @property
    def causes(self) -> tuple[Mapping[str, Any], ...]:
        """The causes in the details of the Status (field, reason, message)."""
        return tuple(self.details.get("causes") or ())


class BadRequest(ApiError):
    """The request makes no sense to the server."""


class Unauthorized(ApiError):
    """The server does not know who asks."""


class Forbidden(ApiError):
    """The server knows the client, and refuses."""


class NotFound(ApiError):
    """No such object, resource or path."""


class MethodNotAllowed(ApiError):
    """The verb is not served for this resource."""


class Conflict(ApiError):
    """The object changed since it was read."""


class AlreadyExists(ApiError):
    """The name is taken."""


class Gone(ApiError):
    """The resource version or continue token is too old: list again."""


class Invalid(ApiError):
    """The object failed validation; `causes` names the fields."""


class TooManyRequests(ApiError):
    """Come back later; an eviction that a disruption budget forbids is one too."""


class InternalError(ApiError):
    """Something broke inside the server."""


class ServiceUnavailable(ApiError):
    """The server, or an aggregated one behind it, is not up."""


class ServerTimeout(ApiError):
    """The server could not finish in time; whether it did is unknown."""


class ConnectionLost(Unavailable):
    """The connection was refused, reset, or closed in the middle of an answer."""


class RequestTimeout(Unavailable):
    """No answer came in the time given."""


class UntrustedServer(Unavailable):
    """The server's certificate does not verify against the CA we were given."""


class CredentialsFailed(Unavailable):
    """Our own credentials cannot be had: a token file, an exec plugin, a key."""


class ResponseTooLarge(Unavailable):
    """The body of an answer is longer than the limit; none of it was kept."""


LONGEST_MESSAGE = 2000

_BY_REASON: dict[str, type[ApiError]] = {
    "BadRequest": BadRequest,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "MethodNotAllowed": MethodNotAllowed,
    "Conflict": Conflict,
    "AlreadyExists": AlreadyExists,
    "Gone": Gone,
    "Expired": Gone,
    "Invalid": Invalid,
    "TooManyRequests": TooManyRequests,
    "InternalError": InternalError,
    "ServiceUnavailable": ServiceUnavailable,
    "ServerTimeout": ServerTimeout,
    "Timeout": ServerTimeout,
}
_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
    500: InternalError,
    503: ServiceUnavailable,
    504: ServerTimeout,
}


_LONGEST_WAIT = 86_400
"""Nobody asks a client to wait for more than a day: such a number is a mistake."""
LONGEST_RETRY_AFTER = 60.0
"""A server that asks for an hour is better answered by an error and the caller's own backoff."""


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    kind: str | None = None
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: dict[str, Any] | None = None


def api_error(
    status: int,
    *,
    reason: str = "",
    message: str = "",
    details: Mapping[str, Any] | None = None,
    retry_after: float | None = None,
) -> ApiError:
    """Return the error of the class that the reason, else the status code, stands for."""
    kind = _BY_REASON.get(reason) or _BY_STATUS.get(status, ApiError)
    return kind(status, reason, message, details, retry_after)


def error_from_status(body: bytes, *, status: int = 500, retry_after: float | None = None) -> ApiError:
    """Return the error that a Status object describes, or one made of the status code where it is none."""
    try:
        parsed = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        parsed = _Status()
    if parsed.kind != "Status":
        text = body[:200].decode("utf-8", "replace").strip()
        return api_error(status, message=f"status {status}: {text}" if text else "", retry_after=retry_after)
    details = parsed.details or {}
    told = details.get("retryAfterSeconds")
    if retry_after is None and isinstance(told, int) and 0 < told <= _LONGEST_WAIT:
        retry_after = float(told)
    return api_error(
        parsed.code or status,
        reason=parsed.reason or "",
        message=_cut(parsed.message or ""),
        details=details,
        retry_after=retry_after,
    )


def _cut(message: str) -> str:
    """Bound a text that goes into conditions and events; servers are free to say anything."""
    return message if len(message) <= LONGEST_MESSAGE else message[:LONGEST_MESSAGE] + "…"


def error_from(response: Response) -> ApiError:
    """Return the error that an answer with a status of 400 or more stands for."""
    return error_from_status(
        response.body, status=response.status, retry_after=_seconds(response.headers.get("retry-after"))
    )


def pause_after(error: Exception, *, at_least: float) -> float:
    """Return for how many seconds to leave the server alone: as long as it asked for, within reason."""
    retry_after = error.retry_after if isinstance(error, ApiError) else None
    return max(at_least, min(retry_after or 0.0, LONGEST_RETRY_AFTER))


def _seconds(text: str | None) -> float | None:
    """Return a Retry-After in seconds; API servers never send the date form, so it counts as absent."""
    try:
        seconds = parse_float(text) if text is not None else -1.0
    except InvalidInput:
        return None
    return seconds if 0 <= seconds <= _LONGEST_WAIT else None
