"""How rules make findings: by the id of a verdict, about an object, with what fills the gaps."""

from datetime import datetime, timedelta

from kubetide.api.objects.meta import ObjectKey
from kubetide.verdicts.core.table import VERDICTS
from kubetide.verdicts.core.verdict import Finding


def found(verdict: str, kind: str, key: ObjectKey, /, **values: object) -> Finding:
    """Return a finding."""
    return Finding(verdict=VERDICTS[verdict], kind=kind, key=key, values={k: str(v) for k, v in values.items()})


def age(since: datetime, now: datetime) -> str:
    """Return how long ago something was, in one unit."""
    span = max(now - since, timedelta(0))
    seconds = int(span.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
