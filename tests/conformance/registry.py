"""Which check answers for which suite. Adapter modules register themselves here when they are imported."""

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Case = dict[str, Any]
Check = Callable[[Case], Iterable[str]]

CHECKS: dict[str, Check] = {}
SUITE = "suiteKey"
"""Member of every case that a check gets: the key of its suite, which tells the release it was recorded with."""


class Skip(Exception):
    """This case is not compared, for the reason given (a tag that the collection's README names)."""


class NamedDifference(Exception):
    """kubetide decides this case otherwise on purpose, for the reason given; raised where a rule tells, not an id."""


class NotApplicable(Exception):
    """The subject of this case is not in the product, for the reason given."""


def suite(*keys: str) -> Callable[[Check], Check]:
    """Register a check for `collection/suite`. It yields differences; none means that the case passed."""

    def register(check: Check) -> Check:
        for key in keys:
            if key in CHECKS and CHECKS[key] is not check:
                raise ValueError(f"{key} has two adapters")
            CHECKS[key] = check
        return check

    return register


def load_adapters() -> dict[str, str]:
    """Import every adapter module beside this file; return what could not be imported, by module."""
    broken: dict[str, str] = {}
    for path in sorted((Path(__file__).parent / "adapters").glob("[a-z]*.py")):
        try:
            importlib.import_module(f"conformance.adapters.{path.stem}")
        except Exception as error:  # one broken adapter must not hide the results of the others
            broken[path.stem] = f"{type(error).__name__}: {error}"
    return broken
