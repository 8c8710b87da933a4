"""Resource arithmetic in which the rounding is part of the protocol.

Integer views round up, scaling by a factor truncates the product of doubles, dividing among zones rounds up at milli
level. "Differs by more than t" multiplies the old value (never divides), so zero and missing need no special case
beyond: missing on one side differs, missing on both is equal, any change from zero differs.
"""

import math
from collections.abc import Mapping

from kubetide.api.objects.resources import Amounts
from kubetide.api.values.quantity import Quantity

_LARGEST = 2**900
"""Beyond any amount; a product with it is still a finite double."""


def scale_milli(quantity: Quantity, factor: float) -> Quantity:
    """Scale the milli value."""
    return Quantity(int(_double(quantity.milli) * factor) * 10**6, quantity.notation)


def scale_value(quantity: Quantity, factor: float) -> Quantity:
    """Scale the integer value."""
    return Quantity(int(_double(quantity.value) * factor) * 10**9, quantity.notation)


def divide(amounts: Mapping[str, Quantity], parts: int) -> Amounts:
    """Split evenly, each share rounded up to a whole milli unit; dividing by 0 changes nothing."""
    if parts == 0:
        return dict(amounts)
    return {
        name: Quantity(math.ceil(_double(amount.milli) / parts) * 10**6, amount.notation)
        for name, amount in amounts.items()
    }


def differs(
    old: Mapping[str, Quantity] | None, new: Mapping[str, Quantity] | None, name: str, threshold: float
) -> bool:
    """Return whether a resource changed by more than the share `threshold` of its old amount."""
    before, after = (old or {}).get(name), (new or {}).get(name)
    if before is None or after is None:
        return before is not after
    return _double(abs(after.milli - before.milli)) > _double(before.milli) * threshold


def _double(number: int) -> float:
    return float(max(min(number, _LARGEST), -_LARGEST))
