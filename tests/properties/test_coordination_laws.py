"""Laws of sizes that are chosen for an HPA."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.vpa.recommender.core.coordination.demand import Demand
from kubetide.vpa.recommender.core.coordination.sizing import LARGEST_STEP, Horizontal, Sizes, counts

ROWS = 8


def view(rng: np.random.Generator, replicas: np.ndarray, rested: np.ndarray) -> Horizontal:
    minimum = rng.integers(1, 4, ROWS).astype(float)
    return Horizontal(
        target=rng.integers(30, 91, ROWS) / 100,
        minimum=minimum,
        maximum=minimum + rng.integers(0, 40, ROWS),
        replicas=replicas,
        rested_seconds=rested,
        start_seconds=rng.uniform(5, 300, ROWS),
        largest=rng.uniform(200, 4000, ROWS),
        smallest=np.full(ROWS, 25.0),
        resized=np.ones(ROWS, dtype=np.bool_),
    )


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_a_size_stays_within_its_bounds_and_moves_only_at_rest_or_up(seed: int) -> None:
    rng = np.random.default_rng(seed)
    base = rng.uniform(50, 5000, ROWS)
    demand, sizes = Demand(ROWS), Sizes(rng.uniform(25, 200, ROWS), 0)
    here = view(np.random.default_rng(seed), np.ones(ROWS), np.zeros(ROWS))
    for minute in range(1, 200):
        rested = rng.choice([0.0, 1000.0], ROWS)
        replicas = counts(base, sizes.planned, here)
        here = view(np.random.default_rng(seed), replicas, rested)
        demand.add(np.where(rng.random(ROWS) < 0.1, np.nan, base * rng.uniform(0.7, 1.3, ROWS)), minute * 60)
        size, planned = sizes.size.copy(), sizes.planned.copy()
        sizes.decide(demand, here, minute * 60)
        moved = (sizes.size != size) | (sizes.planned != planned)
        new, waited = sizes.planned[moved], planned[moved] < size[moved]
        assert (new <= size[moved] * LARGEST_STEP * 1.000001).all()
        assert (new >= size[moved] / LARGEST_STEP * 0.999999).all()
        # A size that does not wait for pods any more was announced at rest; a new one falls only at rest.
        assert (waited | (new > size[moved]) | (rested[moved] > 0)).all()
        assert (sizes.planned <= sizes.size).all()
        # What shrank at once is carried by the pods that there are.
        shrank = (sizes.size < size) & ~np.isnan(demand.smoothed)
        carried = here.replicas * sizes.size
        assert (carried[shrank] * 1.000001 >= np.minimum(demand.smoothed, here.maximum * sizes.size)[shrank]).all()
