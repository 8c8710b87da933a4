"""matchConditions of webhooks."""

from typing import Any

from kubetide.embedded.status import Raw
from kubetide.errors import InvalidInput


def evaluate_conditions(conditions: tuple[Raw, ...], request: dict[str, Any]) -> bool:
    """Whether every condition holds for a request."""
    raise InvalidInput("conditions cannot be evaluated")
