"""Estimators that installed packages offer, by the entry point `kubetide.estimators`; none is imported unless named."""

from importlib.metadata import EntryPoint, entry_points

from kubetide.errors import InvalidInput
from kubetide.recommend.core.estimators import Maker
from kubetide.replay.core.policies import Fleet, SizePolicy

GROUP = "kubetide.estimators"


def installed_estimators() -> dict[str, Maker]:
    """Return the makers of installed estimators by name."""
    return {point.name: _maker(point) for point in entry_points(group=GROUP)}


def _maker(point: EntryPoint) -> Maker:
    def make(fleet: Fleet) -> SizePolicy:
        try:
            found: Maker = point.load()
        except (ImportError, AttributeError) as error:
            message = f"{point.name} of {point.value} cannot be loaded: {error}"
            raise InvalidInput(message, field="--estimator") from error
        return found(fleet)

    return make
