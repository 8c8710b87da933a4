"""How much work one object may cause while it is judged by patterns and rules that users wrote.

Both schemas and objects come from users, and a single request may bring hundreds of thousands of values. Work is
counted in steps of about a microsecond and what exceeds the budget is refused, not waited for.
"""

from kubetide.errors import InvalidInput


class CannotJudge(InvalidInput):
    """Whether an object keeps to its schema cannot be found out, or would take too long. `field` is where."""


class OutOfBudget(Exception):
    """The work would take more steps than are left."""


class WorkBudget:
    """Steps that may still be taken."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Take steps off, or raise OutOfBudget if there are not so many; then none are left."""
        if steps > self.left:
            self.left = 0
            raise OutOfBudget
        self.left -= steps
