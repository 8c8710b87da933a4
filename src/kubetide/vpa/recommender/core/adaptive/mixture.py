"""A mixture of rules whose weights follow regret: who would have been cheaper than the mixture gets a say.

When the next decision is due, each rule is charged with the slope of the cost at the decision that was in force, times
the distance between the two:

    regret[k]  ←  keep · regret[k] + slope · (decision − proposal[k]) / scale
    spread[k]  ←  keep · spread[k] + the square of the same
    weight[k]  ∝  max(regret[k], 0) / spread[k]

Because the cost is convex, a mixture charged this way is soon about as good as the best *blend* of the rules, which is
often better than any rule alone. Dividing by the spread is the learning rate: there is none to tune. The fleet's mean
regret is added to every container's own, so that one seen for an hour decides as its peers have learned.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from kubetide.stats.buckets import Floats

Mask = npt.NDArray[np.bool_]

FORGOTTEN_PER_HOUR: Final = 0.002
"""Half of what was learned is forgotten in two weeks."""
FLEET_DECISIONS: Final = 30.0
"""As many decisions of its own outweigh what a container takes from the fleet."""
_TINY: Final = 1e-12


def weights(regret: Floats, spread: Floats, prior: Floats) -> Floats:
    """Return the weight of every rule (rows) for every container (columns); `prior` where no rule has earned any."""
    raw: Floats = np.maximum(regret, 0.0) / (spread + _TINY)
    total = np.add.reduce(raw, axis=0)
    known = total > 0.0
    result: Floats = np.where(known, raw / np.where(known, total, 1.0), prior)
    return result


def keep(hours: float) -> float:
    """Return the share of what was learned that is left after a decision was in force for `hours`."""
    return max(1.0 - FORGOTTEN_PER_HOUR * hours, 0.5)


def charge(regret: Floats, spread: Floats, instant: Floats, seen: Mask, kept: float) -> tuple[Floats, Floats]:
    """Return regret and spread with what the last decision adds; containers not seen keep theirs."""
    return (
        np.where(seen, kept * regret + instant, regret),
        np.where(seen, kept * spread + instant * instant, spread),
    )
