"""How big each pod: the vertical autoscaler, and its recommender as a value."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubetide.vpa.recommender.core.aggregate import Tuning as Tuning
    from kubetide.vpa.recommender.core.estimator import Estimation as Estimation
    from kubetide.vpa.recommender.core.recommend import Options as Options
    from kubetide.vpa.recommender.core.recommender import Recommendation as Recommendation
    from kubetide.vpa.recommender.core.recommender import Recommender as Recommender
    from kubetide.vpa.recommender.core.recommender import Size as Size

_HOMES = {
    "Estimation": "kubetide.vpa.recommender.core.estimator",
    "Options": "kubetide.vpa.recommender.core.recommend",
    "Recommendation": "kubetide.vpa.recommender.core.recommender",
    "Recommender": "kubetide.vpa.recommender.core.recommender",
    "Size": "kubetide.vpa.recommender.core.recommender",
    "Tuning": "kubetide.vpa.recommender.core.aggregate",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
