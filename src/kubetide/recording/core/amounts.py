"""Amounts of objects and samples as a recording keeps them: plain values, whole numbers, rounded up."""

from collections.abc import Mapping
from typing import Any

from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.durations import parse_duration
from kubetide.errors import InvalidInput, QuantityError
from kubetide.recording.core.layout import ABSENT


def pruned(value: Any) -> Any:
    """Return plain values without nulls and empty texts, lists and maps."""
    if isinstance(value, dict):
        found = {key: pruned(each) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not None and each not in ("", [], {})}
    if isinstance(value, list | tuple):
        return [pruned(each) for each in value]
    return value


def usage_amounts(usage: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return microcores, rounded up, and bytes; None where one cannot be read."""
    try:
        cpu, memory = usage.get("cpu"), usage.get("memory")
        return (
            ABSENT if cpu is None else _micros(parse_quantity(cpu)),
            ABSENT if memory is None else parse_quantity(memory).value,
        )
    except QuantityError:
        return None


def window_seconds(window: str) -> float:
    """Return the length of a window; NaN where none is told."""
    try:
        return parse_duration(window).total_seconds() if window else float("nan")
    except InvalidInput:
        return float("nan")


def _micros(amount: Quantity) -> int:
    """Return millionths, rounded up, as millicores are: rounding up twice is rounding up once."""
    return -(-amount.nanos // 1000)


def millis(text: Any) -> int | None:
    """Return thousandths; None for none."""
    return None if text is None else parse_quantity(text).milli


def whole(text: Any) -> int | None:
    """Return whole units; None for none."""
    return None if text is None else parse_quantity(text).value
