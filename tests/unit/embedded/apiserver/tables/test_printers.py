"""What people read in `kubectl get`."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kubetide.embedded.apiserver.tables.object_printers import hpa_targets
from kubetide.embedded.apiserver.tables.printers import duration_text, path_value, since
from kubetide.embedded.apiserver.tables.workload_printers import pod_status

Raw = dict[str, Any]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 120, "3h2m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (9 * 86400, "9d"),
        (3 * 365 * 86400 + 86400, "3y1d"),
        (-5, "<invalid>"),
    ],
)
def test_ages_are_precise_when_short_and_coarse_when_long(seconds: int, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_time_that_cannot_be_read_is_said_to_be_so() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert since("2025-12-31T23:59:00Z", now) == "60s"
    assert since("whenever", now) == "<invalid>"
    assert since(None, now) == "<unknown>"


def pod(phase: str, *states: Raw, **metadata: str) -> Raw:
    statuses = [{"state": state} for state in states]
    return {"metadata": metadata, "status": {"phase": phase, "containerStatuses": statuses}}


@pytest.mark.parametrize(
    ("obj", "word"),
    [
        pytest.param(pod("Pending"), "Pending", id="phase"),
        pytest.param(pod("Running", {"running": {}}), "Running", id="running"),
        pytest.param(pod("Running", {"waiting": {"reason": "CrashLoopBackOff"}}), "CrashLoopBackOff", id="waiting"),
        pytest.param(pod("Failed", {"terminated": {"reason": "OOMKilled"}}), "OOMKilled", id="killed"),
        pytest.param(pod("Failed", {"terminated": {"exitCode": 3}}), "ExitCode:3", id="exit-code"),
        pytest.param(pod("Running", deletionTimestamp="2026-01-01T00:00:00Z"), "Terminating", id="going"),
    ],
)
def test_the_status_of_a_pod_is_what_keeps_it(obj: Raw, word: str) -> None:
    assert pod_status(obj) == word


def test_an_autoscaler_shows_measured_over_wanted() -> None:
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
    current = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 45}}}
    external = {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "10"}}}
    assert hpa_targets([cpu], []) == "cpu: <unknown>/60%"
    assert hpa_targets([cpu, external, external], [current]) == "cpu: 45%/60%, <unknown>/10 + 1 more..."


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".spec.size", 3),
        (".spec.missing", None),
        (".status.conditions[?(@.type=='Ready')].status", "True"),
        (".status.conditions[0].type", "Other"),
        (".status.conditions[*].type", "Other"),
        (".metadata.labels['a.b/c']", "d"),
    ],
)
def test_printer_columns_read_json_paths(path: str, value: object) -> None:
    obj = {
        "metadata": {"labels": {"a.b/c": "d"}},
        "spec": {"size": 3},
        "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
    }
    assert path_value(obj, path) == value
