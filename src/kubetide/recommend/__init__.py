"""What workloads should request, from what they used: rows as data, for reports, patches and notebooks.

    found = rows(workloads, usage, Options(estimator="krr"))

`rows` is pure; where usage comes from (Prometheus, checkpoints, the metrics API) and where rows go (tables, patches) is
beside it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubetide.recommend.core.money import Price as Price
    from kubetide.recommend.core.money import Prices as Prices
    from kubetide.recommend.core.rows import Row as Row
    from kubetide.recommend.core.rows import rows as rows
    from kubetide.recommend.core.sizing import LimitPolicy as LimitPolicy
    from kubetide.recommend.core.sizing import Options as Options
    from kubetide.recommend.core.workloads import Bounds as Bounds
    from kubetide.recommend.core.workloads import Container as Container
    from kubetide.recommend.core.workloads import Sizes as Sizes
    from kubetide.recommend.core.workloads import Usage as Usage
    from kubetide.recommend.core.workloads import Workload as Workload
    from kubetide.recommend.core.workloads import key_of as key_of

_HOMES = {
    "Bounds": "workloads",
    "Container": "workloads",
    "LimitPolicy": "sizing",
    "Options": "sizing",
    "Price": "money",
    "Prices": "money",
    "Row": "rows",
    "Sizes": "workloads",
    "Usage": "workloads",
    "Workload": "workloads",
    "key_of": "workloads",
    "rows": "rows",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"kubetide.recommend.core.{_HOMES[name]}"), name)
