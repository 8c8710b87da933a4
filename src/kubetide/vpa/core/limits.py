"""LimitRanges and the limit that keeps its proportion to a new request.

    effective item       over all LimitRange items of a type: smallest max, largest min, last default
    proportional limit   L·N/R, with own limit L (or the LimitRange default), own request R, new request N;
                         N when R is unset or equal to L; none when L or N is unset or zero
    chosen limit         N·percentage or N + quantity, where a policy says so
    boundary request     R·b/L: the request whose proportional limit would be exactly b

All products are exact integers (millicores, bytes) divided once and rounded down, unless a caller asks for up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kubetide.api.objects.core import LimitRange, LimitRangeItem
from kubetide.api.objects.vpa import LimitFromRequest
from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.vpa.core.policy import CPU, RESOURCES, Amounts, amounts

MAX_INT64 = 2**63 - 1
ZERO = Quantity(0)
PERCENTAGE = "Percentage"
QUANTITY = "Quantity"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitItem:
    """What the LimitRanges of a namespace ask of one container, or of one pod. None: not given at all."""

    minimum: Amounts | None = None
    maximum: Amounts | None = None
    default: Amounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceLimits:
    """Both effective items of a namespace."""

    container: LimitItem | None = None
    pod: LimitItem | None = None


@dataclass(frozen=True, slots=True)
class Proportional:
    """A proportional limit, or None, with what should be said about it."""

    limit: Quantity | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class NewLimits:
    """New limits of a container and the notes that go with them."""

    limits: Amounts = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def namespace_limits(limit_ranges: Iterable[LimitRange]) -> NamespaceLimits:
    """Return the effective items of a namespace's LimitRanges; raises QuantityError."""
    items = [item for limit_range in limit_ranges for item in limit_range.spec.limits or ()]
    return NamespaceLimits(container=effective_item(items, "Container"), pod=effective_item(items, "Pod"))


def effective_item(items: Iterable[LimitRangeItem], kind: str) -> LimitItem | None:
    """Return the strictest combination of all items of one type, or None when none says anything."""
    minimum: Amounts | None = None
    maximum: Amounts | None = None
    default: Amounts | None = None
    for item in items:
        if item.type != kind:
            continue
        if item.default is not None:
            default = amounts(item.default)
        if item.max is not None:
            maximum = _stricter(maximum, amounts(item.max), highest=False)
        if item.min is not None:
            minimum = _stricter(minimum, amounts(item.min), highest=True)
    if minimum is None and maximum is None and default is None:
        return None
    return LimitItem(minimum=minimum, maximum=maximum, default=default)


def _stricter(have: Amounts | None, new: Amounts, *, highest: bool) -> Amounts:
    if have is None:
        return dict(new)
    result = dict(have)
    for name in RESOURCES:
        if name in new:
            pick = max if highest else min
            result[name] = pick(result[name], new[name]) if name in result else new[name]
    return result


def whole(resource: str, amount: Quantity) -> int:
    """Return an amount in the unit that is divided: millicores for CPU, whole units for everything else."""
    return amount.milli if resource == CPU else amount.value


def scaled(
    resource: str, amount: Quantity, numerator: Quantity, denominator: Quantity, *, up: bool = False
) -> tuple[Quantity, bool]:
    """Return amount·numerator/denominator in the notation of `amount`, and whether it had to be cut at 64 bits."""
    product = whole(resource, amount) * whole(resource, numerator)
    divisor = whole(resource, denominator)
    result = -(-product // divisor) if up else product // divisor
    capped = min(result, MAX_INT64)
    unit = 10**6 if resource == CPU else 10**9
    return Quantity(capped * unit, amount.notation), capped != result


def proportional_limit(
    resource: str, *, limit: Quantity, request: Quantity, new_request: Quantity, default: Quantity
) -> Proportional:
    """Return the limit that stands to the new request as the own limit stands to the own request."""
    own = limit or default
    if not own:
        return Proportional(None, f"{resource}: limit NOT set since originalLimit is nil or 0")
    if not new_request:
        return Proportional(None, f"{resource}: limit NOT set since recommendedRequest is nil or 0")
    if not request or own.milli == request.milli:
        return Proportional(new_request)
    result, cut = scaled(resource, own, new_request, request)
    if cut:
        return Proportional(result, f"{resource}: failed to keep limit to request ratio; capping limit to int64")
    return Proportional(result)


def new_limits(
    *,
    requests: Mapping[str, Quantity],
    limits: Mapping[str, Quantity],
    target: Mapping[str, Quantity],
    default: Amounts,
) -> NewLimits:
    """Return the limits that go with new requests; notes about a missing one only when the other is there."""
    found = {
        name: proportional_limit(
            name,
            limit=limits.get(name, ZERO),
            request=requests.get(name, ZERO),
            new_request=target.get(name, ZERO),
            default=default.get(name, ZERO),
        )
        for name in RESOURCES
    }
    result = {name: one.limit for name, one in found.items() if one.limit is not None}
    if not result:
        return NewLimits()
    return NewLimits(result, tuple(one.note for one in found.values() if one.note))


def chosen_limit(
    resource: str, rule: LimitFromRequest, new_request: Quantity, *, maximum: Quantity = ZERO
) -> Quantity | None:
    """Return the limit that a policy derives from the new request (proposal AEP-8515); None when it derives none.

    Rounded down as proportional limits are, at most the `maximum` of the namespace, and never below the request.
    """
    if not new_request:
        return None
    if rule.type == PERCENTAGE and rule.percentage is not None:
        limit = scaled(resource, new_request, Quantity.of(rule.percentage), Quantity.of(100))[0]
    elif rule.type == QUANTITY and rule.quantity is not None:
        limit = new_request + parse_quantity(rule.quantity)
    else:
        return None
    if maximum:
        limit = min(limit, maximum)
    return max(limit, new_request)


def boundary_request(
    resource: str, *, limit: Quantity, request: Quantity, boundary: Quantity, default: Quantity
) -> Quantity:
    """Return the request whose proportional limit is `boundary`; zero means no boundary."""
    own = limit or default
    if not own:
        return ZERO
    if not request:
        return boundary
    return scaled(resource, request, boundary, own)[0]
