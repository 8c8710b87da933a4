"""Weights follow regret: who would have been cheaper gets a say."""

import numpy as np
import pytest

from kubetide.vpa.recommender.core.adaptive.mixture import charge, keep, weights

PRIOR = np.array([[0.0], [1.0], [0.0]])


@pytest.mark.parametrize(
    ("regret", "spread", "expected"),
    [
        pytest.param([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0], id="nothing-learned-takes-the-prior"),
        pytest.param([-1.0, -2.0, -3.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.0], id="nobody-was-cheaper"),
        pytest.param([3.0, 1.0, -5.0], [1.0, 1.0, 1.0], [0.75, 0.25, 0.0], id="in-proportion-to-regret"),
        pytest.param([1.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.75, 0.25, 0.0], id="noisy-rules-count-less"),
    ],
)
def test_weights(regret: list[float], spread: list[float], expected: list[float]) -> None:
    found = weights(np.array(regret)[:, None], np.array(spread)[:, None], PRIOR)
    assert found[:, 0] == pytest.approx(expected)


def test_containers_not_seen_keep_what_they_learned() -> None:
    regret, spread = np.array([[4.0, 4.0]]), np.array([[2.0, 2.0]])
    after_regret, after_spread = charge(regret, spread, np.array([[1.0, 1.0]]), np.array([True, False]), 0.5)
    assert after_regret.tolist() == [[3.0, 4.0]]
    assert after_spread.tolist() == [[2.0, 2.0]]


def test_a_longer_decision_forgets_more_but_never_all() -> None:
    assert 1.0 > keep(1.0) > keep(24.0) > 0.9
    assert keep(1e6) == 0.5
