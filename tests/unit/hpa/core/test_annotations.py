"""Fields that are only proposed, beside the annotations that say the same."""

from typing import Any

import pytest

from kubetide.api.objects.hpa import HpaSpec
from kubetide.api.values.codec import convert
from kubetide.hpa.core.annotations import overrides_of, with_proposed_fields


@pytest.mark.parametrize(
    ("spec", "annotations", "expected"),
    [
        pytest.param({"syncPeriodSeconds": 5}, {}, (5, None, 0), id="own-period"),
        pytest.param(
            {"syncPeriodSeconds": 5}, {"kubetide.io/hpa-sync-period": "7s"}, (7, None, 0), id="annotation-wins"
        ),
        pytest.param({"syncPeriodSeconds": 0}, {}, (None, None, 1), id="too-short"),
        pytest.param({"syncPeriodSeconds": 3601}, {}, (None, None, 1), id="too-long"),
        pytest.param({"syncPeriodSeconds": 10**30}, {}, (None, None, 1), id="absurd"),
        pytest.param({"syncPeriodSeconds": "5"}, {}, (None, None, 1), id="no-number"),
        pytest.param({"selectionStrategy": "OwnerReference"}, {}, (None, "OwnerReference", 0), id="strategy"),
        pytest.param({"selectionStrategy": "Luck"}, {}, (None, None, 1), id="unknown-strategy"),
        pytest.param({}, {}, (None, None, 0), id="nothing"),
    ],
)
def test_proposed_fields_count_below_annotations(
    spec: dict[str, Any], annotations: dict[str, str], expected: tuple[int | None, str | None, int]
) -> None:
    found = with_proposed_fields(overrides_of(annotations), convert(spec, HpaSpec))
    seconds = None if found.sync_period is None else int(found.sync_period.total_seconds())
    assert (seconds, found.selection, len(found.problems)) == expected
