"""The size class of a VPA, a label of many metrics."""

import pytest

from kubetide.vpa.recommender import quality
from kubetide.vpa.updater import telemetry


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param(0, 0, id="none"),
        pytest.param(1, 0, id="one"),
        pytest.param(7, 2, id="rounded-down"),
        pytest.param(8, 3, id="a-power-of-two"),
        pytest.param(2**20 - 1, 19, id="just-below-the-largest"),
        pytest.param(2**20, 20, id="the-largest"),
        pytest.param(2**30, 20, id="never-beyond-it"),
    ],
)
def test_recommender_and_updater_know_the_same_sizes(pods: int, expected: int) -> None:
    assert quality.size_log2(pods) == expected
    assert telemetry.size_log2(pods) == str(expected)
