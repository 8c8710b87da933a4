"""Lines of the audit log: what they hold at each level."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.audit import AuditLevel, AuditLog, audit_event
from kubetide.embedded.apiserver.rest.requests import Request

NOW = datetime(2026, 1, 5, tzinfo=UTC)
SCALE = "/apis/apps/v1/namespaces/shop/deployments/web/scale"


def test_a_line_names_who_asked_for_what_and_what_came_of_it() -> None:
    event = audit_event(Request("PUT", SCALE, body=b'{"spec": {"replicas": 3}}'), 409, now=NOW)
    assert event["objectRef"] == {
        "resource": "deployments",
        "namespace": "shop",
        "name": "web",
        "apiGroup": "apps",
        "subresource": "scale",
    }
    assert (event["verb"], event["responseStatus"]["code"], event["level"]) == ("update", 409, "Metadata")
    assert "requestObject" not in event


def test_the_request_level_adds_what_was_asked_for() -> None:
    request = Request("PUT", SCALE, body=b'{"spec": {"replicas": 3}}')
    assert audit_event(request, 200, now=NOW, level=AuditLevel.REQUEST)["requestObject"] == {"spec": {"replicas": 3}}


@pytest.mark.parametrize("body", [b"spec:\n  replicas: 3\n", b"\xff\xfe", b"", b'"' + b"x" * 2**20 + b'"'])
def test_a_body_that_is_no_json_or_too_large_is_left_out(body: bytes) -> None:
    event = audit_event(Request("PUT", SCALE, body=body), 200, now=NOW, level=AuditLevel.REQUEST)
    assert "requestObject" not in event


def test_a_dry_run_can_be_told_from_its_line() -> None:
    assert audit_event(Request("PUT", SCALE, {"dryRun": "All"}), 200, now=NOW)["requestURI"] == f"{SCALE}?dryRun=All"


def test_lines_are_appended_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for status in (200, 409):
        with AuditLog(path, SystemClock(), level=AuditLevel.REQUEST) as log:
            log(Request("PUT", SCALE, body=b"{}"), status)
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert [line["responseStatus"]["code"] for line in lines] == [200, 409]
