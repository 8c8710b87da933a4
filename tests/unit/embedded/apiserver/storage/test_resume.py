"""A cluster that had lived ahead of real time goes on from where it was."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kubetide.embedded.apiserver.storage.journal import resume_time

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def created(at: Any) -> dict[str, Any]:
    return {"metadata": {"creationTimestamp": at}}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([], NOW, id="an-empty-store"),
        pytest.param([created("2026-02-01T00:00:00Z")], NOW, id="everything-is-past"),
        pytest.param(
            [created("2026-03-09T00:00:00Z"), created("2026-03-02T00:00:00Z")],
            datetime(2026, 3, 9, 0, 0, 1, tzinfo=UTC),
            id="just-after-the-newest",
        ),
        pytest.param(
            [{"metadata": {"managedFields": [{"time": "2026-03-05T00:00:00Z"}]}}],
            datetime(2026, 3, 5, 0, 0, 1, tzinfo=UTC),
            id="a-change-counts-too",
        ),
        pytest.param([created(None), {}, created("soon")], NOW, id="no-usable-stamp"),
    ],
)
def test_time_goes_on_and_never_back(objects: list[dict[str, Any]], expected: datetime) -> None:
    assert resume_time(objects, NOW) == expected
