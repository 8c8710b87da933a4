"""What a span says about a status that is written."""

from typing import Any

import pytest

from kubetide.api.objects.vpa import VerticalPodAutoscalerStatus
from kubetide.api.values.codec import convert
from kubetide.vpa.recommender.core.status import describe_change


def status(target: dict[str, str] | None, provided: str = "True", upper: str = "1") -> dict[str, Any]:
    entry = {"containerName": "main", "target": target, "upperBound": {"cpu": upper}}
    given = {"containerRecommendations": [entry]} if target is not None else {}
    return {"recommendation": given, "conditions": [{"type": "RecommendationProvided", "status": provided}]}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param(
            None,
            status({"cpu": "100m"}),
            "main: cpu unset to 100m; RecommendationProvided is True",
            id="the-first-recommendation",
        ),
        pytest.param(
            status({"cpu": "100m"}), status({"cpu": "250m"}), "main: cpu 100m to 250m", id="a-target-that-moved"
        ),
        pytest.param(
            status({"cpu": "100m"}),
            status(None, provided="False"),
            "main: no recommendation any more; RecommendationProvided is False",
            id="a-container-that-is-gone",
        ),
        pytest.param(
            status({"cpu": "100m"}), status({"cpu": "100m"}, upper="2"), "bounds moved", id="nothing-but-bounds"
        ),
        pytest.param(
            status({"cpu": "100m"}),
            {**status({"cpu": "100m"}), "conditions": []},
            "RecommendationProvided is gone",
            id="a-condition-that-is-gone",
        ),
    ],
)
def test_a_change_of_status_is_said_in_one_line(
    before: dict[str, Any] | None, after: dict[str, Any], said: str
) -> None:
    read = None if before is None else convert(before, VerticalPodAutoscalerStatus)
    assert describe_change(read, after) == said
