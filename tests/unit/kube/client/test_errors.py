"""API errors: the class follows the reason, and the status code where there is none."""

import json
from typing import Any

import pytest

from kubetide.kube.client import errors
from kubetide.kube.client.transport import Response


def status(code: int, reason: str = "", **extra: Any) -> Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": f"{reason}!", **extra}
    return Response(code, {}, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        pytest.param(404, "NotFound", errors.NotFound, id="not-found"),
        pytest.param(409, "Conflict", errors.Conflict, id="conflict"),
        pytest.param(409, "AlreadyExists", errors.AlreadyExists, id="same-code-other-reason"),
        pytest.param(410, "Expired", errors.Gone, id="expired-is-gone"),
        pytest.param(410, "Gone", errors.Gone, id="gone"),
        pytest.param(422, "Invalid", errors.Invalid, id="invalid"),
        pytest.param(403, "Forbidden", errors.Forbidden, id="forbidden"),
        pytest.param(401, "Unauthorized", errors.Unauthorized, id="unauthorized"),
        pytest.param(429, "TooManyRequests", errors.TooManyRequests, id="too-many"),
        pytest.param(500, "ServerTimeout", errors.ServerTimeout, id="reason-beats-code"),
        pytest.param(504, "Timeout", errors.ServerTimeout, id="timeout"),
        pytest.param(418, "Teapot", errors.ApiError, id="unknown-stays-general"),
        pytest.param(405, "", errors.MethodNotAllowed, id="code-where-there-is-no-reason"),
    ],
)
def test_the_class_follows_the_reason(code: int, reason: str, expected: type[errors.ApiError]) -> None:
    error = errors.error_from(status(code, reason))
    assert type(error) is expected
    assert error.status == code


def test_a_page_of_a_proxy_becomes_an_error_with_its_text() -> None:
    error = errors.error_from(Response(503, {}, b"<html>upstream is away</html>"))
    assert isinstance(error, errors.ServiceUnavailable)
    assert "upstream is away" in str(error)


def test_an_empty_body_still_names_the_status() -> None:
    assert "500" in str(errors.error_from(Response(500, {}, b"")))


@pytest.mark.parametrize(
    ("headers", "details", "expected"),
    [
        pytest.param({"retry-after": "7"}, {}, 7.0, id="header"),
        pytest.param({}, {"retryAfterSeconds": 3}, 3.0, id="details"),
        pytest.param({"retry-after": "7"}, {"retryAfterSeconds": 3}, 7.0, id="header-first"),
        pytest.param({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}, None, id="date-counts-as-absent"),
        pytest.param({}, {}, None, id="neither"),
    ],
)
def test_when_to_come_back_is_read_from_header_or_details(
    headers: dict[str, str], details: dict[str, Any], expected: float | None
) -> None:
    response = status(429, "TooManyRequests", details=details)
    assert errors.error_from(Response(429, headers, response.body)).retry_after == expected


def test_causes_name_the_fields() -> None:
    details = {"causes": [{"field": "spec.replicas", "message": "must not be negative"}]}
    error = errors.error_from(status(422, "Invalid", details=details))
    assert error.causes[0]["field"] == "spec.replicas"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 200_000, id="very-deep-lists"),
        pytest.param(b'{"a":' * 200_000, id="very-deep-objects"),
        pytest.param(b'{"kind":"Status","message":"\xff"}', id="not-utf-8"),
        pytest.param(b'{"kind":"Status","code":"many"}', id="a-code-that-is-a-text"),
        pytest.param(b'{"kind":"Status","details":[]}', id="details-that-are-a-list"),
    ],
)
def test_nonsense_is_an_error_of_its_status(body: bytes) -> None:
    error = errors.error_from(Response(503, {}, body))
    assert isinstance(error, errors.ServiceUnavailable)
    assert len(str(error)) < 500


def test_a_message_without_measure_is_cut() -> None:
    body = json.dumps({"kind": "Status", "message": "no " * 100_000}).encode()
    error = errors.error_from(Response(500, {}, body))
    assert len(str(error)) <= errors.LONGEST_MESSAGE + 1
    assert str(error).endswith("…")
